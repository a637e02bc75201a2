package wire

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink/nl"

	"github.com/verdict-proxy/verdict/e2e/fields"
)

// TestParseForwarding: each text, and the options of ipvsadm that do the same. An empty want means that it is refused.
func TestParseForwarding(t *testing.T) {
	for text, want := range map[string]string{
		"nat":                       "-m",
		"route":                     "-g",
		"tunnel":                    "-i",
		"tunnel,ipip":               "-i",
		"tunnel,gue":                "-i --tun-type gue --tun-port 6080 --tun-nocsum",
		"tunnel, gue,6081 , csum":   "-i --tun-type gue --tun-port 6081 --tun-csum",
		"tunnel,gue,6081,remcsum":   "-i --tun-type gue --tun-port 6081 --tun-remcsum",
		"tunnel,gre":                "-i --tun-type gre --tun-nocsum",
		"tunnel,gre,csum":           "-i --tun-type gre --tun-csum",
		"":                          "",
		"dr":                        "",
		"nat,gue":                   "",
		"route,csum":                "",
		"tunnel,vxlan":              "",
		"tunnel,csum":               "",
		"tunnel,gre,80":             "",
		"tunnel,gue,0":              "",
		"tunnel,gue,65536":          "",
		"tunnel,gre,remcsum":        "",
		"tunnel,ipip,csum":          "",
		"tunnel,gue,6080,csum,csum": "",
		"tunnel,gue,":               "",
		"tunnel,gue,csum,6081":      "-i --tun-type gue --tun-port 6081 --tun-csum",
		"tunnel,gue,6081,6082":      "",
	} {
		f, err := ParseForwarding(text)
		if got := f.Options(); (err != nil) != (want == "") || err == nil && got != want {
			t.Errorf("%q: options %q, error %v; want %q", text, got, err, want)
		}
		if err != nil && (f != Forwarding{} || !strings.Contains(err.Error(), text)) {
			t.Errorf("%q: %+v, %v", text, f, err)
		}
	}
}

// message is the kernel's answer about a real server, as this package would write it.
func message(r RealServer, change func(*nl.RtAttr)) []byte {
	a := r.attribute()
	change(a)
	return append((&nl.Genlmsg{Command: uint8(AddReal), Version: version}).Serialize(), a.Serialize()...)
}

// TestRealThereAndBack: what is written of a real server is read again, and options and attributes show every field.
func TestRealThereAndBack(t *testing.T) {
	tunnel := Forwarding{Method: ByTunnel, Tunnel: GUE, Port: 6080}
	for _, addr := range []string{"10.0.0.1:80", "[fd00::1]:80"} {
		base := RealServer{Addr: netip.MustParseAddrPort(addr), Weight: 3, Forwarding: tunnel}
		for path, changed := range fields.Each(tunnel) {
			r := base
			if r.Forwarding = changed; changed.Method != ByTunnel {
				r.Forwarding = Forwarding{Method: changed.Method}
			}
			if got, err := parseReal(message(r, func(*nl.RtAttr) {})); err != nil || got.RealServer != r {
				t.Errorf("%s, %s: wrote %+v, read %+v, %v", addr, path, r, got, err)
			}
			if changed.Options() == tunnel.Options() {
				t.Errorf("options ignore %s", path)
			}
		}
	}
}

// TestEveryField: what is written of a virtual server and of a real server is read again.
func TestEveryField(t *testing.T) {
	type server struct {
		Key    Key
		Header Header
	}
	for _, addr := range []string{"10.96.0.1", "fd96::1"} {
		base := server{Key{netip.MustParseAddr(addr), 80, TCP}, Header{"sh", Fallback, 10}}
		for path, changed := range fields.Each(base) {
			changed.Header.Flags &= AllFlags
			got, ok := foundServer(service(changed.Key, changed.Header))
			if !ok || !got.Ours || got.Adopted || got.Key != changed.Key || got.Header != changed.Header {
				t.Errorf("%s: wrote %+v, read %+v", path, changed, got)
			}
		}
		real := RealServer{Addr: netip.AddrPortFrom(netip.MustParseAddr(addr), 80), Weight: 3}
		for path, changed := range fields.Each(real) {
			if strings.HasPrefix(path, "Forwarding") {
				continue // TestRealThereAndBack
			}
			if got, err := parseReal(message(changed, func(*nl.RtAttr) {})); err != nil || got.RealServer != changed {
				t.Errorf("%s: wrote %+v, read %+v, %v", path, changed, got, err)
			}
		}
	}
}

// TestReadsStatistics: the kernel pads addresses and adds what it has counted.
func TestReadsStatistics(t *testing.T) {
	r := RealServer{Addr: netip.MustParseAddrPort("10.0.0.1:80"), Weight: 1}
	got, err := parseReal(message(r, func(a *nl.RtAttr) {
		a.AddRtAttr(destAddr, append(r.Addr.Addr().AsSlice(), make([]byte, 12)...))
		a.AddRtAttr(destLimit, nl.Uint32Attr(9))
		a.AddRtAttr(destActive, nl.Uint32Attr(5))
		a.AddRtAttr(destInactive, nl.Uint32Attr(6))
		a.AddRtAttr(destStats, nil).AddRtAttr(statsConns, nl.Uint64Attr(1<<40))
	}))
	want := RealStatus{RealServer: r}
	want.Limit, want.Active, want.Inactive, want.Connections = 9, 5, 6, 1<<40
	if err != nil || got != want {
		t.Errorf("read %+v, %v; want %+v", got, err, want)
	}
}

// TestCutMessages: an answer that is cut short is an error, or has less, but does not panic.
func TestCutMessages(t *testing.T) {
	whole := message(RealServer{Addr: netip.MustParseAddrPort("[fd00::1]:80"), Forwarding: Forwarding{Method: ByTunnel, Tunnel: GRE}}, func(*nl.RtAttr) {})
	for n := range whole {
		if r, err := parseReal(whole[:n]); err == nil && n < len(whole)/2 {
			t.Errorf("%d bytes of %d: read %+v", n, len(whole), r)
		}
	}
}

// TestDaemons: each text, the daemons that it means, and that messages carry all of them. An empty want means that it is refused.
func TestDaemons(t *testing.T) {
	for text, want := range map[string]string{
		"master,device=eth1":                                "[master on eth1, id 0, group 224.0.0.81, port 8848]",
		"backup, device=eth1, id=7":                         "[backup on eth1, id 7, group 224.0.0.81, port 8848]",
		"backup,master,device=eth1,group=ff02::5,port=9000": "[master on eth1, id 0, group ff02::5, port 9000 backup on eth1, id 0, group ff02::5, port 9000]",
		"master":                            "",
		"device=eth1":                       "",
		"master,device=":                    "",
		"master,device=eth1,id=256":         "",
		"master,device=eth1,port=0":         "",
		"master,device=eth1,group=10.0.0.1": "",
		"primary,device=eth1":               "",
		"master,device=abcdefghijklmnop":    "",
	} {
		list, err := ParseDaemons(text)
		if got := fmt.Sprint(list); (err != nil) != (want == "") || err == nil && got != want {
			t.Errorf("%q: %s, %v; want %s", text, got, err, want)
		}
		for _, d := range list {
			for _, d.Ours = range []bool{true, false} {
				message := append((&nl.Genlmsg{Command: cmdNewDaemon, Version: version}).Serialize(), d.attribute().Serialize()...)
				if got, err := parseDaemon(message); got != d || err != nil {
					t.Errorf("wrote %+v, read %+v, %v", d, got, err)
				}
			}
		}
	}
}
