//go:build !nokernel

package conntrack

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/sourcetest"
)

// TestForgetter forgets flows by their tuples. Flows that differ in one thing stay.
func TestForgetter(t *testing.T) {
	n := newNamespace(t)
	gone := []string{
		"tcp 10.0.0.1:1000 10.0.0.2:80 10.0.0.2:80",
		"udp 10.0.0.1:1000 10.0.0.2:80 10.0.0.2:80",
		"tcp [fd00::1]:1000 [fd00::2]:80 [fd00::2]:80",
	}
	stay := []string{
		"tcp 10.0.0.1:1000 10.0.0.2:81 10.0.0.2:81",
		"tcp 10.0.0.1:1000 10.96.0.1:80 10.0.0.2:80",
		"tcp 10.0.0.1:1001 10.0.0.2:80 10.0.0.2:80",
		"tcp 10.0.0.3:1000 10.0.0.2:80 10.0.0.2:80",
		"udp [fd00::1]:1000 [fd00::2]:80 [fd00::2]:80",
	}
	n.add(t, gone...)
	n.add(t, stay...)
	f := n.forgetter(t)
	for _, ip := range []string{"10.0.0.%d", "fd00::%d"} {
		addr := func(i int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf(ip, i)) }
		f.Forget(Query{Protocol: unix.IPPROTO_TCP, Src: addr(1), SrcPort: 1000, Dst: netip.AddrPortFrom(addr(2), 80)})
	}
	f.Forget(Query{Protocol: unix.IPPROTO_UDP, Src: netip.MustParseAddr("10.0.0.1"), SrcPort: 1000, Dst: netip.MustParseAddrPort("10.0.0.2:80")})
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got := n.flows(t); !slices.Equal(got, stay) {
		t.Errorf("left:\n%q\nwanted:\n%q", got, stay)
	}
}

// TestForgetterAlone: a flow that nobody else follows is forgotten soon, and so is the next one.
func TestForgetterAlone(t *testing.T) {
	n := newNamespace(t)
	f := n.forgetter(t)
	defer f.Close()
	for range 2 {
		n.add(t, "tcp 10.0.0.1:1000 10.0.0.2:80 10.0.0.2:80")
		f.Forget(Query{Protocol: unix.IPPROTO_TCP, Src: netip.MustParseAddr("10.0.0.1"), SrcPort: 1000, Dst: netip.MustParseAddrPort("10.0.0.2:80")})
		sourcetest.Eventually(t, "the flow is gone", func() bool { return len(n.flows(t)) == 0 })
	}
}

// TestForgetterBound: many goroutines cannot make it gather without end. That flows have ended by themselves is no error.
func TestForgetterBound(t *testing.T) {
	f := newNamespace(t).forgetter(t)
	var callers sync.WaitGroup
	for i := range 100 {
		callers.Go(func() {
			for port := range uint16(300) {
				f.Forget(Query{
					Protocol: unix.IPPROTO_TCP, Src: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), SrcPort: port + 1,
					Dst: netip.MustParseAddrPort("10.1.0.1:80"),
				})
				f.mu.Lock()
				if n := len(f.pending); n > maxPending+100 {
					t.Errorf("%d flows wait", n)
				}
				f.mu.Unlock()
			}
		})
	}
	callers.Wait()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func (n *namespace) forgetter(t testing.TB) *Forgetter {
	t.Helper()
	f, err := OpenForgetter(Options{NetNS: n.Fd()}, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	return f
}
