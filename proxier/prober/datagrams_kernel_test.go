//go:build !nokernel

package prober

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// datagrams serves DNS over UDP. If this process stood still, so that an answer leaves when the asker no longer looks for
// its flow, that flow is excused.
func (l *lab) datagrams(t testing.TB, f state.Family, answer func(query []byte) []byte) netip.AddrPort {
	t.Helper()
	var at netip.AddrPort
	l.pod.MustDo(t, func() error {
		conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(podAddresses[f], 0)))
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = conn.Close() })
		at = conn.LocalAddr().(*net.UDPAddr).AddrPort()
		raw, err := conn.SyscallConn()
		if err != nil {
			return err
		}
		controlled := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) })
		if err != nil || controlled != nil {
			t.Fatal(err, controlled)
		}
		go func() {
			for buf, control := make([]byte, 1232), make([]byte, 64); ; {
				n, _, _, from, err := conn.ReadMsgUDPAddrPort(buf, control)
				if err != nil {
					return // closed
				}
				query, came := bytes.Clone(buf[:n]), arrival(control)
				go func() {
					_, _ = conn.WriteToUDPAddrPort(answer(query), from) // a lost answer shows
					if time.Since(came) >= late {
						l.excused.Add(1)
					}
				}()
			}
		}()
		return nil
	})
	return at
}

// arrival is when the kernel got a datagram: the only control message that the socket asks for.
func arrival(control []byte) time.Time {
	at := (*unix.Timespec)(unsafe.Pointer(&control[unix.CmsgSpace(0)]))
	return time.Unix(at.Unix())
}

// otherID makes an answer to another question.
func otherID(query []byte) []byte {
	a := answerDNS(query)
	a[0]++
	return a
}

func lateDNS(query []byte) []byte {
	time.Sleep(300 * time.Millisecond)
	return answerDNS(query)
}
