package prober

import (
	"testing"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth"
)

// TestSuspicion: a server that accepts connections is good, whatever it says.
func TestSuspicion(t *testing.T) {
	for _, tt := range []struct {
		at   string
		want endpointhealth.Answer
	}{
		{server(t, ""), endpointhealth.Answer{Connected: true}},
		{closed(t), endpointhealth.Answer{Fault: endpointhealth.Refused, Why: "connection refused"}},
	} {
		if a := ask(t, "tcp", tt.at, "off"); a != tt.want {
			t.Errorf("%+v, want %+v", a, tt.want)
		}
	}
}
