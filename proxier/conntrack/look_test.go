package conntrack

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// lists makes slices from "10.0.0.1 10.0.0.2(unready) / 10.0.0.3" that serve port 8080.
func lists(text string) (out []*state.Slice) {
	for i, part := range strings.Split(text, "/") {
		sl := &state.Slice{Name: name(fmt.Sprint("web-", i)), Ports: []state.SlicePort{{Protocol: state.TCP, Port: 8080}}}
		for _, w := range strings.Fields(part) {
			addr, condition, _ := strings.Cut(w, "(")
			e := state.Endpoint{Addr: netip.MustParseAddr(addr), Ready: condition == "", Serving: condition != "unready)"}
			sl.Endpoints = append(sl.Endpoints, e)
		}
		out = append(out, sl)
	}
	return out
}

// clock is a Tracker with a time of its own.
type clock struct {
	*Tracker
	now time.Time
}

func newClock() *clock { return &clock{NewTracker(), time.Unix(1, 0)} }

// set has the kernel serve a Service "frontends > endpoints"; "": it is gone.
func (c *clock) set(of, text string) {
	frontends, endpoints, _ := strings.Cut(text, ">")
	var planned *plan.Service
	if frontends != "" {
		planned = service(frontends)
	}
	c.Set(name(of), planned, lists(endpoints)...)
}

// look waits for the next look; false: there is none.
func (c *clock) look() (Stale, bool) {
	if _, next := c.Look(c.now); next.After(c.now) {
		c.now = next
	}
	namespaces, _ := c.Look(c.now)
	return c.Stale(slices.Collect(maps.Keys(namespaces))...), len(namespaces) > 0
}

// settled has everything looked at.
func (c *clock) settled() *clock {
	for _, more := c.look(); more; _, more = c.look() {
		c.Done()
	}
	return c
}

// finds looks at connections. It returns those that end.
func (c *clock) finds(lines ...string) (ended []string) {
	s, _ := c.look()
	for _, line := range lines {
		e := tcpEntry(flow(line))
		if e.key = []byte(line); s.isUnanswered(e, addrSet(nodePortAddrs)) {
			ended = append(ended, line)
		}
	}
	c.Done()
	return ended
}

// TestLookFollows: a look follows a change after which a connection can go where nobody expects it, and no other one. If it suspects
// no connection, it is the only one.
func TestLookFollows(t *testing.T) {
	for _, tt := range []struct {
		what, before, after string
		want                bool
	}{
		{"nothing changes", "tcp 10.96.0.10:80>10.0.0.1", "tcp 10.96.0.10:80>10.0.0.1", false},
		{"an endpoint comes", "tcp 10.96.0.10:80>10.0.0.1", "tcp 10.96.0.10:80>10.0.0.1 10.0.0.2", false},
		{"the first endpoint comes", "tcp 10.96.0.10:80>", "tcp 10.96.0.10:80>10.0.0.1", false},
		{"an endpoint goes", "tcp 10.96.0.10:80>10.0.0.1 10.0.0.2", "tcp 10.96.0.10:80>10.0.0.2", true},
		{"a slice goes", "tcp 10.96.0.10:80>10.0.0.1/10.0.0.2", "tcp 10.96.0.10:80>10.0.0.1", true},
		{"an endpoint gets unready", "tcp 10.96.0.10:80>10.0.0.1", "tcp 10.96.0.10:80>10.0.0.1(unready)", true},
		{"an endpoint terminates and serves", "tcp 10.96.0.10:80>10.0.0.1", "tcp 10.96.0.10:80>10.0.0.1(terminating)", false},
		{"an unready endpoint goes", "tcp 10.96.0.10:80>10.0.0.1 10.0.0.2(unready)", "tcp 10.96.0.10:80>10.0.0.1", false},
		{"the Service comes", "", "tcp 10.96.0.10:80>10.0.0.1", true},
		{"the Service goes", "tcp 10.96.0.10:80>10.0.0.1", "", true},
		{"a frontend comes", "tcp 10.96.0.10:80>10.0.0.1", "tcp 10.96.0.10:80 192.0.2.1:80>10.0.0.1", true},
		{"SCTP", "sctp 10.96.0.10:80>10.0.0.1", "sctp 10.96.0.10:80>", true},
		{"UDP", "10.96.0.10:80>10.0.0.1", "10.96.0.10:80>", false},
		{"IPVS without NAT", "tcp unchanged 10.96.0.10:80>10.0.0.1", "tcp unchanged 10.96.0.10:80>", false},
	} {
		c := newClock()
		c.set("web", tt.before)
		c.settled().set("web", tt.after)
		_, got := c.look()
		c.Done()
		if _, more := c.look(); got != tt.want || more {
			t.Errorf("%s: a look follows: %t, want %t; another one %t", tt.what, got, tt.want, more)
		}
	}
}

