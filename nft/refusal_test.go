//go:build !nokernel

package nft

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// checkRepaired applies again. Then the kernel must have what the engine has in its ledger.
func checkRepaired(t *testing.T, n *namespace, e *Engine) {
	t.Helper()
	if r := mustApply(t, e); !r.Full {
		t.Fatal("the Apply after a failure did not write the whole tables")
	}
	fresh := newNamespace(t)
	fresh.load(t, e.render())
	compareListings(t, "not repaired", n.list(t), fresh.list(t))
}

// TestRefusal changes the engine's tables so that the engine's next transaction clashes.
func TestRefusal(t *testing.T) {
	tests := []struct {
		name string
		nft  string
		do   func(*testing.T, *Engine)
		want string // part of the error
	}{
		{
			name: "element that exists with other data",
			nft:  "add element ip verdict services { 20.0.0.176 . tcp . 80 : 0:99 }", // that of ns/svc-176
			do:   func(t *testing.T, e *Engine) { mustSet(t, e, manyPorts(program.IPv4, 0, 250)...) },
			want: `add element ip verdict services { 20.0.0.176 . tcp . 80 comment "ns/svc-176:http" : 0:`,
		},
		{
			name: "element that is gone",
			nft:  "delete element ip6 verdict cluster-ips { fd14::5 }",
			do: func(t *testing.T, e *Engine) {
				for _, p := range manyPorts(program.IPv6, 0, 10) {
					e.Delete(program.IPv6, p.Name)
				}
			},
			want: "delete element ip6 verdict cluster-ips { fd14::5 }: no such file or directory",
		},
		{
			name: "range that overlaps",
			nft:  "add element ip verdict service-cidrs { 10.2.0.0/16 }",
			do: func(_ *testing.T, e *Engine) {
				e.SetGlobals(contents.Globals{ServiceCIDRs: prefixes("10.3.0.0/16", "10.2.128.0/17", "10.4.0.0/16")})
			},
			want: "add element ip verdict service-cidrs { 10.2.128.0 }: file exists",
		},
		{
			name: "chain in use by someone else",
			nft:  "add chain ip verdict other; add rule ip verdict other jump random-1-sticky-1m",
			do: func(t *testing.T, e *Engine) {
				// So many other classes are spare that the class of a single sticky endpoint goes.
				p := contents.Port{Family: program.IPv4, Name: "ns/more:http", Protocol: tcp, Affinity: 2 * time.Minute}
				for slots := range uint16(16 + 1) {
					mustApply(t, e)
					p.Cluster = []contents.Endpoint{{Addr: netip.MustParseAddrPort("10.9.0.1:80"), Slots: slots + 1}}
					mustSet(t, e, p)
				}
			},
			want: "delete chain ip verdict random-1-sticky-1m: device or resource busy",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := newNamespace(t)
			e := n.engine(t)
			sticky := contents.Port{Family: program.IPv4, Name: "ns/sticky:http", Protocol: tcp, Affinity: time.Minute, Cluster: endpoints("10.9.0.1:80")}
			mustSet(t, e, append(manyPorts(program.IPv6, 0, 10), sticky)...)
			mustApply(t, e)
			e.Delete(program.IPv4, sticky.Name)
			mustApply(t, e)
			n.nft(t, test.nft)
			before := n.list(t)

			test.do(t, e)
			r, err := e.Apply()
			if err == nil || r.Outcome != kernel.Rejected || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("outcome %s, error %v; wanted rejected, %s", r.Outcome, err, test.want)
			}
			if !strings.Contains(test.name, "chain") {
				compareListings(t, "a rejected transaction changed something", n.list(t), before)
			}
			checkRepaired(t, n, e)
		})
	}
}

