package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// answerWithin limits the time of one connection. All of it happens inside one machine, which may have other work.
const answerWithin = 20 * time.Second

// serve answers connections to a port of the host with the name of the host, until the process ends.
func (h *host) serve(port uint16) error {
	for _, a := range h.addresses {
		var l net.Listener
		err := h.run(func() (err error) {
			l, err = net.Listen("tcp", netip.AddrPortFrom(a, port).String())
			return err
		})
		if err != nil {
			return fmt.Errorf("listen in %s: %w", h.name, err)
		}
		h.listeners = append(h.listeners, l)
		go h.answer(l, a)
	}
	return nil
}

// answer accepts connections to an address until the listener is closed.
func (h *host) answer(l net.Listener, at netip.Addr) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		h.visited.Store(at, true)
		// If the write fails, the client reports that the name is incomplete.
		_, _ = io.WriteString(c, h.name)
		_ = c.Close()
	}
}

// untilVisited waits until somebody has connected to an address of the host.
func (h *host) untilVisited(ctx context.Context, at netip.Addr) error {
	for {
		if _, visited := h.visited.Load(at); visited {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// tally counts connections by the name of the host that answered.
type tally map[string]int

// ask connects from the host to an address several times, one connection after the other.
func (h *host) ask(ctx context.Context, to netip.AddrPort, times int) (tally, error) {
	t := tally{}
	err := h.run(func() error {
		for i := range times {
			name, err := askOnce(ctx, to)
			if err != nil {
				return fmt.Errorf("connection %d of %d from %s to %s: %w", i+1, times, h.name, to, err)
			}
			t[name]++
		}
		return nil
	})
	return t, err
}

// askOnce opens the socket in the namespace of the calling thread.
func askOnce(ctx context.Context, to netip.AddrPort) (string, error) {
	name, _, err := askAndCount(ctx, to)
	return name, err
}

// askAndCount also returns how many packets the client had to send again.
func askAndCount(ctx context.Context, to netip.AddrPort) (name string, again int, err error) {
	dialer := net.Dialer{Timeout: answerWithin}
	c, err := dialer.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return "", 0, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(answerWithin)); err != nil {
		return "", 0, err
	}
	text, err := io.ReadAll(c)
	if err != nil {
		return "", 0, err
	}
	again, err = repeated(c)
	return string(text), again, err
}

// repeated is how many packets of a connection the client has sent again.
func repeated(c net.Conn) (n int, err error) {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var info *unix.TCPInfo
	var infoErr error
	err = raw.Control(func(fd uintptr) { info, infoErr = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	if err := errors.Join(err, infoErr); err != nil {
		return 0, fmt.Errorf("ask how many packets were sent again: %w", err)
	}
	return int(info.Total_retrans), nil
}
