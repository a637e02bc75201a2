package preflight

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// TestKernelLacksFeatures: when the kernel refuses the tables, one line names the kernel, what it lacks, and what to
// do.
func TestKernelLacksFeatures(t *testing.T) {
	refused := func(f program.Family, name string, err error) kernel.Feature {
		return kernel.Feature{Family: f, Name: name, Module: "nft_x", Err: err}
	}
	tests := []struct {
		name  string
		probe []kernel.Feature
		err   error
		want  []string // parts of the line; none: no line
	}{
		{"nothing is missing", []kernel.Feature{refused(program.IPv4, "jhash", nil)}, nil, nil},
		{
			"features are missing",
			[]kernel.Feature{
				refused(program.IPv4, "jhash", unix.ENOENT), refused(program.IPv6, "jhash", unix.ENOENT),
				refused(program.IPv6, "fib", unix.EPERM),
			},
			nil,
			[]string{
				"load the modules, or boot a kernel of version 5.13 or newer", "kernel=" + Release(),
				`missing="jhash (ip, ip6; modules nft_x); fib (ip6; modules nft_x)"`,
			},
		},
		{"the probe fails", nil, errors.New("no socket"), []string{"cannot find out whether the kernel lacks", "no socket"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			probe := func() ([]kernel.Feature, error) { return tt.probe, tt.err }
			explain := explainRefusal(probe, slog.New(slog.NewTextHandler(&out, nil)))
			explain()
			explain()
			if lines := strings.Count(out.String(), "\n"); lines != min(len(tt.want), 1) {
				t.Errorf("%d lines: %s", lines, out.String())
			}
			for _, part := range tt.want {
				if !strings.Contains(out.String(), part) {
					t.Errorf("the line lacks %q: %s", part, out.String())
				}
			}
		})
	}
}

// TestKernelFamilies: what the kernel lacks for IPv6 does not take IPv4 down.
func TestKernelFamilies(t *testing.T) {
	both := []program.Family{program.IPv4, program.IPv6}
	lacks := kernel.Feature{Family: program.IPv6, Name: "dnat", Module: "nft_chain_nat, nft_nat", Err: unix.ENOENT}
	for _, tt := range []struct {
		name  string
		ipv6  bool
		probe []kernel.Feature
		err   error
		want  []program.Family
		line  string
	}{
		{name: "both", ipv6: true, probe: []kernel.Feature{{Family: program.IPv6, Name: "dnat"}}, want: both},
		{name: "no IPv6", want: []program.Family{program.IPv4}, line: "the kernel has no IPv6"},
		{name: "no NAT for IPv6", ipv6: true, probe: []kernel.Feature{lacks}, want: []program.Family{program.IPv4}, line: `missing="dnat (ip6; modules nft_chain_nat, nft_nat)"`},
		{name: "the probe fails", ipv6: true, err: unix.EPERM, want: both},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			got := Families(tt.ipv6, func() ([]kernel.Feature, error) { return tt.probe, tt.err }, slog.New(slog.NewTextHandler(&out, nil)))
			if !slices.Equal(got, tt.want) {
				t.Errorf("families %v, want %v", got, tt.want)
			}
			if (tt.line == "") != (out.Len() == 0) || !strings.Contains(out.String(), tt.line) {
				t.Errorf("log %q, want %q", out.String(), tt.line)
			}
		})
	}
}
