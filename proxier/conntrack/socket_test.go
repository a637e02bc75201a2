package conntrack

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// native is a number as it stands in a message in the byte order of the host.
func native(n uint32) string { return fmt.Sprintf("%x", binary.NativeEndian.AppendUint32(nil, n)) }

// TestRequests: another decoder reads in the requests what the kernel is asked. The numbers are those of
// linux/netfilter/nfnetlink_conntrack.h.
func TestRequests(t *testing.T) {
	to := netip.MustParseAddrPort
	const del = "102 request|acknowledge"
	for what, tt := range map[string]struct {
		write func(*request)
		want  string
	}{
		"all":       {func(r *request) { r.dump(state.IPv4, filter{}) }, "101 request|0x300 2"},
		"status":    {func(r *request) { r.dump(state.IPv6, filter{status: statusDNAT, mask: statusDNAT}) }, "101 request|0x300 10 3=00000020 26=00000020"},
		"no answer": {func(r *request) { r.dump(state.IPv4, filter{mask: statusSeenReply}) }, "101 request|0x300 2 3=00000000 26=00000002"},
		"a protocol": {
			func(r *request) { r.dump(state.IPv4, filter{protocol: unix.IPPROTO_UDP}) },
			"101 request|0x300 2 1{ 2{ 1=11 } } 25{ 1=" + native(0x8) + " }",
		},
		"a port": {
			func(r *request) {
				r.dump(state.IPv6, filter{protocol: unix.IPPROTO_TCP, to: netip.AddrPortFrom(netip.Addr{}, 80)})
			},
			"101 request|0x300 10 1{ 2{ 1=06 3=0050 } } 25{ 1=" + native(0x28) + " }",
		},
		"a frontend": {
			func(r *request) { r.dump(state.IPv4, filter{protocol: unix.IPPROTO_UDP, to: to("10.96.0.10:53")}) },
			"101 request|0x300 2 1{ 1{ 2=0a60000a } 2{ 1=11 3=0035 } } 25{ 1=" + native(0x2a) + " }",
		},
		"an address": {
			func(r *request) {
				r.dump(state.IPv6, filter{protocol: unix.IPPROTO_UDP, to: netip.AddrPortFrom(netip.MustParseAddr("fd00::a"), 0)})
			},
			"101 request|0x300 10 1{ 1{ 4=fd00000000000000000000000000000a } 2{ 1=11 } } 25{ 1=" + native(0xa) + " }",
		},
		"one flow": {
			func(r *request) { r.flow(msgGet, query(unix.IPPROTO_TCP, "10.9.0.1:40000", "10.96.0.10:80")) },
			"101 request|acknowledge 2 1{ 1{ 1=0a090001 2=0a60000a } 2{ 1=06 2=9c40 3=0050 } }",
		},
		"one flow to delete": {
			func(r *request) { r.flow(msgDelete, query(unix.IPPROTO_UDP, "[fd00::1]:1", "[fd00::2]:53")) },
			del + " 10 1{ 1{ 3=fd000000000000000000000000000001 4=fd000000000000000000000000000002 } 2{ 1=11 2=0001 3=0035 } }",
		},
		"an entry to delete": {
			func(r *request) { r.deletion(state.IPv6, []byte{8, 0, attrID, 0, 1, 2, 3, 4, 6, 0, attrZone, 0, 0, 7}) },
			del + " 10 12=01020304 18=0007",
		},
	} {
		var r request
		tt.write(&r)
		if got := decode(t, messages(t, r.Buf)); got != tt.want {
			t.Errorf("%s:\n%s, want\n%s", what, got, tt.want)
		}
	}
}

