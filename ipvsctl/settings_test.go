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

	"github.com/verdict-proxy/verdict/e2e/fields"
	"github.com/verdict-proxy/verdict/e2e/memkernel"
	"github.com/verdict-proxy/verdict/ipvsctl/wire"
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
			m.Config = minutes(15, 2, 5)
			changes, err := openMemory(t, m).SetTimeouts(tt.set)
			must(t, err)
			expect(t, "changes", lines(changes), tt.text)
			if m.Config != tt.want {
				t.Errorf("timeouts are %+v, want %+v", m.Config, tt.want)
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

// daemonless is a kernel that starts no synchronization daemon: its device is missing.
type daemonless struct{ kernel }

func (daemonless) StartDaemon(wire.Daemon) error { return syscall.ENODEV }

// TestIntactWithoutDaemon: a daemon that cannot start hides no damage of virtual servers.
func TestIntactWithoutDaemon(t *testing.T) {
	sync, err := wire.ParseDaemons("master,device=eth1,id=7")
	must(t, err)
	m := newMemory()
	e := openMemory(t, m)
	e.options.Sync, e.kernel = sync, daemonless{e.kernel}
	mustSet(t, e, "web", web)
	pass(t, e, start())
	if same, err := e.Intact(true); !same || !errors.Is(err, syscall.ENODEV) {
		t.Errorf("before the damage: intact %t, error %v", same, err)
	}
	clear(m.State)
	if same, err := e.Intact(true); same || !errors.Is(err, syscall.ENODEV) {
		t.Errorf("after it: intact %t, error %v", same, err)
	}
}

// TestDaemons: the engine has the daemons of its options, changes only those, and leaves those of other tools alone.
func TestDaemons(t *testing.T) {
	both, err := wire.ParseDaemons("master,backup,device=eth1,id=7")
	must(t, err)
	m := openOver(t, Options{Sync: both}, memkernel.NewIPVS())
	changed := func(what string, want int) string {
		t.Helper()
		changes, err := m.SetDaemons()
		if must(t, err); len(changes) != want {
			t.Errorf("%s: %v", what, changes)
		}
		return fmt.Sprint(m.contents.Synced)
	}
	if got := changed("at first", 2); got != fmt.Sprint(both) {
		t.Errorf("runs %s, want %s", got, both)
	}
	changed("again", 0)
	expectIntact(t, m.Engine, true)
	must(t, m.contents.StopDaemon(both[1]))
	expectIntact(t, m.Engine, false)
	expectIntact(t, m.Engine, true)
	for field, changed := range fields.Each(both[0]) {
		if changed.SameRole(both[0]) && field != "Ours" {
			m.contents.Synced = []wire.Daemon{changed, both[1]}
			expectIntact(t, m.Engine, false)
			expectIntact(t, m.Engine, true)
		}
	}

	theirs := both[0]
	theirs.Device, theirs.Ours = "eth0", false
	m.contents.Synced = []wire.Daemon{theirs}
	if changes, err := m.SetDaemons(); len(changes) != 1 || err == nil || !strings.Contains(err.Error(), "another tool runs the master") {
		t.Errorf("beside another tool: %v, %v", changes, err)
	}
	expectIntact(t, m.Engine, true)
	m = openOver(t, Options{}, m.contents)
	if got := changed("without daemons", 1); got != fmt.Sprint([]wire.Daemon{theirs}) {
		t.Errorf("left %s", got)
	}
}
