package conntrack

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// Load is the number of flows on a route. Active flows are established TCP and SCTP connections, and UDP flows with
// packets in both directions for more than two seconds. (The kernel calls these assured, and keeps them for 120 s
// without a packet, other UDP flows for 30 s.) All other flows are inactive: connections that begin or end, TIME_WAIT,
// and a single question with its answer. FastPath counts those of the active ones whose packets skip the rules.
type Load struct{ Active, Inactive, FastPath int }

// Count reads the kernel's table once and counts the translated flows of a family.
func Count(o Options, family state.Family) (map[Route]Load, error) {
	return countBy(o, family, false, (*entry).route)
}

// Way is a route, and what tells its clients apart.
type Way struct {
	Route
	Client      uint8 // as a function of the client's address returns
	Masqueraded bool  // the endpoint sees another one
}

// CountWays is like Count, and tells clients apart. With ipvs, it also counts what IPVS has translated: such flows have no mark, so the
// kernel hands over its whole table.
func CountWays(o Options, family state.Family, ipvs bool, client func(netip.Addr) uint8) (map[Way]Load, error) {
	return countBy(o, family, ipvs, func(e *entry) Way { return e.way(client) })
}

func (e *entry) way(client func(netip.Addr) uint8) Way {
	return Way{e.route(), client(e.Src), e.reply.dst != e.Src}
}

// End deletes the established TCP connections of a family on some ways, and returns how many there were. Connection tracking takes the next
// packet for the first one of a connection. If it masquerades the client by another port (fully-random), the endpoint gets a segment of
// a connection that it does not know, and resets it. A packet of the endpoint finds no socket at this node, and is reset, too.
func End(o Options, family state.Family, client func(netip.Addr) uint8, ends func(Way) bool) (n int, err error) {
	k, err := dial(o)
	if err != nil {
		return 0, err
	}
	var keys [][]byte
	err = k.dump(family, filter{status: statusDNAT, mask: statusDNAT, partial: true}, func(e *entry) {
		if e.DNAT && e.TCP && e.active() && ends(e.way(client)) {
			keys = append(keys, slices.Clone(e.key))
		}
	})
	n, removing := k.remove(family, keys)
	if err = errors.Join(err, removing); err != nil {
		err = fmt.Errorf("end %s connections: %w; those that are left go on", family.Version(), err)
	}
	return n, errors.Join(err, k.Close())
}

func countBy[K comparable](o Options, family state.Family, ipvs bool, key func(*entry) K) (loads map[K]Load, err error) {
	k, err := dial(o)
	if err != nil {
		return nil, err
	}
	f := filter{status: statusDNAT, mask: statusDNAT}
	if ipvs {
		f = filter{}
	}
	err = k.read(func(r *request) { r.dump(family, f) }, true, func() { loads = map[K]Load{} }, func(e *entry) {
		if e.DNAT || ipvs && e.Reply != e.Dst {
			at := key(e)
			loads[at] = loads[at].with(e)
		}
	})
	if err != nil {
		err = fmt.Errorf("count %s flows: %w", family.Version(), err)
	}
	return loads, errors.Join(err, k.Close())
}

func (l Load) with(e *entry) Load {
	if e.active() {
		l.Active++
	} else {
		l.Inactive++
	}
	if e.onFastPath() {
		l.FastPath++
	}
	return l
}

// Former lists the frontends that an earlier process served and that have UDP flows. The function has reports whether
// the earlier process served a frontend; a node port is one at each address at which it answered. A Tracker that starts with this list finds the frontends that were removed in
// the meantime; a new process knows only the present frontends.
//
// Former reads the kernel's table once for each family, and calls has only for frontends of flows in it.
func Former(o Options, has func(Frontend) (bool, error)) (list []Frontend, err error) {
	var errs []error
	for _, family := range []state.Family{state.IPv4, state.IPv6} {
		loads, err := Count(o, family)
		found, hasErr := formerIn(family, loads, has)
		list, errs = append(list, found...), append(errs, err, hasErr)
	}
	return list, errors.Join(errs...)
}

func formerIn(family state.Family, loads map[Route]Load, has func(Frontend) (bool, error)) (list []Frontend, err error) {
	used := map[Frontend]bool{}
	for r := range loads {
		if r.Protocol == unix.IPPROTO_UDP {
			used[Frontend{Addr: r.Dst.Addr(), Port: r.Dst.Port(), Family: family}] = true
		}
	}
	sorted := slices.SortedFunc(maps.Keys(used), func(a, b Frontend) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port))
	})
	for _, f := range sorted {
		is, err := has(f)
		if err != nil {
			return list, err
		}
		if is {
			list = append(list, f)
		}
	}
	return list, nil
}

// FoundFlow is an entry of the kernel's table.
type FoundFlow struct {
	Protocol            uint8
	Src, Dst            netip.AddrPort // as the client sends
	ReplySrc, ReplyDst  netip.AddrPort // as the server answers
	Translated          bool           // the destination was translated
	Answered, Confirmed bool
	FastPath            bool   // its packets skip the rules; then the kernel tells neither state nor timeout
	State               string // of TCP; otherwise empty
	Timeout             time.Duration
}

