package demo

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"
)

// answerWithin limits the time of one connection. All of it happens inside one machine.
const answerWithin = 5 * time.Second

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
		go answer(l, h.name)
	}
	return nil
}

// answer accepts connections until the listener is closed.
func answer(l net.Listener, name string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		// If the write fails, the client reports that the name is incomplete.
		_, _ = io.WriteString(c, name)
		_ = c.Close()
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
	dialer := net.Dialer{Timeout: answerWithin}
	c, err := dialer.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(answerWithin)); err != nil {
		return "", err
	}
	name, err := io.ReadAll(c)
	return string(name), err
}
