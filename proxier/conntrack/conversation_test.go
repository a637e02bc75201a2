package conntrack

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"github.com/mdlayher/socket"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestCleanConversation: Clean asks for the flows of a frontend, and deletes those that are stale, by what the kernel said of them.
func TestCleanConversation(t *testing.T) {
	p := newPeer(t, nil)
	p.answer = func(list []netlink.Message) (out [][]byte) {
		if list[0].Header.Type == msgDelete {
			return acks(0)(list)
		}
		for _, a := range answersTo(t, "IPv4") {
			out = append(out, renumber(a, list[0].Header.Sequence))
		}
		return out
	}
	c, err := Open(p.options())
	if err != nil {
		t.Fatal(err)
	}
	results, err := c.Clean(stale(service("10.96.0.10:53>10.0.0.1:5353"), service("10.96.0.10:53>10.0.0.2:5353")), nil)
	if err != nil || len(results) != 1 || results[0].Family != state.IPv4 || results[0].Deleted != 3 || results[0].Took <= 0 {
		t.Errorf("%+v, %v", results, err)
	}
	got := p.taken()
	if len(got) != 4 || got[0] != "101 request|0x300 2 1{ 1{ 2=0a60000a } 2{ 1=11 3=0035 } } 25{ 1="+native(0x2a)+" }" {
		t.Fatalf("asked %q", got)
	}
	slices.Sort(got[1:])
	for i, want := range []string{"2=03eb 3=0035 } } 12=", "2=03ec 3=0035 } } 12=", "2=03ed 3=0035 } } 18=0007 12="} {
		if !strings.HasPrefix(got[i+1], "102 request|acknowledge 2 1{ 1{ 1=0a090001 2=0a60000a } 2{ 1=11 ") || !strings.Contains(got[i+1], want) {
			t.Errorf("deletes %s, want %s", got[i+1], want)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	<-p.gone
}

// TestFormerConversation: an error in one family does not hide the other one's frontends.
func TestFormerConversation(t *testing.T) {
	p := newPeer(t, nil)
	p.answer = func(list []netlink.Message) (out [][]byte) {
		if list[0].Data[0] == unix.AF_INET {
			return acks(unix.ENOMEM)(list)
		}
		for _, a := range answersTo(t, "IPv6") {
			out = append(out, renumber(a, list[0].Header.Sequence))
		}
		return out
	}
	list, err := Former(p.options(), func(Frontend) (bool, error) { return true, nil })
	if !errors.Is(err, unix.ENOMEM) || !slices.Equal(show(list), []string{"fd00:96::10 53 IPv6"}) {
		t.Errorf("%v, %v", list, err)
	}
	_, err = Former(p.options(), func(Frontend) (bool, error) { return true, io.ErrUnexpectedEOF })
	if !errors.Is(err, io.ErrUnexpectedEOF) || !errors.Is(err, unix.ENOMEM) {
		t.Errorf("error %v", err)
	}
}

func TestFormerIn(t *testing.T) {
	at := netip.MustParseAddrPort
	loads := map[Route]Load{
		{unix.IPPROTO_UDP, at("10.96.0.11:53"), at("10.0.0.1:53")}: {}, {unix.IPPROTO_UDP, at("10.96.0.10:54"), at("10.0.0.1:53")}: {},
		{unix.IPPROTO_UDP, at("10.96.0.10:53"), at("10.0.0.1:53")}: {}, {unix.IPPROTO_UDP, at("10.96.0.10:53"), at("10.0.0.2:53")}: {},
		{unix.IPPROTO_TCP, at("10.96.0.9:53"), at("10.0.0.2:53")}: {},
	}
	var asked []Frontend
	list, err := formerIn(state.IPv4, loads, func(f Frontend) (bool, error) { asked = append(asked, f); return f.Port == 53, nil })
	if diff := cmp.Diff([]string{"10.96.0.10 53 IPv4", "10.96.0.10 54 IPv4", "10.96.0.11 53 IPv4"}, show(asked)); diff != "" || err != nil {
		t.Errorf("asked for (- want, + got), %v:\n%s", err, diff)
	}
	if diff := cmp.Diff([]string{"10.96.0.10 53 IPv4", "10.96.0.11 53 IPv4"}, show(list)); diff != "" {
		t.Errorf("(- want, + got):\n%s", diff)
	}
}

// TestReason: an administrator reads what to change.
func TestReason(t *testing.T) {
	for errno, want := range map[error]string{
		unix.EPERM: "capability NET_ADMIN", unix.EINVAL: "module nf_conntrack_netlink", unix.ENOBUFS: "short of memory", unix.ENOMEM: "short of memory",
		io.EOF: "unexpected",
	} {
		if got := Reason(fmt.Errorf("clean: %w", errno)); !strings.Contains(got, want) {
			t.Errorf("%v: %s", errno, got)
		}
	}
}

// TestOpenedMessages: each new translated flow that the kernel tells about counts once for its route, until it is taken.
func TestOpenedMessages(t *testing.T) {
	p := newPeer(t, nil)
	if _, err := WatchOpened(p.options()); err == nil || !strings.Contains(err.Error(), "subscribe to group 1 of conntrack") {
		t.Errorf("a socket that is not the kernel's: %v", err)
	}
	<-p.gone // closed
	k, err := dial(p.options())
	if err != nil {
		t.Fatal(err)
	}
	w := watch(k)
	tell := func() {
		if err := p.end.Sendto(context.Background(), answersTo(t, "IPv4")[0], 0, nil); err != nil {
			t.Fatal(err)
		}
	}
	tell()
	tell()
	want := map[Route]uint64{
		route(6, "10.96.0.10:80", "10.0.0.1:8080"): 4, route(17, "10.96.0.10:53", "10.0.0.1:5353"): 6, route(132, "10.96.0.10:90", "10.0.0.1:90"): 2,
	}
	got := map[Route]uint64{}
	for total := uint64(0); total < 12; {
		count, lost, err := w.Take()
		if lost || err != nil {
			t.Fatalf("lost %t, %v", lost, err)
		}
		for r, n := range count {
			got[r] += n
			total += n
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if count, _, err := w.Take(); err != nil || len(count) != 0 {
		t.Errorf("after the end: %v, %v", count, err)
	}
	if k, err = dial(p.options()); err != nil {
		t.Fatal(err)
	}
	w = watch(k)
	k.Close()
	<-w.done
	if _, _, err := w.Take(); err == nil || !strings.Contains(err.Error(), "receive new flows from conntrack") {
		t.Errorf("without a socket: %v", err)
	}
}

// TestOpenedLost: after the kernel dropped messages, the count says once that it lacks some. A socket for routes plays the one of
// connection tracking, because everybody can have it overflow.
func TestOpenedLost(t *testing.T) {
	k, err := dial(Options{connect: func(int) (*nlmsg.Conn, error) {
		sock, err := socket.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE, "route", nil)
		return nlmsg.NewConn("route", sock), err
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := k.SetsockoptInt(unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil {
		t.Fatal(err)
	}
	ask := binary.NativeEndian.AppendUint32(nil, unix.NLMSG_HDRLEN)
	ask = binary.NativeEndian.AppendUint16(ask, unix.NLMSG_NOOP)
	ask = append(binary.NativeEndian.AppendUint16(ask, unix.NLM_F_REQUEST|unix.NLM_F_ACK), make([]byte, 8)...)
	for range 100 { // more answers than the least buffer holds
		k.Unread = false
		if err := k.Send(ask); err != nil {
			t.Fatal(err)
		}
	}
	w := watch(k)
	defer w.Close()
	lost := false
	for late := time.Now().Add(3 * time.Minute); !lost && time.Now().Before(late); {
		if _, lost, err = w.Take(); err != nil {
			t.Fatal(err)
		}
	}
	if _, again, _ := w.Take(); !lost || again {
		t.Errorf("messages are lost: %t, and lost again: %t", lost, again)
	}
}

// TestForgetterConversation: what is forgotten is deleted by its tuple, soon or when there is much of it. A failure is
// reported once, and its end too.
func TestForgetterConversation(t *testing.T) {
	received := make(chan string, 1000)
	p := newPeer(t, nil)
	var errno unix.Errno
	p.answer = func(list []netlink.Message) [][]byte {
		for _, m := range list {
			received <- decode(t, []netlink.Message{m})
		}
		return acks(errno)(list)
	}
	var reports []error
	f, err := OpenForgetter(p.options(), func(err error) { reports = append(reports, err) })
	if err != nil {
		t.Fatal(err)
	}
	q := query(unix.IPPROTO_TCP, "10.9.0.1:1", "10.0.0.1:80")
	begin := time.Now()
	f.Forget(q)
	if got, want := <-received, "102 request|acknowledge 2 1{ 1{ 1=0a090001 2=0a000001 } 2{ 1=06 2=0001 3=0050 } }"; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
	if took := time.Since(begin); took >= nlmsg.AnswerTimeout {
		t.Errorf("it took %v", took)
	}
	f.flush()            // waits for the flush of the timer
	add := func(n int) { // without the timer
		f.mu.Lock()
		f.pending = append(f.pending, slices.Repeat([]Query{q}, n)...)
		f.mu.Unlock()
	}
	add(maxPending - 2)
	f.Forget(q)
	if len(received) != 0 || len(f.pending) != maxPending-1 {
		t.Errorf("%d are deleted, %d wait", len(received), len(f.pending))
	}
	f.Forget(q)
	if len(received) != maxPending || len(f.pending) != 0 {
		t.Errorf("%d are deleted, %d wait", len(received), len(f.pending))
	}
	for _, e := range []unix.Errno{0, unix.EPERM, unix.EPERM, unix.ENOENT, 0} {
		p.do(func() { errno = e })
		add(3)
		f.flush()
	}
	if len(reports) != 2 || !errors.Is(reports[0], unix.EPERM) || !strings.Contains(reports[0].Error(), "delete 3 flows of this node's own questions") || reports[1] != nil {
		t.Errorf("reports %v", reports)
	}
	before := len(received)
	add(2)
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	<-p.gone
	f.Forget(q)
	if len(received) != before+2 || len(f.pending) != 0 {
		t.Errorf("after the end: %d are deleted, %d wait", len(received)-before, len(f.pending))
	}
}

// TestUnansweredConversation: connections without an answer are asked for, and deleted if their endpoint is left out.
func TestUnansweredConversation(t *testing.T) {
	p := newPeer(t, nil)
	p.answer = func(list []netlink.Message) (out [][]byte) {
		if list[0].Header.Type == msgDelete {
			return acks(0)(list)
		}
		for _, a := range answersTo(t, "IPv6") {
			out = append(out, renumber(a, list[0].Header.Sequence))
		}
		return out
	}
	c, err := Open(p.options())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	to := frontend("[fd00:96::10]:80")
	to.TCP = true
	at := func(endpoint string) Stale {
		of := target{leftOut: []netip.AddrPort{netip.MustParseAddrPort(endpoint)}, found: new(int)}
		return Stale{unanswered: indexOf(map[Frontend]target{to: of})}
	}
	results, err := c.Clean(at("[fd00:a::1]:8080"), nil)
	if err != nil || len(results) != 1 || results[0].Family != state.IPv6 || results[0].Unanswered != 1 || results[0].Deleted+results[0].Reset != 0 {
		t.Errorf("%+v, %v", results, err)
	}
	got := p.taken()
	if len(got) != 2 || got[0] != "101 request|0x300 10 3=00000000 26=00000002 1{ 2{ 1=06 } } 25{ 1=08000000 }" || !strings.Contains(got[1], " 2=03f0 3=0050 ") {
		t.Errorf("asked %q", got)
	}
	if results, err = c.Clean(at("[fd00:a::2]:8080"), nil); err != nil || len(results) != 1 || results[0].Unanswered != 0 {
		t.Errorf("another endpoint: %+v, %v", results, err)
	}
	p.do(func() { p.answer = acks(unix.EPERM) })
	if _, err = c.Clean(at("[fd00:a::1]:8080"), nil); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "delete IPv6 connections without an answer") {
		t.Errorf("refused: %v", err)
	}
}
