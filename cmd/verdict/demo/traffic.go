package demo

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// answerWithin limits the time of one connection. All of it happens inside one machine, which may have other work.
const answerWithin = 20 * time.Second

// serve answers connections to a port of the host with the name of the host. The first connection to each address is
// reported to visited.
func (h *host) serve(port uint16, visited *sync.WaitGroup) error {
	for _, a := range h.addresses {
		err := h.run(func() error {
			l, err := net.Listen("tcp", netip.AddrPortFrom(a, port).String())
			if err != nil {
				return fmt.Errorf("listen in %s: %w", h.name, err)
			}
			h.listeners = append(h.listeners, l)
			visited.Add(1)
			go h.answer(l, sync.OnceFunc(visited.Done))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// answer accepts connections until the listener is closed.
func (h *host) answer(l net.Listener, visited func()) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		visited()
		// If the write fails, the client reports that the name is incomplete.
		_, _ = io.WriteString(c, h.name)
		_ = c.Close()
	}
}

// exit ends the program of a pod. The kernel of the pod refuses connections from now on.
func (h *host) exit() (err error) {
	for _, l := range h.listeners {
		err = errors.Join(err, l.Close())
	}
	return err
}

// tally counts connections by the name of the host that answered.
type tally map[string]int

// ask connects from the host to an address several times, one connection after the other.
func (h *host) ask(to netip.AddrPort, times int) (tally, error) {
	t := tally{}
	return t, h.run(func() error {
		for i := range times {
			name, _, err := connect(to)
			if err != nil {
				return fmt.Errorf("connection %d of %d from %s to %s: %w", i+1, times, h.name, to, err)
			}
			t[name]++
		}
		return nil
	})
}

// connect makes a connection in the namespace of the calling thread. It returns the name of the host that answered, and how
// many packets the client had to send again.
func connect(to netip.AddrPort) (name string, again uint32, err error) {
	c, err := net.DialTimeout("tcp", to.String(), answerWithin)
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
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return "", 0, err
	}
	var infoErr error
	err = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if infoErr = err; err == nil {
			again = info.Total_retrans
		}
	})
	return string(text), again, errors.Join(err, infoErr)
}
