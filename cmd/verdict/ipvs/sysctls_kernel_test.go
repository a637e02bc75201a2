//go:build !nokernel

package ipvs

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/verdict-proxy/verdict/cmd/verdict/nodesetup"
	"github.com/verdict-proxy/verdict/e2e/netns"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft/kernel"
)

// TestSysctlsGoBack: settings for IPVS get their former values back, also after two starts, and except for those that
// somebody else has changed meanwhile. The kernel of the test need not have IPVS: the settings are those of ARP.
func TestSysctlsGoBack(t *testing.T) {
	const ignore, announce, forward = "net.ipv4.conf.all.arp_ignore", "net.ipv4.conf.all.arp_announce", "net.ipv4.ip_forward"
	ns := netns.New(t)
	log := slog.New(slog.DiscardHandler)
	expect := func(when string, want map[string]string) {
		t.Helper()
		for name, value := range want {
			if got, err := nodesetup.ReadSysctl(name); err != nil || got != value {
				t.Errorf("%s: %s is %q, %v; want %s", when, name, got, err, value)
			}
		}
	}
	ns.MustDo(t, func() error {
		if err := ns.Sysctl(ignore+"=2", announce+"=0", forward+"=0"); err != nil {
			return err
		}
		list := slices.Concat(ipvsctl.Sysctls(true)[3:], []ipvsctl.Sysctl{forwarding})
		for _, when := range []string{"the first start", "the second start"} {
			if err := recordSysctls(list); err != nil {
				return err
			}
			if _, err := ipvsctl.SetSysctls(ipvsctl.ProcSys, list); err != nil {
				return err
			}
			expect(when, map[string]string{ignore: "1", announce: "2", forward: "1"})
		}
		if err := ns.Sysctl(announce + "=1"); err != nil { // by somebody else
			return err
		}
		if err := RestoreSysctls(false, log); err != nil {
			return err
		}
		expect("the cleanup", map[string]string{ignore: "2", announce: "1", forward: "0"})
		record, err := kernel.ReadRecord(kernel.Options{})
		if record != "" {
			t.Errorf("the record stays: %s", record)
		}
		return err
	})
}

// TestSysctlsOfASuccessor: a kube-proxy in the mode ipvs needs the same settings, so they stay, and the record goes.
func TestSysctlsOfASuccessor(t *testing.T) {
	ns := netns.New(t)
	ns.MustDo(t, func() error {
		if err := ns.Sysctl("net.ipv4.ip_forward=0"); err != nil {
			return err
		}
		list := []ipvsctl.Sysctl{forwarding}
		if err := recordSysctls(list); err != nil {
			return err
		}
		if _, err := ipvsctl.SetSysctls(ipvsctl.ProcSys, list); err != nil {
			return err
		}
		if err := RestoreSysctls(true, slog.New(slog.DiscardHandler)); err != nil {
			return err
		}
		record, err := kernel.ReadRecord(kernel.Options{})
		if value, _ := nodesetup.ReadSysctl(forwarding.Name); value != "1" || record != "" {
			t.Errorf("ip_forward is %s, the record %q", value, record)
		}
		return err
	})
}