// TestAnswers: what Count and Find return for the answers of a real kernel, and what they ask it.
func TestAnswers(t *testing.T) {
	p := saying(t, answersTo(t, "IPv4"))
	loads, err := Count(p.options(), state.IPv4)
	want := map[Route]Load{
		route(6, "10.96.0.10:80", "10.0.0.1:8080"):  {Active: 1, Inactive: 1},
		route(17, "10.96.0.10:53", "10.0.0.1:5353"): {Active: 1, Inactive: 2},
		route(132, "10.96.0.10:90", "10.0.0.1:90"):  {Active: 1, Inactive: 0},
	}
	if err != nil || !maps.Equal(loads, want) {
		t.Errorf("counted %v, %v; want %v", loads, err, want)
	}
	if got := p.taken(); len(got) != 1 || !strings.HasSuffix(got[0], " 2 3=00000020 26=00000020") {
		t.Errorf("Count asked %q", got)
	}
	<-p.gone // the socket is closed

	p = saying(t, answersTo(t, "found"))
	flows, err := Find(p.options(), query(unix.IPPROTO_TCP, "10.9.0.1:1001", "10.96.0.10:80"))
	if err != nil || len(flows) != 1 {
		t.Fatalf("found %+v, %v", flows, err)
	}
	if f := &flows[0]; f.Timeout < time.Minute || f.Timeout > 300*time.Second {
		t.Errorf("it ends in %v", f.Timeout)
	}
	flows[0].Timeout = 0
	tcp := FoundFlow{
		Protocol: unix.IPPROTO_TCP, Src: netip.MustParseAddrPort("10.9.0.1:1001"), Dst: netip.MustParseAddrPort("10.96.0.10:80"),
		ReplySrc: netip.MustParseAddrPort("10.0.0.1:8080"), ReplyDst: netip.MustParseAddrPort("10.9.0.1:1001"),
		Translated: true, Answered: true, Confirmed: true, State: "ESTABLISHED",
	}
	if flows[0] != tcp {
		t.Errorf("found %+v, want %+v", flows[0], tcp)
	}
	if got := p.taken(); len(got) != 1 || !strings.HasPrefix(got[0], "101 request|acknowledge 2 1{ 1{ 1=0a090001 2=0a60000a } 2{ 1=06 2=03e9 3=0050 } }") {
		t.Errorf("Find asked %q", got)
	}
	<-p.gone

	p = saying(t, answersTo(t, "IPv4"))
	flows, err = Find(p.options(), query(unix.IPPROTO_TCP, "10.9.0.1:0", "10.0.0.9:80"))
	if err != nil || len(flows) != 1 || flows[0].Translated || flows[0].Answered || !flows[0].Confirmed || flows[0].State != "SYN_SENT" {
		t.Errorf("found %+v, %v", flows, err)
	}

	p = saying(t, answersTo(t, "IPv6"))
	flows, err = Find(p.options(), query(unix.IPPROTO_UDP, "[fd00:9::1]:0", "[fd00:96::10]:53"))
	if err != nil || len(flows) != 1 || flows[0].Src.Port() != 1009 || flows[0].State != "" {
		t.Errorf("found %+v, %v", flows, err)
	}
	if got, want := p.taken(), "101 request|0x300 10 1{ 2{ 1=11 3=0035 } } 25{ 1="+native(0x28)+" }"; len(got) != 1 || got[0] != want {
		t.Errorf("Find asked %q, want %s", got, want)
	}
}

// TestTCPStates: the names are those of the program conntrack.
func TestTCPStates(t *testing.T) {
	if got := []string{tcpState(0), tcpState(1), tcpState(3), tcpState(7), tcpState(9), tcpState(10), tcpState(255)}; !slices.Equal(got,
		[]string{"NONE", "SYN_SENT", "ESTABLISHED", "TIME_WAIT", "SYN_SENT2", "", ""}) {
		t.Errorf("%q", got)
	}
}

// TestFindBound: a client with many flows does not fill the answer.
func TestFindBound(t *testing.T) {
	answers := answersTo(t, "IPv6")
	p := saying(t, append(slices.Repeat(answers[:1], 150), answers[1]))
	flows, err := Find(p.options(), query(unix.IPPROTO_UDP, "[fd00:9::1]:0", "[fd00:96::10]:53"))
	if err != nil || len(flows) != 100 {
		t.Errorf("%d flows, %v", len(flows), err)
	}
}

// interrupted marks the answers to a question as those from a table that was resized meanwhile.
func interrupted(answers [][]byte) (out [][]byte) {
	for _, a := range answers {
		a = slices.Clone(a)
		a[6] |= unix.NLM_F_DUMP_INTR
		out = append(out, a)
	}
	return out
}

// TestInterrupted: an answer that may miss flows does not count, and the question is asked again. After three of them, those
// who need only some flows take what there is.
func TestInterrupted(t *testing.T) {
	good := answersTo(t, "IPv6")
	bad := interrupted(good[:1])
	bad = append(bad, good[1])
	count := func(answers ...[][]byte) (n int, err error) {
		loads, err := Count(saying(t, answers...).options(), state.IPv6)
		for _, l := range loads {
			n += l.Active + l.Inactive
		}
		return n, err
	}
	if n, err := count(bad, bad, good); n != 2 || err != nil {
		t.Errorf("after two interruptions: %d, %v", n, err)
	}
	if n, err := count(bad, bad, bad); n != 2 || err != nil {
		t.Errorf("after three interruptions: %d, %v", n, err)
	}
	if flows, err := Find(saying(t, bad, bad, good).options(), query(unix.IPPROTO_UDP, "[fd00:9::1]:0", "[fd00:96::10]:53")); len(flows) != 1 || err != nil {
		t.Errorf("found %v, %v", flows, err)
	}
	for partial, want := range map[bool]error{false: nlmsg.ErrInterrupted, true: nil} {
		k, err := dial(saying(t, bad, bad, bad).options())
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		if err := k.dump(state.IPv6, filter{partial: partial}, func(*entry) { n++ }); !errors.Is(err, want) || n != 6 {
			t.Errorf("partial %t: %d entries, %v", partial, n, err)
		}
		k.Close()
	}
}

