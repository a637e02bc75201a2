package ipvsctl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func fakeProc(t *testing.T, values map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, value := range values {
		path := filepath.Join(root, strings.ReplaceAll(name, ".", "/"))
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(value+"\n"), 0o644))
	}
	return root
}

func TestSetSysctls(t *testing.T) {
	root := fakeProc(t, map[string]string{
		"net.ipv4.vs.conntrack": "0", "net.ipv4.vs.expire_nodest_conn": "1", "net.ipv4.vs.expire_quiescent_template": "0",
		"net.ipv4.conf.all.arp_ignore": "0", "net.ipv4.conf.all.arp_announce": "0", "net.ipv4.vs.conn_reuse_mode": "1",
	})
	changes, err := SetSysctls(root, Sysctls(true))
	must(t, err)
	expect(t, "changes", lines(changes), `
		net.ipv4.vs.conntrack: 0 -> 1
		net.ipv4.vs.expire_quiescent_template: 0 -> 1
		net.ipv4.conf.all.arp_ignore: 0 -> 1
		net.ipv4.conf.all.arp_announce: 0 -> 2`)
	changes, err = SetSysctls(root, Sysctls(true))
	must(t, err)
	expect(t, "changes of a second call", lines(changes), "")
}

func lines(changes []Change) string {
	var b strings.Builder
	for _, c := range changes {
		fmt.Fprintf(&b, "%s: %s -> %s\n", c.Name, c.Old, c.New)
	}
	return b.String()
}

func TestSetSysctlsGoesOn(t *testing.T) {
	root := fakeProc(t, map[string]string{"net.ipv4.vs.expire_nodest_conn": "0", "net.ipv4.vs.expire_quiescent_template": "1"})
	changes, err := SetSysctls(root, Sysctls(false))
	expect(t, "changes", lines(changes), "net.ipv4.vs.expire_nodest_conn: 0 -> 1")
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "set sysctl net.ipv4.vs.conntrack=1: ") ||
		!strings.Contains(err.Error(), "without it connections through IPVS cannot be masqueraded") {
		t.Errorf("error is %v", err)
	}
}

// TestSetSysctlsReadsFirst checks that SetSysctls does not write a value that is right: /proc/sys is read-only in many
// containers.
func TestSetSysctlsReadsFirst(t *testing.T) {
	root := fakeProc(t, map[string]string{"a.b": "1"})
	path := filepath.Join(root, "a", "b")
	must(t, os.Chtimes(path, start(), start()))
	_, err := SetSysctls(root, []Sysctl{{Name: "a.b", Value: "1"}})
	must(t, err)
	info, err := os.Stat(path)
	must(t, err)
	if !info.ModTime().Equal(start()) {
		t.Error("the file was written")
	}
}

func TestConnReuseModeIsLeftAlone(t *testing.T) {
	for _, s := range Sysctls(true) {
		if strings.Contains(s.Name, "conn_reuse_mode") {
			t.Errorf("%s is set to %s; since Linux 5.9 the kernel's default is right", s.Name, s.Value)
		}
	}
}

func TestSetTimeouts(t *testing.T) {
	minutes := func(tcp, fin, udp int) Timeouts {
		minute := time.Minute
		return Timeouts{TCP: time.Duration(tcp) * minute, TCPFin: time.Duration(fin) * minute, UDP: time.Duration(udp) * minute}
	}
	for _, tt := range []struct {
		name string
		set  Timeouts
		want Timeouts
		text string
	}{
		{"nothing", Timeouts{}, minutes(15, 2, 5), ""},
		{"one", minutes(0, 0, 7), minutes(15, 2, 7), "IPVS timeout udp: 5m0s -> 7m0s"},
		{"all", minutes(60, 1, 1), minutes(60, 1, 1), `
			IPVS timeout tcp: 15m0s -> 1h0m0s
			IPVS timeout tcpfin: 2m0s -> 1m0s
			IPVS timeout udp: 5m0s -> 1m0s`},
		{"as they are", minutes(15, 2, 5), minutes(15, 2, 5), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMemory()
			m.config = minutes(15, 2, 5)
			changes, err := openMemory(t, m).SetTimeouts(tt.set)
			must(t, err)
			expect(t, "changes", lines(changes), tt.text)
			if m.config != tt.want {
				t.Errorf("timeouts are %+v, want %+v", m.config, tt.want)
			}
		})
	}
}

func TestSetTimeoutsRefuses(t *testing.T) {
	m := newMemory()
	e := openMemory(t, m)
	for _, bad := range []Timeouts{{TCP: -1}, {UDP: 1000 * time.Hour}} {
		if _, err := e.SetTimeouts(bad); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
	m.readError = syscall.ENOBUFS
	if _, err := e.SetTimeouts(Timeouts{TCP: time.Hour}); err == nil {
		t.Error("no error when timeouts cannot be read")
	}
}
