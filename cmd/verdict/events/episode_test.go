package events

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes/fake"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestOneEventForAnEpisode: the nodes of a cluster notice the same dead endpoint, and one Event says so. Another
// episode, half an hour later, is another Event.
func TestOneEventForAnEpisode(t *testing.T) {
	client := fake.NewClientset()
	at := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	for _, node := range []string{"node-1", "node-2"} {
		for _, when := range []time.Time{at, at.Add(time.Minute), at.Add(30 * time.Minute)} {
			store := state.NewStore()
			store.SetService(&state.Service{
				Name: badService, UID: state.ParseUID("6a3c1f5e-0b8d-4c57-9d0e-2f1a7b9c8d7e"),
				ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")},
			}, nil)
			e := New(client, node, store, slog.New(slog.DiscardHandler))
			e.Outlier(endpointhealth.Episode{Reason: "EndpointNotAnswering", Service: badService, Text: "endpoint 10.0.2.1:80 does not accept connections"}, when)
			raiseAll(t, e)
		}
	}
	list := raised(t, client)
	if len(list) != 2 {
		t.Fatalf("%d Events, want 2", len(list))
	}
	for _, e := range list {
		if e.Reason != "EndpointNotAnswering" || !strings.HasPrefix(e.Note, "endpoint 10.0.2.1:80 does not") {
			t.Errorf("reason %s, Event %q", e.Reason, e.Note)
		}
	}
}
