package elements

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/verdict-proxy/verdict/nft/program"
)

// TestPassLooksAtNoPortThatWaits: however many ports wait for their hash tables, a pass looks at none of them, also if a table changes in
// place. To count, each port has a turn to be one that ends the pass when it looks whether the tables are there.
func TestPassLooksAtNoPortThatWaits(t *testing.T) {
	looks := func(n int) (seen int) {
		for trap := range n {
			c := &changing{New(program.IPv4, program.Program{})}
			port := func(n, last int) string {
				var endpoints []string
				for _, host := range []int{1, 2, 3, 4, 5, 6, 7, 8, last} {
					endpoints = append(endpoints, fmt.Sprintf("10.0.%d.%d:80", n, host))
				}
				p := clusterIPPort(n, endpoints...)
				p.Method = program.SourceHash
				c.Set(program.NewWriter(program.IPv4), &p)
				return p.Name
			}
			comes := port(0, 9)
			c.apply()
			c.Later.Limit(1000) // a table has 4,093 slots
			for i := range n {
				if name := port(1+i, 9); i == trap {
					clear(c.Later.ports[name].tables)
				}
			}
			port(0, 10)
			func() {
				defer func() {
					if recover() != nil {
						seen++
					}
				}()
				c.Enter(program.NewWriter(program.IPv4))
				if c.Later.ports[comes] != nil || len(c.Later.ports) != n {
					t.Fatalf("%d ports wait, want %d", len(c.Later.ports), n)
				}
			}()
		}
		return seen
	}
	if few, many := looks(6), looks(60); few != 0 || many != 0 {
		t.Errorf("a pass looks at %d of 6 ports that wait, and at %d of 60", few, many)
	}
}

// TestNoPortIsForgotten makes random changes of ports that share hash tables and of others. After each pass, each port that waits and
// whose tables are there is in line, and in the end none waits.
func TestNoPortIsForgotten(t *testing.T) {
	for seed := range uint64(4) {
		const limit = 600
		waited := map[string]int{}
		c, random := &changing{New(program.IPv4, program.Program{})}, rand.New(rand.NewPCG(seed, 0))
		pass := func() {
			c.Enter(program.NewWriter(program.IPv4))
			c.apply()
			c.Hash.DeletePiece(limit)
			c.Later.wake(c.Hash.TakeReady()...)
			for name, one := range c.Later.ports {
				switch there := ready(one.tables); {
				case there && !slices.Contains(c.Later.ready, one):
					t.Fatalf("seed %d: %s is not in line, and its tables are there", seed, name)
				case there:
					waited["for their turn"]++
				default:
					waited["for tables"]++
				}
			}
		}
		for step := range 150 {
			c.Later.Limit(limit)
			if step%50 == 0 {
				c.Later.Limit(0)
			}
			list := []string{"10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80", "10.0.0.5:80", "10.0.0.6:80", "10.0.0.7:80", "10.0.0.8:80",
				fmt.Sprintf("10.0.1.%d:80", random.IntN(4)), "10.1.0.1:80", "10.1.0.2:80", "10.1.0.3:80"}
			for range random.IntN(5) {
				p := clusterIPPort(random.IntN(8), list[:9+random.IntN(3)]...)
				if p.Method = program.SourceHash; random.IntN(4) == 0 {
					p.Local = p.Cluster[1+random.IntN(2):]
				}
				if random.IntN(4) == 0 {
					c.Delete(program.NewWriter(program.IPv4), p.Name)
				} else {
					c.Set(program.NewWriter(program.IPv4), &p)
				}
			}
			for i := range random.IntN(60) {
				p := clusterIPPort(100+i, list[random.IntN(8):]...)
				c.Set(program.NewWriter(program.IPv4), &p)
			}
			pass()
		}
		for n := 0; len(c.Later.ports) > 0; n++ {
			if pass(); n == 1000 {
				t.Fatalf("seed %d: %d ports wait for ever", seed, len(c.Later.ports))
			}
		}
		if len(waited) < 2 {
			t.Errorf("seed %d: ports waited %v: the test shows too little", seed, waited)
		}
	}
}
