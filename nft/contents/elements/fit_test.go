package elements

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/contents/chains"
	"github.com/verdict-proxy/verdict/nft/contents/hashing"
	"github.com/verdict-proxy/verdict/nft/program"
)

// TestClassesFit: however many service ports there are, there is a number for each class that they can need.
func TestClassesFit(t *testing.T) {
	draws := map[program.Draw]bool{}
	for n := 1; n <= program.MaxSlots; n++ {
		draws[program.NewClass(program.Random, n, 0, false).Draw], draws[program.NewClass(program.InTurn, n, 0, false).Draw] = true, true
		draws[program.NewClass(program.SourceHash, int(hashing.Size(n)), 0, false).Draw] = true
	}
	timeouts := chains.ExactTimeouts + chains.RungCount
	if most := len(draws) * (1 + 2*timeouts); most >= program.MaxClasses {
		t.Errorf("%d draws and %d timeouts can need %d classes; there are %d numbers", len(draws), timeouts, most, program.MaxClasses-1)
	}
}

// TestNumbersUsedUp: without a number, a port refuses its clients. It does not lead to endpoints of the past.
func TestNumbersUsedUp(t *testing.T) {
	c := New(program.IPv4, program.Program{})
	port := func(n int, protocol uint8) *contents.Port {
		return &contents.Port{Family: program.IPv4, Name: "ns/svc:" + string(rune('a'+n)), Protocol: protocol, Cluster: endpointsAt("10.0.0.1:80"),
			Frontends: []contents.Frontend{{Addr: numberedAddr(n), Port: 80, ClusterIP: true, Pool: program.ClusterPool}}}
	}
	apply := func(change func(program.Writer)) string {
		w := program.NewWriter(program.IPv4)
		change(w)
		c.Finish(w)
		c.Write(w)
		c.Settle()
		return w.String()
	}
	set := func(p *contents.Port) (text string, short Shortfall) {
		return apply(func(w program.Writer) { short = c.Set(w, p) }), short
	}
	mustRetry := func(want ...string) {
		t.Helper()
		if got := c.TakeWaiting(); !slices.Equal(got, want) {
			t.Fatalf("to be set again: %v, want %v", got, want)
		}
	}
	set(port(0, 6))
	set(port(1, 6))
	for i := uint32(1); i < program.MaxPorts; i++ {
		c.Ports.numbers.claim(i)
	}
	for n := 5; n < 7; n++ {
		want := "all 524287 service port numbers of the family are in use; the port is served as soon as one is free, " +
			"and refuses its clients until then"
		text, short := set(port(n, 6))
		if !slices.Equal(short, []string{want}) {
			t.Errorf("%v, want: %s", short, want)
		}
		if !strings.Contains(text, "add element ip verdict no-endpoints { 10.0.0."+string(rune('0'+n))+" . tcp . 80") || strings.Contains(text, "verdict services") ||
			strings.Contains(text, "10.0.0.1 ") {
			t.Errorf("a port without a number:\n%s", text)
		}
	}
	mustRetry()
	set(port(0, 17)) // it gets its own number again
	mustRetry()

	apply(func(w program.Writer) { c.Delete(w, port(1, 6).Name) })
	mustRetry(port(5, 6).Name)
	text, _ := set(port(5, 6))
	if !strings.Contains(text, "add element ip verdict services { 10.0.0.5 . tcp . 80") || !strings.Contains(text, "delete element ip verdict no-endpoints") {
		t.Errorf("the port is served:\n%s", text)
	}
	everything := func(program.Writer) { c.Forget() }
	again := apply(everything)
	if text := apply(everything); text != again || !strings.Contains(text, "no-endpoints { 10.0.0.6 . tcp . 80") {
		t.Errorf("all elements:\n%s\nand again:\n%s", again, text)
	}
}

