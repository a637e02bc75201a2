package elements

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/ledger"
	"github.com/verdict-proxy/verdict/nft/program"
)

// changing is contents that the kernel takes over at once.
type changing struct{ *Contents }

// apply makes one transaction of service ports: a port without frontends goes.
func (c *changing) apply(ports ...contents.Port) {
	w := program.NewWriter(program.IPv4)
	for i := range ports {
		if p := &ports[i]; len(p.Frontends) == 0 {
			c.Delete(w, p.Name)
		} else {
			c.Set(w, p)
		}
	}
	c.Finish(w)
	c.Write(w)
	c.Settle()
}

func clusterIPPort(n int, endpoints ...string) contents.Port {
	return contents.Port{Family: program.IPv4, Name: fmt.Sprintf("ns/svc-%d:p", n), Protocol: 6, Cluster: endpointsAt(endpoints...),
		Frontends: []contents.Frontend{{Addr: numberedAddr(n), Port: 80, ClusterIP: true, Pool: program.ClusterPool}}}
}

// TestForgetSpares: when everything is written again, the chains that no service port needs are left out.
func TestForgetSpares(t *testing.T) {
	c := &changing{New(program.IPv4, program.Program{})}
	p := clusterIPPort(1, "10.0.0.1:80", "10.0.0.2:80")
	p.Affinity = 90 * time.Second
	c.apply(p)
	c.apply(contents.Port{Name: p.Name})
	for _, forget := range []bool{false, true} {
		if forget {
			c.ForgetSpares()
		}
		if _, there := c.Chains.All(c.Program())["random-2-sticky-1m30s"]; there == forget || c.HasAffinity() == forget {
			t.Errorf("forgotten %t: the chain is there %t, affinity %t", forget, there, c.HasAffinity())
		}
	}
}

// TestNumbersOfTablesAreKept: until the first transaction, no table gets the number of another one in an earlier process.
func TestNumbersOfTablesAreKept(t *testing.T) {
	for applied, want := range map[bool]uint32{false: program.FirstTable + 1, true: program.FirstTable} {
		c := &changing{New(program.IPv4, program.Program{})}
		im := NewImage()
		im.Hashed[100] = program.FirstTable<<program.TableShift | 80
		c.Adopt(im, nil)
		if applied {
			c.NoteApplied()
		}
		p := clusterIPPort(1, "10.0.0.1:80", "10.0.0.2:80")
		p.Method = program.SourceHash
		c.apply(p)
		c.Each((*ledger.Account).Wanted, func(_ *ledger.Account, r *ledger.Record) {
			if number := binary.NativeEndian.Uint32(r.Key) >> program.TableShift; r.Set == program.HashSlots && number != want {
				t.Fatalf("applied %t: the table has the number %d, want %d", applied, number, want)
			}
		})
		if c.Count(program.HashSlots) == 0 {
			t.Errorf("applied %t: there is no table", applied)
		}
	}
}
