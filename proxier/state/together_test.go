package state

import (
	"testing"
	"time"
)

// TestTogether moves an endpoint between two slices again and again. A reader must find it in exactly one of them.
func TestTogether(t *testing.T) {
	s := syncedStore(t, func(s *Store) { s.SetService(service(web), nil) })
	slices := []Name{named("web-a"), named("web-b")}
	move := func(to int) {
		s.Together(func() {
			s.SetSlice(sliceOf(slices[1-to], web), nil)
			time.Sleep(100 * time.Microsecond) // in which the reader looks
			s.SetSlice(sliceOf(slices[to], web, "10.0.0.1"), nil)
		})
	}
	move(0)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := range 100 {
			move(i % 2)
		}
	}()
	for {
		_, list := s.Service(web)
		found := 0
		for _, sl := range list {
			found += len(sl.Endpoints)
		}
		if found != 1 {
			t.Fatalf("the reader found the endpoint %d times", found)
		}
		select {
		case <-ended:
			return
		default:
		}
	}
}
