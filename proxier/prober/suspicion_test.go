package prober

import (
	"testing"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
)

// TestSuspicion: a server that accepts connections is good, whatever it says.
func TestSuspicion(t *testing.T) {
	for _, tt := range []struct {
		at   string
		want probe.Answer
	}{
		{server(t, ""), probe.Answer{Connected: true}},
		{closed(t), probe.Answer{Fault: probe.Refused, Why: "connection refused"}},
	} {
		if a := ask(t, "tcp", tt.at, "off"); a != tt.want {
			t.Errorf("%+v, want %+v", a, tt.want)
		}
	}
}
