package state

import (
	"fmt"
	"strings"
	"testing"
)

// taken takes n Services and prints them.
func taken(s *Store, n int) (Changes, string) {
	c, _ := s.Take(n)
	var words []string
	for _, name := range c.Services {
		words = append(words, name.String())
	}
	return c, strings.Join(words, " ")
}

func touchAll(s *Store, names ...string) {
	for _, name := range names {
		namespace, own, _ := strings.Cut(name, "/")
		s.SetService(service(Name{Namespace: namespace, Name: own}), nil)
	}
}

// TestNamespacesHaveTurns: a tenant with many changes does not keep others waiting, and a Service that changes all the
// time does not keep the others of its namespace waiting.
func TestNamespacesHaveTurns(t *testing.T) {
	s := syncedStore(t)
	touchAll(s, "tenant/c", "tenant/b", "tenant/a", "tenant/c", "shop/web", "bank/web")
	for i, want := range []string{"tenant/c shop/web", "bank/web tenant/b", "tenant/a tenant/c"} {
		if _, got := taken(s, 2); got != want {
			t.Errorf("take %d: %q, want %q", i, got, want)
		}
		touchAll(s, "tenant/c") // comes after the others
	}
}

// TestTakenStaysPending: what a pass took is forgotten only when the kernel has it, and what changed meanwhile is taken
// again.
func TestTakenStaysPending(t *testing.T) {
	s := syncedStore(t)
	touchAll(s, "default/web", "default/mail")
	c, _ := taken(s, 2)
	if s.Rest() {
		t.Error("Services wait to be taken although all were")
	}
	expectPending(t, s, false, web, mail)
	touchAll(s, "default/web")
	s.Applied(c)
	expectPending(t, s, false, web)
	if _, got := taken(s, 9); got != "default/web" || s.Rest() {
		t.Errorf("taken %q, want the one that changed again", got)
	}
	expectPending(t, s, false, web)
}

// TestTakeWithoutServices: what changed in the environment is confirmed by the changes that had it, and by no others.
func TestTakeWithoutServices(t *testing.T) {
	s := syncedStore(t)
	c, _ := s.Take(0)
	s.SetNode(&Node{Name: "n"}, nil)
	s.Applied(c)
	expectPending(t, s, true)
	c, _ = s.Take(0)
	c.Environment = false
	s.Applied(c)
	expectPending(t, s, true)
}

// BenchmarkTake takes all changes one by one. The cost of each must not depend on how many wait.
func BenchmarkTake(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := NewStore()
			s.MarkSynced()
			var names []Name
			for i := range n {
				names = append(names, Name{Namespace: fmt.Sprint("ns", i%100), Name: fmt.Sprint("s", i)})
			}
			for b.Loop() {
				for _, name := range names {
					s.touch(name, serviceChanged)
				}
				for s.Rest() {
					c, _ := s.Take(1)
					s.Applied(c)
				}
			}
		})
	}
}
