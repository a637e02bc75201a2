//go:build ipvs

package ipvsctl

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// testAdopt: connections through virtual servers of kube-proxy live on while these are adopted, lose their device and
// drain, and when they are handed over.
func (d *director) testAdopt(t *testing.T) {
	for _, f := range lab.Families() {
		t.Run(f.String(), func(t *testing.T) { d.adopt(t, f) })
	}
}

func (d *director) adopt(t *testing.T, f lab.Family) {
	tcp := d.frontend(f, TCP, "rr", 1, 1)
	udp := tcp
	udp.Protocol = UDP
	d.node.Must(t, "", "ip", "link", "add", "kube-ipvs0", "type", "dummy")
	add := []string{"addr", "add", netip.PrefixFrom(tcp.Addr, tcp.Addr.BitLen()).String(), "dev", "kube-ipvs0"}
	if f == lab.IPv6 {
		add = append(add, "nodad")
	}
	d.node.Must(t, "", "ip", add...)
	for _, v := range []VirtualServer{tcp, udp} {
		d.node.Must(t, "", "ipvsadm", strings.Fields("-A "+v.Option()+" -s rr")...)
		for _, r := range v.RealServers {
			d.node.Must(t, "", "ipvsadm", strings.Fields("-a "+v.Option()+" "+r.Options())...)
		}
	}
	x := d.world.At(t, lab.Outside)
	at := netip.AddrPortFrom(tcp.Addr, tcp.Port)
	type held struct {
		flow *lab.Flow
		name string
	}
	var open []held
	for _, p := range []lab.Protocol{lab.TCP, lab.UDP} {
		flow, answer := x.Hold(t, lab.Question{Protocol: p, To: at, Patience: patience})
		open = append(open, held{flow, answer.Name()})
	}
	alive := func(when string) {
		t.Helper()
		for _, h := range open {
			if r := h.flow.Send(patience); r.Outcome != lab.Answered || r.Answer.Name() != h.name {
				t.Errorf("%s: %s, want an answer of %s", when, r, h.name)
			}
		}
	}
	places := map[netip.Addr]bool{tcp.Addr: true}
	n, err := Adopt(d.options, places)
	if must(t, err); n != 2 {
		t.Errorf("%d virtual servers were adopted, want 2", n)
	}
	alive("adopted")
	e := d.open(t)
	if got := e.Adopted(); len(got) != 2 {
		t.Errorf("adopted are %v", got)
	}
	pass(t, e, start())
	d.node.Must(t, "", "ip", "link", "del", "kube-ipvs0")
	alive("without the device, draining")
	if _, err := e.Tick(start().Add(100 * period)); err != nil {
		t.Error(err)
	}
	alive("after the graceful period")
	n, err = HandOver(d.options, places)
	must(t, err)
	if left, err := Foreign(d.options, places); n != 2 || left != 2 || err != nil {
		t.Errorf("%d were handed over, %d are another tool's, %v", n, left, err)
	}
	alive("handed over")
	for _, v := range []VirtualServer{tcp, udp} {
		d.node.Must(t, "", "ipvsadm", strings.Fields("-D "+v.Option())...)
	}
}
