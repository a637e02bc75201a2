//go:build !nokernel

package lab

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/netns"
)

// TestRetransmits: a packet that is lost counts, and one that comes so late that it is sent again does not.
func TestRetransmits(t *testing.T) {
	for name, lost := range map[string]bool{"lost": true, "late": false} {
		t.Run(name, func(t *testing.T) {
			client, server := wire(t, "192.0.2.1/24"), wire(t, "192.0.2.2/24")
			go carry(client.tun, server.tun, lost)
			go carry(server.tun, client.tun, false)
			to := netip.MustParseAddrPort("192.0.2.2:80")
			server.MustDo(t, func() error {
				l, err := net.Listen("tcp", to.String())
				if err == nil {
					t.Cleanup(func() { _ = l.Close() })
					go Accept(l, "server", to.Port())
				}
				return err
			})
			f, _ := client.Hold(t, Question{Protocol: TCP, To: to, Patience: patience})
			for range 2 { // the second answer comes after what the server said to the first question
				if r := f.Send(patience); r.Outcome != Answered {
					t.Fatalf("a question is %s %v", r, r.Err)
				}
			}
			if n, err := f.Retransmits(); err != nil || n != map[string]int{"lost": 1}[name] {
				t.Errorf("%d packets were sent again because they were lost, %v", n, err)
			}
		})
	}
	if _, err := QueueDrops(); err != nil {
		t.Error(err)
	}
}

// end is a namespace at the end of a wire that the test carries packets over.
type end struct {
	*Namespace
	tun *os.File
}

func wire(t *testing.T, address string) end {
	e := end{Namespace: &Namespace{netns.New(t)}}
	var err error
	if e.tun, err = e.TUN("wire"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.tun.Close() })
	Must(t, errors.Join(e.SetUp("wire"), e.AddAddress("wire", netip.MustParsePrefix(address))))
	return e
}

// carry carries packets from one end to the other. The first one with data waits until it is sent again, and then arrives before its
// repetition, or is lost.
func carry(from, to *os.File, lost bool) {
	var first []byte
	questions := 0
	for buf := make([]byte, 1<<16); ; {
		n, err := from.Read(buf)
		if err != nil {
			return // closed
		}
		if packet := buf[:n]; hasData(packet) {
			if questions++; questions == 1 {
				first = slices.Clone(packet)
				continue
			}
			if questions == 2 && !lost {
				_, _ = to.Write(first) // who misses it says so
			}
		}
		_, _ = to.Write(buf[:n])
	}
}

// hasData reports whether a packet is one of TCP in IPv4, with data.
func hasData(p []byte) bool {
	if len(p) < 40 || p[0]>>4 != 4 || p[9] != byte(TCP) {
		return false
	}
	header := int(p[0]&15) * 4
	return int(binary.BigEndian.Uint16(p[2:])) > header+int(p[header+12]>>4)*4
}
