//go:build !nokernel

package nft

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/mdlayher/socket"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/netns"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/nft/program"
)

// lose makes an engine lose its socket.
func lose(t *testing.T, e *Engine) {
	t.Helper()
	raw, err := e.conn.(*kernel.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { netns.Lose(t, int(fd)) }); err != nil {
		t.Fatal(err)
	}
}

// TestLostSocket: an engine that lost its socket opens another one, and writes what failed. Its watcher hears nothing of the
// engine's commits.
func TestLostSocket(t *testing.T) {
	n := newNamespace(t)
	e := n.engine(t)
	w, err := e.Watch()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	mustSet(t, e, manyPorts(program.IPv4, 0, 100)...)
	mustApply(t, e)
	for round := range 3 {
		lose(t, e)
		mustSet(t, e, manyPorts(program.IPv4, 100+round, 1)...)
		if r, err := e.Apply(); r.Outcome != kernel.Rejected || !nlmsg.Lost(err) {
			t.Fatalf("without a socket: outcome %s, error %v", r.Outcome, err)
		}
		if r := mustApply(t, e); r.Added > 10 {
			t.Errorf("the engine wrote %d elements; want what differs", r.Added)
		}
	}
	checkLedger(t, n, e)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if i, err := w.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the watcher heard of %s, error %v; want nothing", &i, err)
	}
}

// TestLostSocketOfOwner: tables whose owner lost its socket have that owner again after the next transaction, if the loss
// made one fail, or after the next look at them.
func TestLostSocketOfOwner(t *testing.T) {
	n := newNamespace(t)
	e := ownerEngine(t, n)
	mustApply(t, e)
	lose(t, e)
	mustSet(t, e, manyPorts(program.IPv4, 0, 1)...)
	if _, err := e.Apply(); !nlmsg.Lost(err) {
		t.Fatalf("without a socket: error %v", err)
	}
	mustApply(t, e)
	checkOwned(t, e, true)

	lose(t, e)
	if _, err := e.FindInterference(); !nlmsg.Lost(err) {
		t.Fatalf("without a socket: error %v", err)
	}
	mustSet(t, e, manyPorts(program.IPv4, 1, 1)...)
	mustApply(t, e)
	i, err := e.FindInterference()
	if err != nil || !i.Structure {
		t.Fatalf("tables without an owner: %s, error %v", &i, err)
	}
	if _, err := e.Repair(i); err != nil {
		t.Fatal(err)
	}
	checkOwned(t, e, true)
}

// TestManyLosses: nothing else gets the address of a socket while it is lost.
func TestManyLosses(t *testing.T) {
	n := newNamespace(t)
	e := n.engine(t)
	mustApply(t, e)
	for range 3 {
		lose(t, e)
		if _, err := e.FindInterference(); !nlmsg.Lost(err) {
			t.Fatalf("without a socket: error %v", err)
		}
		sock, err := socket.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER, "other", &socket.Config{NetNS: n.Fd()})
		if err != nil {
			t.Fatal(err)
		}
		defer sock.Close()
		if err := sock.Bind(&unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			t.Fatal(err)
		}
		if _, err := e.FindInterference(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLostSocketOfReader: what reads the tables goes on as well.
func TestLostSocketOfReader(t *testing.T) {
	n := newNamespace(t)
	e := n.engine(t)
	mustSet(t, e, manyPorts(program.IPv4, 0, 3)...)
	mustApply(t, e)
	lose(t, e)
	if _, err := e.Repair(kernel.Interference{Lost: true}); !nlmsg.Lost(err) {
		t.Fatalf("error %v, want that the socket is lost", err)
	}
	n.nft(t, "flush map ip verdict services")
	if _, err := e.Repair(kernel.Interference{Lost: true}); err != nil {
		t.Fatal(err)
	}
	checkLedger(t, n, e)
}
