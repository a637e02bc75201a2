package state

import "testing"

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