// TestFitAffinity: a service port with more endpoints than ordinals has no affinity. An endpoint of both pools counts once.
func TestFitAffinity(t *testing.T) {
	list := func(first, n int) (out []contents.Endpoint) {
		for i := range n {
			at := netip.AddrFrom4([4]byte{10, 0, byte((first + i) >> 8), byte(first + i)})
			out = append(out, contents.Endpoint{Addr: netip.AddrPortFrom(at, 80)})
		}
		return out
	}
	const most = program.MaxOrdinals
	for _, tt := range []struct {
		name           string
		cluster, local []contents.Endpoint
		fits           bool
	}{
		{"as many as there are ordinals", list(0, most), nil, true},
		{"one more", list(0, most+1), nil, false},
		{"one more in the other pool", list(0, most), list(most, 1), false},
		{"the local ones are among all", list(0, most), list(most-10, 10), true},
	} {
		var short Shortfall
		want := &contents.Port{Family: program.IPv4, Affinity: time.Hour, Cluster: tt.cluster, Local: tt.local}
		got := fitAffinity(want, map[time.Duration]int{}, &short)
		if (got == time.Hour) != tt.fits || (len(short) == 0) != tt.fits {
			t.Errorf("%s: affinity %v, %v", tt.name, got, short)
		}
	}
}

// TestFit: what a service port gets less than it asked for is named, and all its endpoints are served all the same.
func TestFit(t *testing.T) {
	many := make([]contents.Endpoint, program.MaxSlots)
	for i := range many {
		many[i].Addr = netip.AddrPortFrom(numberedAddr(i), 80)
	}
	many[0].Slots = 2
	for _, tt := range []struct {
		want   contents.Port
		tables int
		method program.Method
		short  Shortfall
	}{
		{contents.Port{Method: program.SourceHash, Cluster: endpointsAt("10.0.0.1:80")}, program.MaxTables - 1, program.SourceHash, nil},
		{contents.Port{Method: program.SourceHash, Cluster: endpointsAt("10.0.0.1:80")}, program.MaxTables, program.Random,
			Shortfall{"all 32768 hash tables are in use; endpoints are picked at random until the Service changes"}},
		{contents.Port{Method: program.SourceHash, Cluster: endpointsAt("10.0.0.1:0")}, program.MaxTables, program.SourceHash, nil},
		{contents.Port{Cluster: many}, 0, program.Random, Shortfall{"the weights of 65536 endpoints need 65537 slots, more than the 65536 of a pool; " +
			"all endpoints are served, with the same weight"}},
	} {
		var short Shortfall
		got := fit(&tt.want, func(string) int { return tt.tables }, map[time.Duration]int{}, &short)
		if got.Method != tt.method || len(got.Cluster) != len(tt.want.Cluster) || !slices.Equal(short, tt.short) {
			t.Errorf("%s with %d endpoints, %d tables: %s with %d endpoints, %q", tt.want.Method, len(tt.want.Cluster), tt.tables, got.Method, len(got.Cluster), short)
		}
	}
}

// TestTablesAreKept: when all hash tables are in use, who has one keeps one, with any endpoints, and with others in the same
// transaction. There is a limit of that, too.
func TestTablesAreKept(t *testing.T) {
	c, w := New(program.IPv4, program.Program{}), program.NewWriter(program.IPv4)
	set := func(n, endpoint int) Shortfall {
		p := clusterIPPort(n, fmt.Sprintf("10.%d.%d.%d:80", 1+endpoint>>16, endpoint>>8&255, endpoint&255))
		p.Method = program.SourceHash
		return c.Set(w, &p)
	}
	for n := range program.MaxTables {
		if short := set(n, n); len(short) > 0 {
			t.Fatalf("port %d: %v", n, short)
		}
	}
	if short := set(program.MaxTables, 1<<20); len(short) != 1 {
		t.Errorf("one port too many gets less: %v", short)
	}
	for n := range program.MaxTables {
		short := set(n, 1<<17+n)
		if full := n >= program.MaxTables/2; (len(short) > 0) != full {
			t.Fatalf("change %d in a transaction: %v", n, short)
		}
	}
}
