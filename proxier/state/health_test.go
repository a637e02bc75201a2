package state

import (
	"net/netip"
	"slices"
	"testing"
)

func unhealthy(at string) Health {
	return Health{{Protocol: TCP, At: netip.MustParseAddrPort(at)}}
}

// TestHealthIsAChange: it is pending until it is applied, and a repeated or empty word is none. It does not count as a change of
// Services or endpoints.
func TestHealthIsAChange(t *testing.T) {
	s := syncedStore(t, func(s *Store) { s.SetService(service(web), nil) })
	counts := s.ChangeCounts()
	pending := func(what string, want ...Name) {
		t.Helper()
		c, _ := s.Take(10)
		if !slices.Equal(c.Services, want) {
			t.Errorf("%s: %v changed, want %v", what, c.Services, want)
		}
		s.Applied(c)
	}
	s.SetHealth(web, nil)
	pending("nothing is wrong")
	s.SetHealth(web, unhealthy("10.0.0.1:80"))
	if h := s.Health(web); len(h) != 1 {
		t.Errorf("the store has %v", h)
	}
	pending("an endpoint fails", web)
	s.SetHealth(web, unhealthy("10.0.0.1:80"))
	pending("it still fails")
	s.SetHealth(mail, unhealthy("10.0.0.1:80"))
	pending("no such Service")
	s.PlanAgain(web)
	pending("somebody wants another plan", web)
	s.SetHealth(web, nil)
	pending("all are good", web)
	if after := s.ChangeCounts(); after != counts {
		t.Errorf("counts: %+v, before %+v", after, counts)
	}
	s.SetHealth(web, unhealthy("10.0.0.1:80"))
	if s.DeleteService(web); s.Health(web) != nil {
		t.Error("the Service is gone, and its health is not")
	}
}

// TestHealthBeforeServices: what an earlier process knew comes before the Services. What is no Service is forgotten.
func TestHealthBeforeServices(t *testing.T) {
	s := NewStore()
	s.SetHealth(web, unhealthy("10.0.0.1:80"))
	s.SetHealth(mail, unhealthy("10.0.0.1:80"))
	s.SetService(service(web), nil)
	s.MarkSynced()
	if s.Health(web) == nil || s.Health(mail) != nil {
		t.Errorf("the store has %v and %v", s.Health(web), s.Health(mail))
	}
}
