//go:build e2e

package flood

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/nft/nlmsg"
)

// forger sends first packets of connections with forged sources: SYNs, or UDP packets.
type forger struct {
	fd       int
	protocol lab.Protocol
	to       netip.AddrPort
	sent     uint32
	packet   [40]byte
}

// newForger sends from the namespace of the calling thread.
func newForger(protocol lab.Protocol, to netip.AddrPort) (*forger, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return nil, fmt.Errorf("open a socket for forged packets: %w", err)
	}
	return &forger{fd: fd, protocol: protocol, to: to}, nil
}

// send sends a packet from a source that it has not used before.
func (f *forger) send() error {
	f.sent++
	p, size := f.packet[:], 20+8
	source := uint32(11)<<24 | f.sent*2654435761>>8 // spread over 11.0.0.0/8
	p[0], p[8], p[9] = 0x45, 64, byte(f.protocol)
	binary.BigEndian.PutUint32(p[12:], source)
	copy(p[16:], f.to.Addr().AsSlice())
	body := p[20:]
	binary.BigEndian.PutUint16(body, uint16(1024+f.sent%60_000))
	binary.BigEndian.PutUint16(body[2:], f.to.Port())
	if f.protocol == lab.TCP {
		size = 40
		binary.BigEndian.PutUint32(body[4:], f.sent)
		body[12], body[13] = 5<<4, 2 // SYN
		binary.BigEndian.PutUint16(body[14:], 0xffff)
		binary.BigEndian.PutUint16(body[16:], 0)
		binary.BigEndian.PutUint16(body[16:], checksum(p))
	} else {
		binary.BigEndian.PutUint16(body[4:], 8) // the length; without a checksum
	}
	err := unix.Sendto(f.fd, p[:size], 0, &unix.SockaddrInet4{Addr: f.to.Addr().As4()})
	if errors.Is(err, unix.ENOBUFS) {
		return nil // as if the packet had been lost on its way
	}
	return err
}

// checksum is that of a TCP segment without data.
func checksum(packet []byte) uint16 {
	sum := uint32(unix.IPPROTO_TCP + 20)
	for i := 12; i < 40; i += 2 { // both addresses and the segment
		sum += uint32(binary.BigEndian.Uint16(packet[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// burst sends n packets from a place.
func (b *bed) burst(t testing.TB, place string, protocol lab.Protocol, to netip.AddrPort, n int) {
	t.Helper()
	b.At(t, place).MustDo(t, func() error {
		f, err := newForger(protocol, to)
		if err != nil {
			return err
		}
		for range n {
			err = errors.Join(err, f.send())
		}
		return errors.Join(err, unix.Close(f.fd))
	})
}

// flood sends packets as fast as one core can, until stop is called, which returns how many there were.
func (b *bed) flood(t testing.TB, place string, protocol lab.Protocol, to netip.AddrPort) (stop func() int) {
	t.Helper()
	at, ended, sent := b.At(t, place), make(chan struct{}), 0
	var running sync.WaitGroup
	running.Go(func() {
		err := at.Do(func() error {
			f, err := newForger(protocol, to)
			for err == nil {
				select {
				case <-ended:
					sent = int(f.sent)
					return unix.Close(f.fd)
				default:
					err = f.send()
				}
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
	return func() int {
		close(ended)
		running.Wait()
		return sent
	}
}

// tracked reads how many connections a namespace tracks, or may track.
func (b *bed) tracked(t testing.TB, what string) (n int) {
	t.Helper()
	b.Node.MustDo(t, func() error {
		text, err := os.ReadFile(filepath.Join("/proc/sys/net/netfilter", "nf_conntrack_"+what))
		if err == nil {
			n, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return err
	})
	return n
}

// The numbers of linux/netfilter/nfnetlink_conntrack.h.
const (
	trackNew     = unix.NFNL_SUBSYS_CTNETLINK << 8
	trackOrig    = 1
	trackReply   = 2
	trackStatus  = 3
	trackTimeout = 7

	statusSeenReply, statusAssured, statusConfirmed = 1 << 1, 1 << 2, 1 << 3
)

// The flows of fillTable.
const (
	halfOpen = statusConfirmed // flows without an answer, as forged packets leave them: the kernel drops some for new ones
	assured  = statusConfirmed | statusSeenReply | statusAssured
)

// fillTable fills the table of connections with flows. The limit is that of the machine, but each namespace has a count
// of its own.
func (b *bed) fillTable(t testing.TB, status uint32) {
	t.Helper()
	b.Node.MustDo(t, func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for i := 0; ; {
			var w nlmsg.Writer
			for range 100 {
				i++
				flow(&w, uint32(i), status)
			}
			if err := unix.Sendto(fd, w.Buf, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
				return fmt.Errorf("add flow %d: %w", i, err)
			}
			if full, err := refusedFlow(fd); full || err != nil {
				return err
			}
		}
	})
}

// flow writes a request for a UDP flow that lasts for an hour. Only the last of a hundred is acknowledged.
func flow(w *nlmsg.Writer, i, status uint32) {
	flags := uint16(unix.NLM_F_CREATE)
	if i%100 == 0 {
		flags |= unix.NLM_F_ACK
	}
	client := netip.AddrFrom4([4]byte{12, byte(i >> 16), byte(i >> 8), byte(i)})
	server := netip.MustParseAddr("198.51.100.77")
	m := w.Begin(trackNew, flags, unix.AF_INET, 0)
	for direction, ends := range [][2]netip.Addr{{client, server}, {server, client}} {
		tuple := w.Nest(uint16(trackOrig + direction))
		ip := w.Nest(1)
		w.Bytes(1, ends[0].AsSlice())
		w.Bytes(2, ends[1].AsSlice())
		w.Unnest(ip)
		proto := w.Nest(2)
		w.Uint8(1, unix.IPPROTO_UDP)
		w.Uint16(2, 53)
		w.Uint16(3, 53)
		w.Unnest(proto)
		w.Unnest(tuple)
	}
	w.Uint32(trackStatus, status)
	w.Uint32(trackTimeout, 3600)
	w.End(m)
}

// refusedFlow reads the answers up to the next acknowledgment, and reports whether the kernel had no room.
func refusedFlow(fd int) (full bool, err error) {
	buf := make([]byte, 1<<16)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return false, fmt.Errorf("read the answer of connection tracking: %w", err)
		}
		for m := nlmsg.NewMessages(buf[:n]); m.Next(); {
			switch errno := unix.Errno(-int32(binary.NativeEndian.Uint32(m.Body))); errno {
			case 0:
				return false, nil
			case unix.ENOMEM:
				return true, nil
			default:
				return false, fmt.Errorf("add a flow: %w", errno)
			}
		}
	}
}
