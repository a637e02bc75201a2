//go:build ipvs

package ipvsctl

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/netns"
	"github.com/verdict-proxy/verdict/ipvsctl/wire"
)

func TestSettingsOfKernel(t *testing.T) {
	ns := newNamespace(t)
	e := openIn(t, ns)
	changes, err := e.SetTimeouts(Timeouts{TCP: time.Hour, UDP: 90 * time.Second})
	must(t, err)
	expect(t, "timeouts", lines(changes), "IPVS timeout tcp: 15m0s -> 1h0m0s\nIPVS timeout udp: 5m0s -> 1m30s")
	expect(t, "ipvsadm", ns.Must(t, "", "ipvsadm", "-L", "--timeout"), "Timeout (tcp tcpfin udp): 3600 120 90")
	changes, err = e.SetTimeouts(Timeouts{TCP: time.Hour})
	must(t, err)
	expect(t, "timeouts again", lines(changes), "")

	ns.MustDo(t, func() error {
		changes, err = SetSysctls(ProcSys, Sysctls(true))
		return err
	})
	expect(t, "sysctls", lines(changes), `
		net.ipv4.vs.conntrack: 0 -> 1
		net.ipv4.vs.expire_nodest_conn: 0 -> 1
		net.ipv4.vs.expire_quiescent_template: 0 -> 1
		net.ipv4.conf.all.arp_ignore: 0 -> 1
		net.ipv4.conf.all.arp_announce: 0 -> 2`)
	expect(t, "conn_reuse_mode", ns.Must(t, "", "sysctl", "-n", "net.ipv4.vs.conn_reuse_mode"), "1")
}

// TestDaemonsOfKernel: ipvsadm lists the daemons, and a daemon that it has started stays.
func TestDaemonsOfKernel(t *testing.T) {
	ns, other := newNamespace(t), newNamespace(t)
	must(t, netns.Connect(ns.Namespace, "eth1", other.Namespace, "eth1"))
	must(t, ns.AddAddress("eth1", netip.MustParsePrefix("10.0.0.1/24")))
	sync, err := wire.ParseDaemons("master,backup,device=eth1,id=7,group=224.0.0.99,port=8900")
	must(t, err)
	e := openIn(t, ns)
	e.options.Sync = sync
	_, err = e.SetDaemons()
	must(t, err)
	listed := ns.Must(t, "", "ipvsadm", "-L", "--daemon")
	for _, want := range []string{"master sync daemon (mcast=eth1, syncid=7, maxlen=1399, group=224.0.0.99, port=8900",
		"backup sync daemon (mcast=eth1, syncid=7, maxlen=1999, group=224.0.0.99, port=8900"} {
		if !strings.Contains(listed, want) {
			t.Errorf("ipvsadm lists no %q:\n%s", want, listed)
		}
	}
	expectIntact(t, e, true)
	ns.Must(t, "", "ipvsadm", "--stop-daemon", "backup")
	expectIntact(t, e, false)
	expectIntact(t, e, true)
	ns.Must(t, "", "ipvsadm", "--stop-daemon", "backup")
	ns.Must(t, "", "ipvsadm", "--start-daemon", "backup", "--mcast-interface", "eth1")
	_, err = e.SetDaemons()
	if err == nil || !strings.Contains(err.Error(), "another tool runs the backup") {
		t.Errorf("beside another tool: %v", err)
	}
	_, err = Cleanup(Options{NetNS: ns.Fd()})
	must(t, err)
	if listed := ns.Must(t, "", "ipvsadm", "-L", "--daemon"); strings.Contains(listed, "master") || !strings.Contains(listed, "backup") {
		t.Errorf("after the cleanup, ipvsadm lists\n%s", listed)
	}
}
