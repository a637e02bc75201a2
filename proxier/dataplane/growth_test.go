package dataplane

import (
	"errors"
	"fmt"
	"testing"

	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// fullRuleset refuses every port once it is full.
type fullRuleset struct {
	*nft.Memory
	full bool
}

func (r *fullRuleset) Set(p *nft.Port) error {
	if r.full {
		return errors.New("injected: over the limit")
	}
	return r.Memory.Set(p)
}

// BenchmarkRefusedPorts sets a Service whose ports the nft engine had and refuses now. The cost must grow with the number
// of ports, and not with its square.
func BenchmarkRefusedPorts(b *testing.B) {
	for _, n := range []int{200, 2000, 20_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			rules := &fullRuleset{Memory: nft.OpenMemory(nft.Options{})}
			d := New(Options{Ruleset: rules})
			planned := &plan.Service{Name: web}
			for i := range n {
				planned.Ports = append(planned.Ports, plan.Port{Family: state.IPv4, Protocol: state.TCP, Name: fmt.Sprint("default/web:", i)})
			}
			d.Set(planned)
			rules.full = true
			for b.Loop() {
				d.Set(planned)
			}
		})
	}
}
