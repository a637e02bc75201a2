package proxier

import (
	"fmt"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier/plan"
)

func TestMethod(t *testing.T) {
	tests := []struct {
		scheduler string
		want      nft.Method
		problem   string
	}{
		{"", nft.Random, ""},
		{"random", nft.Random, ""},
		{"sh", nft.SourceHash, ""},
		{"mh", nft.SourceHash, ""},
		{"rr", nft.InTurn, ""},
		{"wrr", nft.InTurn, ""},
		{"lc", nft.Random, "needs IPVS"},
		{"twos", nft.Random, "needs IPVS"},
		{"fastest", nft.Random, "unknown scheduler"},
	}
	for _, tt := range tests {
		t.Run(tt.scheduler, func(t *testing.T) {
			s := Scheduling{Backend: config.BackendNFT, Unavailable: "--backend is nft"}
			m := s.choose(tt.scheduler, "")
			got, problem := m.nft, m.problem
			if got != tt.want || (problem == "") != (tt.problem == "") || !strings.Contains(problem, tt.problem) {
				t.Errorf("got %v, %q; want %v, %q", got, problem, tt.want, tt.problem)
			}
		})
	}
}

func TestSlots(t *testing.T) {
	tests := []struct {
		weights []uint16
		want    string
	}{
		{[]uint16{1, 3}, "[1 3]"},
		{[]uint16{100, 300, 200}, "[1 3 2]"},
		{[]uint16{65535, 1}, "[256 1]"},
		{[]uint16{1000, 999, 1}, "[128 128 1]"},
		{[]uint16{7, 5, 3}, "[7 5 3]"},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.weights), func(t *testing.T) {
			var list []plan.Endpoint
			for _, w := range tt.weights {
				list = append(list, plan.Endpoint{Weight: w})
			}
			if got := fmt.Sprint(slots(list)); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestEqualWeightsNeedNoSlots(t *testing.T) {
	for _, e := range endpoints([]plan.Endpoint{{Weight: 50}, {Weight: 50}}) {
		if e.Slots != 0 {
			t.Errorf("%d slots for an endpoint like all others, want the default", e.Slots)
		}
	}
}