// TestRefused: a refusal is an error that says what was attempted. That there is no such flow is none.
func TestRefused(t *testing.T) {
	p := newPeer(t, acks(unix.EPERM))
	if _, err := Count(p.options(), state.IPv6); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "count IPv6 flows: ") {
		t.Errorf("Count: %v", err)
	}
	<-p.gone
	q := query(unix.IPPROTO_TCP, "10.9.0.1:1", "10.96.0.10:80")
	if _, err := Find(p.options(), q); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "look for flows from 10.9.0.1 to 10.96.0.10:80: ") {
		t.Errorf("Find: %v", err)
	}
	<-p.gone
	if flows, err := Find(saying(t, answersTo(t, "none")).options(), q); flows != nil || err != nil {
		t.Errorf("no such flow: %v, %v", flows, err)
	}
	p.refuse = unix.EMFILE
	_, err := Count(p.options(), state.IPv4)
	_, err2 := Find(p.options(), q)
	_, err3 := Open(p.options())
	_, err4 := OpenForgetter(p.options(), nil)
	_, err5 := WatchOpened(p.options())
	for i, err := range []error{err, err2, err3, err4, err5} {
		if !errors.Is(err, unix.EMFILE) {
			t.Errorf("%d: without a socket: %v", i, err)
		}
	}
}

// TestOtherAnswers: answers to earlier questions, and to questions that nobody asked, are skipped.
func TestOtherAnswers(t *testing.T) {
	p := newPeer(t, func(request []netlink.Message) (out [][]byte) {
		seq := request[0].Header.Sequence
		out = append(out, renumber(answersTo(t, "none")[0], seq-1), renumber(answersTo(t, "none")[0], seq+1))
		for _, a := range answersTo(t, "IPv6") {
			out = append(out, renumber(a, seq))
		}
		return out
	})
	if loads, err := Count(p.options(), state.IPv6); err != nil || len(loads) != 2 {
		t.Errorf("%v, %v", loads, err)
	}
}

func TestCutShort(t *testing.T) {
	p := newPeer(t, func([]netlink.Message) [][]byte { return [][]byte{{20, 0, 0, 0, 1}} })
	if _, err := Count(p.options(), state.IPv6); !errors.Is(err, nlmsg.ErrCutShort) || !strings.Contains(err.Error(), "read the answer of conntrack") {
		t.Errorf("error %v", err)
	}
}

