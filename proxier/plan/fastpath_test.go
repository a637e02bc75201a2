package plan

import (
	"testing"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestSlowPath: a port says why its connections stay on the rules. What concerns all comes first.
func TestSlowPath(t *testing.T) {
	const annotation, sctp = "the annotation verdict-proxy.github.io/fast-path is off", "the kernel has no fast path for SCTP"
	for _, tt := range []struct {
		protocol state.Protocol
		off      bool
		all      string
		want     string
	}{
		{protocol: state.TCP}, {protocol: state.UDP}, {protocol: state.SCTP, want: sctp},
		{protocol: state.UDP, off: true, want: annotation}, {protocol: state.SCTP, off: true, all: "why", want: "why"},
	} {
		svc := service(func(svc *state.Service) { svc.Ports[0].Protocol, svc.SlowPath = tt.protocol, tt.off })
		env := environment()
		env.SlowPath = tt.all
		is := planned(svc, nil, env)
		if len(is.Ports) == 0 {
			t.Fatal("nothing is planned")
		}
		for i := range is.Ports {
			if got := is.Ports[i].SlowPath; got != tt.want {
				t.Errorf("%+v: %q, want %q", tt, got, tt.want)
			}
		}
	}
}