// TestWhatLooksEnd: the second look ends connections without an answer that the rules would not begin, and no others.
func TestWhatLooksEnd(t *testing.T) {
	const before, after = "tcp 10.96.0.10:80 *4:30080>10.0.0.1 10.0.0.2", "tcp 10.96.0.10:80 *4:30080>10.0.0.2"
	wrong := []string{
		"10.96.0.10:80 10.0.0.1:8080", "10.96.0.10:80 10.0.0.1:8080 ipvs", "10.96.0.10:80 10.0.0.2:8081", "192.168.0.1:30080 10.0.0.1:8080",
		"10.96.0.10:80 10.96.0.10:80", "192.168.0.1:30080 192.168.0.1:30080", // not translated: from before the Service
	}
	all := append([]string{
		"10.96.0.10:80 10.0.0.2:8080",
		"192.168.7.7:30080 10.0.0.1:8080", // not an address of the node
		"10.96.0.10:80 10.96.0.10:80 7",   // other software tracks it, too
		"10.96.0.11:80 10.0.0.1:8080", "10.96.0.10:8080 10.0.0.1:8080",
	}, wrong...)
	changed := func() *clock {
		c := newClock()
		c.set("web", before)
		c.settled().set("web", after)
		return c
	}
	c := changed()
	if first, began := c.finds(all...), c.now; first != nil || !slices.Equal(c.finds(all...), wrong) || c.now.Sub(began) < lookPeriod {
		t.Errorf("the first look ends %q, and the second one not %q", first, wrong)
	}
	if c.settled(); len(c.waiting) > 0 {
		t.Error("looks do not end")
	}

	c = changed()
	if c.finds(all[0]); c.finds(all...) != nil {
		t.Error("a look ends connections that the one before did not find")
	}

	// An endpoint returns, and another one goes.
	c = changed()
	c.finds(all...)
	c.set("web", "tcp 10.96.0.10:80 *4:30080>10.0.0.1")
	if got := c.finds(all...); slices.Contains(got, wrong[0]) || slices.Contains(got, all[0]) || !slices.Contains(got, wrong[2]) {
		t.Errorf("a look ends %q", got)
	}
	if got := c.finds(all...); !slices.Contains(got, all[0]) || slices.Contains(got, wrong[0]) {
		t.Errorf("the next look ends %q", got)
	}

	for what, edit := range map[string]func(*entry){
		"answered":  func(e *entry) { e.status |= statusSeenReply },
		"seen late": func(e *entry) { e.state = tcpEstablished },
		"UDP":       func(e *entry) { e.TCP = false },
		"of SCTP":   func(e *entry) { e.TCP, e.SCTP = false, true },
	} {
		c = changed()
		for range 2 {
			s, _ := c.look()
			e := tcpEntry(flow(wrong[0]))
			if edit(e); s.isUnanswered(e, nil) {
				t.Errorf("a connection ends that is %s", what)
			}
			c.Done()
		}
	}

	c = newClock()
	c.set("web", before)
	c.settled().Doubt()
	if c.finds(wrong[4]); c.finds(wrong[4]) == nil {
		t.Error("what began while the rules were away goes on")
	}
}