// TestOthersRemoveTables has another program delete our tables between two calls of Apply.
func TestOthersRemoveTables(t *testing.T) {
	for _, command := range []string{
		"flush ruleset", "delete table ip verdict", "delete table ip6 verdict",
		"delete table ip verdict; add table ip verdict; add map ip verdict services { type ipv4_addr : verdict; }",
	} {
		t.Run(command, func(t *testing.T) {
			n := newNamespace(t)
			e := n.engine(t)
			mustSet(t, e, append(manyPorts(program.IPv4, 0, 5), manyPorts(program.IPv6, 0, 5)...)...)
			mustApply(t, e)
			if whole, err := e.Intact(); err != nil || !whole {
				t.Fatalf("intact: %t, %v", whole, err)
			}
			n.nft(t, command)
			mustSet(t, e, append(manyPorts(program.IPv4, 5, 1), manyPorts(program.IPv6, 5, 1)...)...)
			if r, err := e.Apply(); err == nil || r.Outcome != kernel.Rejected {
				t.Fatalf("outcome %s, error %v; wanted rejected", r.Outcome, err)
			}
			checkRepaired(t, n, e)
		})
		t.Run(command+", noticed by a look", func(t *testing.T) { checkNoticed(t, command) })
	}
	// Changes that the next transaction would not notice.
	for _, command := range []string{
		"flush table ip verdict", "flush chain ip6 verdict services",
		"add chain ip verdict mine", "add set ip6 verdict mine { type ipv4_addr; }", "add rule ip verdict services accept",
	} {
		t.Run(command, func(t *testing.T) { checkNoticed(t, command) })
	}
}

// checkNoticed changes our tables behind the engine's back. Intact must notice it.
func checkNoticed(t *testing.T, command string) {
	t.Helper()
	n := newNamespace(t)
	e := n.engine(t)
	mustSet(t, e, manyPorts(program.IPv4, 0, 5)...)
	mustApply(t, e)
	n.nft(t, command)
	if whole, err := e.Intact(); err != nil || whole {
		t.Fatalf("intact: %t, %v", whole, err)
	}
	checkRepaired(t, n, e)
}

// setBuffer changes the size of a buffer behind the back of its connection. Only root may exceed the limit of the system.
func setBuffer(t *testing.T, c *kernel.Conn, option, forced, size int) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failure error
	err = raw.Control(func(fd uintptr) {
		if failure = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, forced, size); errors.Is(failure, unix.EPERM) {
			failure = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, option, size)
		}
	})
	if err := errors.Join(err, failure); err != nil {
		t.Fatal(err)
	}
}

// TestSmallBuffers has socket buffers that are too small for the kernel's answers, or for the engine's batch.
func TestSmallBuffers(t *testing.T) {
	n := newNamespace(t)
	e := n.engine(t)
	mustSet(t, e, manyPorts(program.IPv4, 0, 50)...)
	mustApply(t, e)
	c := e.conn.(*kernel.Conn)

	t.Run("answers", func(t *testing.T) {
		setBuffer(t, c, unix.SO_RCVBUF, unix.SO_RCVBUFFORCE, 1)
		mustSet(t, e, manyPorts(program.IPv4, 50, 50)...)
		mustApply(t, e) // one answer always fits
		n.nft(t, "flush map ip verdict services; flush map ip verdict endpoints; flush map ip verdict pools; flush set ip verdict cluster-ips")
		for _, p := range manyPorts(program.IPv4, 0, 100) {
			e.Delete(program.IPv4, p.Name)
		}
		r, err := e.Apply()
		if err == nil || r.Outcome != kernel.Rejected || !errors.Is(err, unix.ENOENT) {
			t.Fatalf("outcome %s, error %v; wanted rejected for a missing element", r.Outcome, err)
		}
		checkRepaired(t, n, e)
	})
	t.Run("batch", func(t *testing.T) {
		setBuffer(t, c, unix.SO_SNDBUF, unix.SO_SNDBUFFORCE, 1<<12)
		mustSet(t, e, manyPorts(program.IPv4, 0, 500)...)
		if r, err := e.Apply(); !errors.Is(err, unix.EMSGSIZE) || r.Outcome != kernel.Rejected {
			t.Fatalf("outcome %s, error %v; wanted rejected, %v", r.Outcome, err, unix.EMSGSIZE)
		}
		setBuffer(t, c, unix.SO_SNDBUF, unix.SO_SNDBUFFORCE, 1<<20)
		checkRepaired(t, n, e)
	})
}
