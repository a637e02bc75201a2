//go:build e2e

package flood

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/mdlayher/socket"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/measure"
)

// connect makes a connection from a place, and returns how long it took. Nobody has to accept it: the kernel answers.
func connect(to netip.AddrPort) (time.Duration, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	err = unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())})
	took := time.Since(began)
	// A reset instead of an orderly end: no connection stays in TIME_WAIT.
	return took, errors.Join(err, unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}), unix.Close(fd))
}

// connections makes n connections to shop/calm.
func (b *bed) connections(t testing.TB, n int) (took measure.Sample) {
	t.Helper()
	b.At(t, "y").MustDo(t, func() error {
		for range n {
			d, err := connect(calmFrontend)
			if err != nil {
				return fmt.Errorf("connect to %s: %w", calmFrontend, err)
			}
			took = append(took, d)
		}
		return nil
	})
	return took
}

// stopwatch changes the endpoint of the Service shop/mover, and waits until the kernel says that it has it.
type stopwatch struct {
	server  *server
	sock    *socket.Conn
	changes int
	buf     []byte
}

var moverFrontend = netip.MustParseAddrPort("10.96.0.13:80")

// stuck is how long a change may take at most. A tenant who could make it longer would end the test.
const stuck = 2 * time.Minute

// groupNFTables is NFNLGRP_NFTABLES.
const groupNFTables = 7

func (b *bed) stopwatch(t testing.TB) *stopwatch {
	t.Helper()
	sock, err := socket.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER, "nf_tables", &socket.Config{NetNS: b.Node.Fd()})
	lab.Must(t, err)
	t.Cleanup(func() { sock.Close() })
	err = errors.Join(
		sock.Bind(&unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (groupNFTables - 1)}),
		sock.SetsockoptInt(unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 256<<20), // of a storm, no event may be lost
	)
	lab.Must(t, err)
	s := &stopwatch{server: b.server, sock: sock, buf: make([]byte, 1<<20)}
	b.server.put(service("shop", "mover", moverFrontend, false))
	s.change(t)
	return s
}

// change returns the time from when the API server has the change until the kernel has it.
func (s *stopwatch) change(t testing.TB) time.Duration {
	t.Helper()
	addr := s.address()
	began := time.Now()
	s.server.put(slice("shop", "mover", netip.AddrPortFrom(addr, 8080)))
	s.wait(t, addr)
	return time.Since(began)
}

// catchUp waits until the daemon has read all that the API server has.
func (s *stopwatch) catchUp(t testing.TB) {
	t.Helper()
	s.change(t)
	addr := s.address()
	s.server.put(service("shop", "newcomer", netip.AddrPortFrom(addr, 80), false))
	s.wait(t, addr)
}

// address returns one that was not used before.
func (s *stopwatch) address() netip.Addr {
	s.changes++
	return netip.AddrFrom4([4]byte{172, 31, byte(s.changes >> 8), byte(s.changes)})
}

// wait waits until the kernel says that it has something with an address.
func (s *stopwatch) wait(t testing.TB, addr netip.Addr) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stuck)
	defer cancel()
	for {
		n, _, err := s.sock.Recvfrom(ctx, s.buf, 0)
		if err != nil {
			t.Fatalf("change %d does not arrive in the kernel: %v", s.changes, err)
		}
		if bytes.Contains(s.buf[:n], addr.AsSlice()) {
			return
		}
	}
}