// maxFound bounds the flows that Find returns.
const maxFound = 100

// Find returns the flows of a client to a destination, at most 100. Without a source port the kernel walks its whole
// table, but hands over only the flows of this protocol and port (kernel 5.8; older ones hand over all).
func Find(o Options, q Query) ([]FoundFlow, error) {
	k, err := dial(o)
	if err != nil {
		return nil, err
	}
	flows, err := k.find(q)
	if err != nil {
		err = fmt.Errorf("look for flows from %s to %s: %w", q.Src, q.Dst, err)
	}
	return flows, errors.Join(err, k.Close())
}

func (k *kernel) find(q Query) (out []FoundFlow, err error) {
	// Without addresses: Linux 6.18 inverts the filter for IPv6 addresses.
	ask := func(r *request) {
		r.dump(q.family(), filter{protocol: q.Protocol, to: netip.AddrPortFrom(netip.Addr{}, q.Dst.Port())})
	}
	if q.SrcPort != 0 {
		ask = func(r *request) { r.flow(msgGet, q) }
	}
	err = k.read(ask, true, func() { out = nil }, func(e *entry) {
		if f := e.found(); q.matches(&f) && len(out) < maxFound {
			out = append(out, f)
		}
	})
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return out, err
}

func (q *Query) matches(f *FoundFlow) bool {
	return f.Protocol == q.Protocol && f.Src.Addr() == q.Src && f.Dst == q.Dst &&
		(q.SrcPort == 0 || f.Src.Port() == q.SrcPort)
}

func (e *entry) found() FoundFlow {
	f := FoundFlow{
		Protocol:   e.orig.protocol,
		Src:        netip.AddrPortFrom(e.orig.src, e.orig.sport),
		Dst:        e.Dst,
		ReplySrc:   e.Reply,
		ReplyDst:   netip.AddrPortFrom(e.reply.dst, e.reply.dport),
		Translated: e.DNAT,
		Answered:   e.answered(),
		Confirmed:  e.status&statusConfirmed != 0,
		FastPath:   e.onFastPath(),
		Timeout:    time.Duration(e.timeout) * time.Second,
	}
	if e.TCP && !f.FastPath {
		f.State = tcpState(e.state)
	}
	return f
}

// tcpState is the name that the program conntrack prints (kernel: enum tcp_conntrack).
func tcpState(n uint8) string {
	names := []string{
		"NONE", "SYN_SENT", "SYN_RECV", "ESTABLISHED", "FIN_WAIT", "CLOSE_WAIT", "LAST_ACK", "TIME_WAIT", "CLOSE", "SYN_SENT2",
	}
	if int(n) < len(names) {
		return names[n]
	}
	return ""
}

// Room is how full the table of connections of a network namespace is. When it is full, the kernel makes room by
// dropping connections that had no answer yet. If it finds none, it drops the first packet of each new connection of the
// namespace, before any rule sees it.
type Room struct {
	Entries, Limit int
	Dropped        int // first packets that found no room, since the kernel started
	Evicted        int // connections without an answer that were dropped for new ones
}

// Tight reports whether so much of the table is in use that connections are about to fail.
func (r Room) Tight() bool { return r.Limit > 0 && r.Entries >= r.Limit/10*9 }

func (r Room) String() string {
	return fmt.Sprintf("%d of %d connections, %d first packets dropped so far", r.Entries, r.Limit, r.Dropped)
}

// ReadRoom reads the table of the calling thread's network namespace. The root is "/proc", except in tests.
func ReadRoom(root string) (r Room, err error) {
	for name, to := range map[string]*int{"nf_conntrack_count": &r.Entries, "nf_conntrack_max": &r.Limit} {
		file := filepath.Join(root, "sys/net/netfilter", name)
		text, err := os.ReadFile(file)
		if err == nil {
			*to, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		if err != nil {
			return r, fmt.Errorf("read how full the table of connections is: %s: %w", file, err)
		}
	}
	text, err := os.ReadFile(filepath.Join(root, "thread-self/net/stat/nf_conntrack"))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil // a kernel without CONFIG_NF_CONNTRACK_PROCFS
	}
	if err != nil {
		return r, fmt.Errorf("read how many connections found no room in the table: %w", err)
	}
	r.Dropped, r.Evicted = column(string(text), "drop"), column(string(text), "early_drop")
	return r, nil
}

// column adds up a column of a table that has a line of hexadecimal numbers for each core.
func column(table, name string) (sum int) {
	lines := strings.Split(strings.TrimSpace(table), "\n")
	for i, title := range strings.Fields(lines[0]) {
		if title != name {
			continue
		}
		for _, line := range lines[1:] {
			if cells := strings.Fields(line); i < len(cells) {
				n, _ := strconv.ParseUint(cells[i], 16, 32) // the kernel writes numbers
				sum += int(n)
			}
		}
	}
	return sum
}
