package main

import (
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"slices"
	"time"
)

// answerWithin limits the time of one connection. All of it happens inside one machine, which may have other work.
const answerWithin = 20 * time.Second

// serve answers connections to a port of the host with the name of the host.
func (h *host) serve(port uint16) error {
	return h.run(func() error {
		for _, a := range h.addresses {
			l, err := net.Listen("tcp", netip.AddrPortFrom(a, port).String())
			if err != nil {
				return fmt.Errorf("listen in %s: %w", h.name, err)
			}
			go h.answer(l)
		}
		return nil
	})
}

func (h *host) answer(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		// If the write fails, the client reports that the name is incomplete.
		_, _ = io.WriteString(c, h.name)
		_ = c.Close()
	}
}

// ask connects from the host to an address several times, one connection after the other. It counts the answers of each host.
func (h *host) ask(to netip.AddrPort, times int) (hits map[string]int, err error) {
	hits = map[string]int{}
	return hits, h.run(func() error {
		for i := range times {
			c, err := net.DialTimeout("tcp", to.String(), answerWithin)
			var name []byte
			if err == nil {
				_ = c.SetDeadline(time.Now().Add(answerWithin)) // the connection is open
				name, err = io.ReadAll(c)
				_ = c.Close()
			}
			if err != nil {
				return fmt.Errorf("connection %d of %d from %s to %s: %w", i+1, times, h.name, to, err)
			}
			hits[string(name)]++
		}
		return nil
	})
}

// uneven is how many standard deviations the part of a pod may differ from its share. With a fair pick, more than that
// happens less than once in a billion times, so the demo does not fail by chance. A pod that gets twice its share is found.
const uneven = 6.5

// judge returns an error if connections to an address are not spread evenly over some pods, or reached another one.
func judge(to string, hits map[string]int, pods []string) error {
	total := 0
	for name, n := range hits {
		if !slices.Contains(pods, name) {
			return fmt.Errorf("%d connections to %s went to %q, which is none of the endpoints %v", n, to, name, pods)
		}
		total += n
	}
	share := 1 / float64(len(pods))
	expected, deviation := float64(total)*share, math.Sqrt(float64(total)*share*(1-share))
	for _, name := range pods {
		if math.Abs(float64(hits[name])-expected) > uneven*deviation {
			return fmt.Errorf("connections to %s are not spread evenly over %v: %v", to, pods, hits)
		}
	}
	return nil
}
