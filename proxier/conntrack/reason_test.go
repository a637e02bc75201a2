//go:build !nokernel

package conntrack

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReasonWithoutTheCapability cleans on a thread that gave up NET_ADMIN.
func TestReasonWithoutTheCapability(t *testing.T) {
	n := newNamespace(t)
	s := stale(service("10.96.0.10:53>10.0.0.1:53"), service())
	var cleanErr error
	n.MustDo(t, func() error {
		if err := dropNetAdmin(); err != nil {
			return err
		}
		c, err := Open(Options{})
		if err != nil {
			return err
		}
		defer c.Close()
		_, cleanErr = c.Clean(s, nil)
		return nil
	})
	if cleanErr == nil || !strings.Contains(Reason(cleanErr), "NET_ADMIN") {
		t.Errorf("error %v: the reason does not name the capability", cleanErr)
	}
}

// dropNetAdmin takes the capability from the present thread only.
func dropNetAdmin() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	data[0].Effective &^= 1 << unix.CAP_NET_ADMIN
	return unix.Capset(&header, &data[0])
}

// TestReasonWithoutTheModule asks the kernel for a subsystem that no kernel has: it answers as it does when
// nf_conntrack_netlink is missing.
func TestReasonWithoutTheModule(t *testing.T) {
	const noSubsystem = 0xf0 << 8
	k := newNamespace(t).cleaner(t).table.(*kernel)
	err := k.read(func(r *request) { r.End(r.Begin(noSubsystem, unix.NLM_F_DUMP, unix.AF_INET, 0)) }, false, func() {}, func(*entry) {})
	if err == nil || !strings.Contains(Reason(err), "nf_conntrack_netlink") {
		t.Errorf("error %v: the reason does not name the module", err)
	}
}
