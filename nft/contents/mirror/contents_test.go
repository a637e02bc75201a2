package mirror

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// changing is contents, and how many transactions changed it.
type changing struct {
	*Contents
	transactions uint64
}

// apply makes one transaction of service ports: a port without frontends goes.
func (c *changing) apply(ports ...contents.Port) {
	w := program.NewWriter(program.IPv4)
	c.transactions++
	for i := range ports {
		p := &ports[i]
		c.Ports.Change(p.Name, c.transactions, func() {
			if len(p.Frontends) == 0 {
				c.Delete(w, p.Name)
			} else {
				c.Set(w, p)
			}
		})
	}
	c.WriteShared(w)
}

func clusterIPPort(n int, endpoints ...string) contents.Port {
	return contents.Port{Family: program.IPv4, Name: fmt.Sprintf("ns/svc-%d:p", n), Protocol: 6, Cluster: endpointsAt(endpoints...),
		Frontends: []contents.Frontend{{Addr: numberedAddr(n), Port: 80, ClusterIP: true, Pool: program.ClusterPool}}}
}

// elementsOf are keys and data, by set.
func elementsOf(into map[string]int, id program.SetID, list []program.Element, arena []byte) {
	for _, e := range list {
		into[fmt.Sprintf("%s %x %x", id.Name(), e.Key(arena), e.Data(arena))]++
	}
}

// TestParts: the parts have each element once, and the caller can pause after a few of them.
func TestParts(t *testing.T) {
	c := &changing{Contents: New(program.IPv4, 0)}
	var ports []contents.Port
	for i := range 600 {
		p := clusterIPPort(i, fmt.Sprintf("10.1.%d.%d:80", i/100, i%100), fmt.Sprintf("10.2.%d.%d:80", i/100, i%100))
		p.Answers, p.Cluster[0].Local = netip.AddrPortFrom(p.Frontends[0].Addr, 80), true
		ports = append(ports, p)
	}
	ports[7].Method, ports[8].Affinity = program.SourceHash, time.Hour
	c.apply(ports...)
	const most = 500
	got, want, largest := map[string]int{}, map[string]int{}, 0
	for p := NewParts(c.Contents, most); p.Left(); {
		n := 0
		for _, part := range p.Next() {
			elementsOf(got, part.Set, part.List, part.Want.Arena)
			n += len(part.List)
		}
		largest = max(largest, n)
	}
	w := program.NewWriter(program.IPv4)
	c.Everything(w)
	for id := range program.SetCount {
		elementsOf(want, id, w.Added(id), w.Arena)
	}
	for e := range want {
		if got[e] != 1 {
			t.Fatalf("%s is %d times in the parts", e, got[e])
		}
	}
	if len(got) != len(want) || largest > most {
		t.Errorf("%d elements, want %d; up to %d without a pause", len(got), len(want), largest)
	}
}

// TestPartsOfChanges: what was listed before a service port changed is listed again, but not for ever.
func TestPartsOfChanges(t *testing.T) {
	for seen := range 3 {
		for want, changed := range map[string]contents.Port{"0a000002": clusterIPPort(1, "10.0.0.2:80"), "": {Name: clusterIPPort(1).Name}} {
			c := &changing{Contents: New(program.IPv4, 0)}
			c.apply(clusterIPPort(1, "10.0.0.1:80"))
			p, got := NewParts(c.Contents, 100), map[string]int{}
			p.Next()
			for range seen {
				p.Next()
			}
			c.apply(changed)
			for p.Left() {
				for _, part := range p.Next() {
					if part.Set == program.Endpoints {
						elementsOf(got, part.Set, part.List, part.Want.Arena)
					}
				}
			}
			text := strings.Join(slices.Collect(maps.Keys(got)), " ")
			if (len(got) == 1) != (want != "") || !strings.Contains(text, want) {
				t.Errorf("changed after %d parts: %q", seen, text)
			}
		}
	}
	c := &changing{Contents: New(program.IPv4, 0)}
	p, calls := NewParts(c.Contents, 100), 0
	for c.apply(clusterIPPort(1, "10.0.0.1:80")); p.Left() && calls < 100; calls++ {
		p.Next()
		c.apply(clusterIPPort(1, fmt.Sprintf("10.0.0.%d:80", calls)))
	}
	if calls == 100 {
		t.Error("a port that changes all the time holds up the others")
	}
}

// TestPartsAreOfNow: of what service ports share, no part has an element that a change has replaced or removed meanwhile.
func TestPartsAreOfNow(t *testing.T) {
	hashed, sticky := clusterIPPort(1, "10.0.0.1:80", "10.0.0.2:80"), clusterIPPort(2, "10.0.0.3:80")
	hashed.Method, sticky.Affinity = program.SourceHash, time.Hour
	sticky.Answers = netip.MustParseAddrPort("10.96.0.2:80")
	changed := hashed
	changed.Cluster = endpointsAt("10.0.0.8:80", "10.0.0.9:80")
	for seen, more := 0, true; more; seen++ {
		c := &changing{Contents: New(program.IPv4, 0)}
		c.apply(hashed, sticky, clusterIPPort(3, "10.0.0.4:80"))
		p := NewParts(c.Contents, 100)
		for range seen {
			p.Next()
		}
		c.apply(changed, contents.Port{Name: sticky.Name}, contents.Port{Name: clusterIPPort(3).Name})
		got, now := map[string]int{}, map[string]int{}
		for more = p.Left(); p.Left(); {
			for _, part := range p.Next() {
				elementsOf(got, part.Set, part.List, part.Want.Arena)
			}
		}
		w := program.NewWriter(program.IPv4)
		c.Everything(w)
		for id := range program.SetCount {
			elementsOf(now, id, w.Added(id), w.Arena)
		}
		for e := range got {
			if now[e] == 0 {
				t.Fatalf("changed after %d calls: a part has %s", seen, e)
			}
		}
	}
}

// TestForgetSpares: when everything is written again, the chains that no service port needs are left out.
func TestForgetSpares(t *testing.T) {
	c := &changing{Contents: New(program.IPv4, 0)}
	p := clusterIPPort(1, "10.0.0.1:80", "10.0.0.2:80")
	p.Affinity = 90 * time.Second
	c.apply(p)
	c.apply(contents.Port{Name: p.Name})
	for _, forget := range []bool{false, true} {
		if forget {
			c.ForgetSpares()
		}
		if _, there := c.AllChains()["random-2-sticky-1m30s"]; there == forget || c.HasAffinity() == forget {
			t.Errorf("forgotten %t: the chain is there %t, affinity %t", forget, there, c.HasAffinity())
		}
	}
}

// TestNumbersOfTablesAreKept: until the first transaction, no table gets the number of another one in an earlier process.
func TestNumbersOfTablesAreKept(t *testing.T) {
	for applied, want := range map[bool]uint32{false: program.FirstTable + 1, true: program.FirstTable} {
		c := &changing{Contents: New(program.IPv4, 0)}
		im := NewImage()
		im.Hashed[100] = program.FirstTable<<program.TableShift | 80
		c.Adopt(im, nil)
		if applied {
			c.NoteApplied()
		}
		p := clusterIPPort(1, "10.0.0.1:80", "10.0.0.2:80")
		p.Method = program.SourceHash
		c.apply(p)
		if got := c.hash.Numbers(); len(got) != 1 || got[0] != want {
			t.Errorf("applied %t: the tables have the numbers %v, want %d", applied, got, want)
		}
	}
}