// TestLost: whoever lost the socket says so.
func TestLost(t *testing.T) {
	p := newPeer(t, nil)
	p.answer = func([]netlink.Message) [][]byte { p.client.Close(); return nil }
	read := func(k *kernel) error { return k.dump(state.IPv6, filter{}, func(*entry) {}) }
	k, err := dial(p.options())
	if err != nil {
		t.Fatal(err)
	}
	if err := read(k); err == nil || !strings.Contains(err.Error(), "to conntrack: ") && !strings.Contains(err.Error(), "read the answer of conntrack: ") {
		t.Errorf("closed while it waits: %v", err)
	}
	<-p.gone
	p.answer = acks(0)
	if k, err = dial(p.options()); err != nil {
		t.Fatal(err)
	}
	if err := p.end.Close(); err != nil {
		t.Fatal(err)
	}
	if err := read(k); !errors.Is(err, unix.EPIPE) || !strings.Contains(err.Error(), "bytes to conntrack") {
		t.Errorf("to nobody: %v", err)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
}

// TestDeletions: deletions go out in portions. Flows that have ended by themselves do not count. After a refusal, the answers
// are still read, and no other portion follows.
func TestDeletions(t *testing.T) {
	keys := slices.Repeat([][]byte{{8, 0, attrID, 0, 1, 2, 3, 4}}, 130)
	var sizes []int
	errnos := map[uint32]unix.Errno{2: unix.ENOENT, 130: unix.ENOENT}
	p := newPeer(t, func(list []netlink.Message) (out [][]byte) {
		sizes = append(sizes, len(list))
		for _, m := range list {
			out = append(out, ack(m, errnos[m.Header.Sequence]))
		}
		return out
	})
	k, err := dial(p.options())
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	n, err := k.remove(state.IPv4, keys)
	p.do(func() {
		if n != 128 || err != nil || !slices.Equal(sizes, []int{64, 64, 2}) {
			t.Errorf("removed %d, %v, in portions of %v", n, err, sizes)
		}
		sizes, errnos = nil, map[uint32]unix.Errno{131: unix.EPERM, 132: unix.ENOENT}
	})
	n, err = k.remove(state.IPv4, keys)
	p.do(func() {
		if n != 62 || !errors.Is(err, unix.EPERM) || !slices.Equal(sizes, []int{64}) {
			t.Errorf("removed %d, %v, in portions of %v", n, err, sizes)
		}
	})
	if n, err := k.remove(state.IPv4, nil); n != 0 || err != nil {
		t.Errorf("nothing to remove: %d, %v", n, err)
	}
	p.do(func() {
		p.answer = func(list []netlink.Message) [][]byte { p.client.Close(); return nil }
	})
	if n, err := k.remove(state.IPv4, keys[:1]); n != 0 || err == nil {
		t.Errorf("lost: %d, %v", n, err)
	}
}

// TestLateAnswer: an answer to an earlier request is none to a deletion.
func TestLateAnswer(t *testing.T) {
	p := newPeer(t, func(list []netlink.Message) [][]byte {
		late := list[0]
		late.Header.Sequence--
		return [][]byte{ack(late, unix.EPERM), ack(list[0], 0)}
	})
	k, err := dial(p.options())
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	for range 2 {
		if n, err := k.remove(state.IPv4, [][]byte{{8, 0, attrID, 0, 1, 2, 3, 4}}); n != 1 || err != nil {
			t.Errorf("removed %d, %v", n, err)
		}
	}
}

// TestRefusedAndLost: the kernel refuses one of two deletions, and does not answer the other one. Both are told.
func TestRefusedAndLost(t *testing.T) {
	p := newPeer(t, nil)
	k, err := dial(p.options())
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	k.Patience = time.Millisecond // the only answer is there before
	refusal := ack(netlink.Message{Header: netlink.Header{Sequence: 1}}, unix.EPERM)
	if err := p.end.Sendto(context.Background(), refusal, 0, nil); err != nil {
		t.Fatal(err)
	}
	key := []byte{8, 0, attrID, 0, 1, 2, 3, 4}
	if _, err := k.remove(state.IPv4, [][]byte{key, key}); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "none came within 1ms") {
		t.Errorf("error %v", err)
	}
}

// TestFilters: a few frontends are asked for one by one, each once. The kernel cannot look for addresses of IPv6 and for ranges.
func TestFilters(t *testing.T) {
	udp := func(to ...string) (list []filter) {
		for _, a := range to {
			list = append(list, filter{protocol: unix.IPPROTO_UDP, to: netip.MustParseAddrPort(a)})
		}
		return list
	}
	nowhere := netip.AddrPortFrom(netip.Addr{}, 53)
	four := []Frontend{frontend("10.0.0.4:53"), frontend("10.0.0.3:53"), frontend("10.0.0.2:53"), frontend("10.0.0.1:53")}
	for what, tt := range map[string]struct {
		list []Frontend
		want []filter
	}{
		"one":    {four[:1], udp("10.0.0.4:53")},
		"four":   {four, udp("10.0.0.1:53", "10.0.0.2:53", "10.0.0.3:53", "10.0.0.4:53")},
		"five":   {append(four[:4:4], frontend("10.0.0.1:54")), []filter{{protocol: unix.IPPROTO_UDP}}},
		"twice":  {append(four[:4:4], four[0]), udp("10.0.0.1:53", "10.0.0.2:53", "10.0.0.3:53", "10.0.0.4:53")},
		"IPv6":   {[]Frontend{frontend("[fd00::1]:53"), frontend("[fd00::2]:53")}, []filter{{protocol: unix.IPPROTO_UDP, to: nowhere}}},
		"TCP":    {[]Frontend{{Port: 53, Family: state.IPv4, TCP: true}}, []filter{{protocol: unix.IPPROTO_TCP, to: nowhere}}},
		"ranges": {[]Frontend{{Addr: four[0].Addr, Port: 53, EndPort: 60, Family: state.IPv4}}, []filter{{protocol: unix.IPPROTO_UDP}}},
	} {
		if got := filters(tt.list); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", what, got, tt.want)
		}
	}
}

// TestHalfEntry: an entry of which one direction is missing is none.
func TestHalfEntry(t *testing.T) {
	for _, m := range messages(t, answersTo(t, "IPv6")[0]) {
		whole := m.Data[nlmsg.FamilySize:]
		a := nlmsg.NewAttributes(whole)
		a.Next()
		first := len(a.Whole)
		a.Next()
		for what, half := range map[string][]byte{
			"original": append(slices.Clone(whole[:first]), whole[first+len(a.Whole):]...), "reply": whole[first:],
		} {
			var e entry
			if e.parse(nlmsg.NewAttributes(half)) {
				t.Errorf("only the %s direction: %+v", what, e)
			}
		}
	}
}
