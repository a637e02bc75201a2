package state

import (
	"net/netip"
	"reflect"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
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

// TestLatencies: each kind of change counts from when its Service first had one that the kernel does not have.
func TestLatencies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, web := NewStore(), Name{Namespace: "a", Name: "web"}
		ready := func(n int) {
			sl := &Slice{Name: Name{Namespace: "a", Name: "web-1"}, Service: web}
			for i := range n {
				sl.Endpoints = append(sl.Endpoints, Endpoint{Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), Ready: true})
			}
			s.SetSlice(sl, nil)
		}
		applied := func(what string, c Changes, want ...Latency) {
			t.Helper()
			if got := s.Applied(c); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		take := func() Changes {
			c, _ := s.Take(10)
			return c
		}
		s.SetService(&Service{Name: web}, nil)
		s.MarkSynced()
		time.Sleep(time.Second)
		applied("what was there at the start", take())

		ready(1)
		time.Sleep(time.Second)
		first := take()
		ready(0)
		time.Sleep(2 * time.Second)
		s.SetService(&Service{Name: web}, nil)
		applied("changes came after the pass had taken the first one", first,
			Latency{"endpoint_added", 3 * time.Second})
		time.Sleep(time.Second)
		applied("these changes", take(),
			Latency{"service", 3 * time.Second}, Latency{"endpoint_added", 3 * time.Second}, Latency{"endpoint_removed", 3 * time.Second})

		ready(2)
		applied("two endpoints", take(), Latency{"endpoint_added", 0})
		ready(1)
		applied("one endpoint", take(), Latency{"endpoint_removed", 0})
		ready(1)
		applied("another endpoint", take(), Latency{"endpoint_added", 0}, Latency{"endpoint_removed", 0})
		s.DeleteSlice(Name{Namespace: "a", Name: "web-1"})
		time.Sleep(time.Second)
		applied("no slice", take(), Latency{"endpoint_removed", time.Second})
		s.PlanAgain(web)
		applied("planned again", take())
	})
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
