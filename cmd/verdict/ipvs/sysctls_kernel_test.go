//go:build !nokernel

package ipvs

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/cmd/verdict/nodesetup"
	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/e2e/netns"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
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
		list := slices.Concat(ipvsctl.Sysctls(true)[3:], []ipvsctl.Sysctl{forwarding(program.IPv4)})
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

// TestLiberal: without the flag, the sysctl gets its former value back if Verdict has set it, and stays as an administrator has set it.
func TestLiberal(t *testing.T) {
	ns := netns.New(t)
	expect := func(when, want string) {
		t.Helper()
		if got, err := nodesetup.ReadSysctl(liberal().Name); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", when, got, err, want)
		}
	}
	var lines strings.Builder
	log := slog.New(slog.NewTextHandler(&lines, nil))
	ns.MustDo(t, func() error {
		expect("before", "0")
		for range 2 {
			SetLiberal(true, log)
			expect("with the flag", "1")
		}
		SetLiberal(false, log)
		expect("without the flag", "0")
		record, err := kernel.ReadRecord(kernel.Options{})
		if record != "" || err != nil {
			t.Errorf("the record stays: %s, %v", record, err)
		}
		if err := ns.Sysctl(liberal().Name + "=1"); err != nil { // by somebody else
			return err
		}
		SetLiberal(false, log)
		expect("of an administrator", "1")
		SetLiberal(true, log)
		err = RestoreSysctls(false, log)
		expect("of an administrator, after a cleanup", "1")
		return err
	})
	if strings.Contains(lines.String(), "WARN") {
		t.Errorf("warnings:\n%s", lines.String())
	}
}

// TestForwarding: a fresh host forwards packets of both families when the daemon or --init-only has run, whether or not IPVS can be
// used, and keeps its routes from router advertisements. A cleanup gives both sysctls their former values back.
func TestForwarding(t *testing.T) {
	ns := netns.New(t)
	const advertised = "net.ipv6.conf.lo.accept_ra"
	expect := func(when string, want bool, accepts string) {
		t.Helper()
		for _, f := range program.Families() {
			if sysctl, is := Forwards(f); is != want {
				t.Errorf("%s: %s says that it forwards: %t, want %t", when, sysctl, is, want)
			}
		}
		if got, err := nodesetup.ReadSysctl(advertised); err != nil || got != accepts {
			t.Errorf("%s: %s is %s, %v; want %s", when, advertised, got, err, accepts)
		}
	}
	ns.MustDo(t, func() error {
		err := ns.Sysctl("net.ipv4.ip_forward=0", "net.ipv6.conf.all.forwarding=0", advertised+"=1")
		if err != nil {
			return err
		}
		expect("a fresh host", false, "1")
		s := config.Default()
		s.Backend = config.BackendNFT
		var log strings.Builder
		for range 2 {
			if _, _, err := Open(&s, slog.New(slog.NewTextHandler(&log, nil))); err != nil {
				return err
			}
			expect("after a start", true, "2")
		}
		if n := strings.Count(log.String(), "kernel setting changed"); n != 2 || strings.Contains(log.String(), "WARN") {
			t.Errorf("the log has %d changes, want 2:\n%s", n, log.String())
		}
		err = RestoreSysctls(false, slog.New(slog.DiscardHandler))
		expect("after a cleanup", false, "2")
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
		list := []ipvsctl.Sysctl{forwarding(program.IPv4)}
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
		if value, _ := nodesetup.ReadSysctl(forwarding(program.IPv4).Name); value != "1" || record != "" {
			t.Errorf("ip_forward is %s, the record %q", value, record)
		}
		return err
	})
}
