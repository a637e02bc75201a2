package state

import (
	"strconv"
	"testing"
)

func TestChangeCounts(t *testing.T) {
	s := NewStore()
	web, shop := Name{Namespace: "a", Name: "web"}, Name{Namespace: "a", Name: "shop"}
	slice := Name{Namespace: "a", Name: "web-1"}
	check := func(what string, want ChangeCounts) {
		t.Helper()
		if got := s.ChangeCounts(); got != want {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	s.MarkSynced()
	check("nothing happened", ChangeCounts{})
	s.SetService(&Service{Name: web}, nil)
	s.SetService(&Service{Name: web}, nil)
	s.SetService(&Service{Name: shop}, nil)
	s.SetSlice(&Slice{Name: slice, Service: web}, nil)
	check("four changes of two Services", ChangeCounts{Services: 3, Endpoints: 1, PendingServices: 2, PendingEndpoints: 1})

	taken, _ := s.Take(10)
	s.SetService(&Service{Name: shop}, nil)
	check("a change while a pass works", ChangeCounts{Services: 4, Endpoints: 1, PendingServices: 2, PendingEndpoints: 1})
	s.Applied(taken)
	check("the pass is applied", ChangeCounts{Services: 4, Endpoints: 1, PendingServices: 1})

	s.DeleteSlice(slice)
	s.DeleteSlice(slice)
	s.DeleteService(shop)
	s.DeleteService(shop)
	check("what is unknown is no change", ChangeCounts{Services: 5, Endpoints: 2, PendingServices: 1, PendingEndpoints: 1})
	taken, _ = s.Take(10)
	s.Applied(taken)
	check("everything is applied", ChangeCounts{Services: 5, Endpoints: 2})
}

// BenchmarkChangeCounts asks as a scrape does, once for each of the four metrics, while 50,000 changes wait. Writers wait
// for as long.
func BenchmarkChangeCounts(b *testing.B) {
	s := NewStore()
	for i := range 50_000 {
		s.SetService(&Service{Name: Name{Namespace: "n", Name: strconv.Itoa(i)}}, nil)
	}
	for b.Loop() {
		for range 4 {
			if c := s.ChangeCounts(); c.PendingServices != 50_000 {
				b.Fatalf("%d Services wait, want 50000", c.PendingServices)
			}
		}
	}
}
