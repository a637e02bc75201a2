//go:build !nokernel

package main

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/netns"
)

// TestNodeIsNotLockedOut: programs at an address of the node can be reached although a manifest says that the address is a
// cluster IP, or that it is in the range of cluster IPs. The address may come before or after the daemon.
func TestNodeIsNotLockedOut(t *testing.T) {
	const early, late, ranged = "192.0.2.1", "192.0.2.2", "10.96.7.7"
	ns, dir := netns.New(t), t.TempDir()
	for _, a := range []string{early, ranged} {
		if err := ns.AddAddress("lo", netip.MustParsePrefix(a+"/32")); err != nil {
			t.Fatal(err)
		}
	}
	ports := map[string]string{}
	ns.MustDo(t, func() error {
		l, err := net.Listen("tcp4", "0.0.0.0:0")
		if err != nil {
			return err
		}
		t.Cleanup(func() { l.Close() })
		for _, a := range []string{early, late, ranged} {
			_, port, _ := net.SplitHostPort(l.Addr().String())
			ports[a] = port
		}
		return nil
	})
	reaches := func(a string) error {
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
		defer stop()
		c, err := ns.DialContext(ctx, "tcp", net.JoinHostPort(a, ports[a]))
		if err == nil {
			c.Close()
		}
		return err
	}
	writeManifest(t, dir, "early.yaml", diffService("early", early, "", ""))
	writeManifest(t, dir, "late.yaml", diffService("late", late, "", ""))
	writeManifest(t, dir, "range.yaml", "apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: kubernetes}\nspec: {cidrs: [10.96.0.0/16]}\n")
	d := runDaemon(t, ns, dir)
	for _, a := range []string{early, ranged} {
		if err := reaches(a); err != nil {
			t.Errorf("a program at %s: %v\n%s", a, err, d.log)
		}
	}
	if err := ns.AddAddress("lo", netip.MustParsePrefix(late+"/32")); err != nil {
		t.Fatal(err)
	}
	d.wait(t, late+" is an address of this node")
	err := reaches(late)
	for end := time.Now().Add(3 * time.Minute); err != nil && time.Now().Before(end); err = reaches(late) {
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		t.Errorf("a program at %s: %v\n%s", late, err, d.log)
	}
	if !strings.Contains(d.log.String(), early+" is an address of this node") {
		t.Errorf("nothing is said about %s:\n%s", early, d.log)
	}
}