// TestGoneFrontends: connections without an answer to a frontend that is gone end, unless something else serves them by now.
func TestGoneFrontends(t *testing.T) {
	const line, untranslated = "192.168.0.1:30080 10.0.0.1:8080", "192.168.0.1:30080 192.168.0.1:30080"
	for other, want := range map[string]bool{"tcp 192.168.0.1:80>10.0.0.1": true, "tcp 192.168.0.1:30080>10.0.0.1": false} {
		c := newClock()
		c.SetNodePortAddresses(nodePortAddrs)
		c.set("web", "tcp 192.168.0.1:30080>10.0.0.1")
		c.settled().set("web", "")
		c.set("other", other)
		if c.finds(line, untranslated); slices.Contains(c.finds(line, untranslated), line) != want {
			t.Errorf("%s: a connection ends: %t", other, !want)
		}
	}
	// Frontends that come and go are forgotten, each after two looks.
	c := newClock()
	for i := range 100 {
		c.set("web", fmt.Sprintf("tcp 10.96.0.%d:80>10.0.0.1", i))
		line := fmt.Sprintf("10.96.0.%d:80 10.0.0.1:8080", max(i-2, 0))
		if got := c.finds(line, fmt.Sprintf("10.96.0.%d:80 10.0.0.1:8080", max(i-1, 0))); i > 2 && !slices.Equal(got, []string{line}) {
			t.Fatalf("look %d ends %q, want %s", i, got, line)
		}
		if w := c.waiting[name("web")]; w != nil && len(w.gone) > 2 {
			t.Fatalf("%d frontends that are gone are remembered", len(w.gone))
		}
	}
}

// TestLooksAreRare: there is one look in a second, whoever waits. What a namespace may not have looked at yet waits for a later one.
func TestLooksAreRare(t *testing.T) {
	c, looks := newClock(), 0
	for i := range 50 { // for five seconds
		for tenant := range 10 {
			n := state.Name{Namespace: fmt.Sprint("tenant-", tenant), Name: "web"}
			c.Set(n, service(fmt.Sprintf("tcp 10.96.0.%d:80", tenant)), lists(fmt.Sprintf("10.0.0.%d", i))...)
		}
		namespaces, _ := c.Look(c.now)
		if s := c.Stale(append(slices.Collect(maps.Keys(namespaces)), "tenant-0")[:1]...); len(s.taken) != min(len(namespaces), 1) {
			t.Errorf("a cleaning of one of %d namespaces looks at %d", len(namespaces), len(s.taken))
		}
		if c.Done(); len(namespaces) > 0 {
			looks++
		}
		c.now = c.now.Add(lookPeriod / 10)
	}
	if looks != 5 {
		t.Errorf("%d looks in five seconds, want one each second", looks)
	}
	if c.settled(); len(c.waiting) > 0 {
		t.Errorf("%d Services wait at the end", len(c.waiting))
	}
}

// TestManyPorts: a slice with very many ports and endpoints takes the memory of both, not of their product. An address in very many
// slices counts as listed.
func TestManyPorts(t *testing.T) {
	sl := &state.Slice{}
	for i := range uint16(20_000) {
		sl.Ports = append(sl.Ports, state.SlicePort{Protocol: state.TCP, Port: 1 + i})
	}
	for i := range 1000 {
		sl.Endpoints = append(sl.Endpoints, state.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), Ready: true})
	}
	l := listedIn([]*state.Slice{sl})
	if !l.has(netip.MustParseAddrPort("10.0.3.1:20000")) || l.has(netip.MustParseAddrPort("10.0.3.1:20001")) || l.has(netip.MustParseAddrPort("10.0.4.1:1")) {
		t.Error("wrong")
	}
	if bytes := testing.AllocsPerRun(1, func() { listedIn([]*state.Slice{sl}) }); bytes > 10_000 {
		t.Errorf("%v allocations", bytes)
	}
	l = listedIn(slices.Repeat([]*state.Slice{sl}, 1000))
	if at := netip.MustParseAddrPort("10.0.3.1:20001"); len(l[at.Addr()]) > maxListed+1 || !l.has(at) {
		t.Errorf("%d slices with one address are looked through", len(l[at.Addr()]))
	}
}
