package plan

import (
	"testing"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestResets: with on-removal: reset, open TCP connections stay while the slices have their endpoint, ready or not, and end
// when it has failed and gets no connections, or is gone.
func TestResets(t *testing.T) {
	for _, tt := range []struct {
		name   string
		edit   func(*Planner, *state.Service, *state.Slice)
		keep   string
		resets bool
	}{
		{"all are good", func(*Planner, *state.Service, *state.Slice) {}, "1 2 3", true},
		{"nobody wants it", func(_ *Planner, s *state.Service, _ *state.Slice) { s.OnRemoval = state.LeaveOpen }, "", false},
		{"not ready", func(_ *Planner, _ *state.Service, sl *state.Slice) { sl.Endpoints[0].Ready = false }, "1 2 3", true},
		{"terminating", func(_ *Planner, _ *state.Service, sl *state.Slice) {
			sl.Endpoints[0] = state.Endpoint{Addr: sl.Endpoints[0].Addr, Terminating: true}
		}, "1 2 3", true},
		{"gone", func(_ *Planner, _ *state.Service, sl *state.Slice) { sl.Endpoints = sl.Endpoints[1:] }, "2 3", true},
		{"all gone", func(_ *Planner, _ *state.Service, sl *state.Slice) { sl.Endpoints = nil }, "", true},
		{"failed", func(p *Planner, _ *state.Service, _ *state.Slice) { p.Health = fails(true, "10.0.0.1") }, "2 3", true},
		{"all failed, and get connections", func(p *Planner, _ *state.Service, _ *state.Slice) {
			p.Health = fails(true, "10.0.0.1", "10.0.0.2", "10.0.0.3")
		}, "1 2 3", true},
		{"no room for all", func(p *Planner, _ *state.Service, _ *state.Slice) { p.Limits.Elements = Limit{N: 2, Flag: "--test"} }, "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &Planner{}
			svc := service(func(s *state.Service) { s.OnRemoval = state.ResetThose })
			sl := slice("a", "10.0.0.1", "10.0.0.2", "10.0.0.3")
			tt.edit(p, svc, sl)
			port := portOf(t, p.Plan(svc, []*state.Slice{sl}, environment()), state.IPv4, "shop/web:http")
			keep := ""
			for _, at := range port.Serving {
				if keep != "" {
					keep += " "
				}
				keep += at.Addr().String()[len("10.0.0."):]
			}
			equal(t, "kept", keep, tt.keep)
			equal(t, "Resets", port.Resets, tt.resets)
		})
	}
}
