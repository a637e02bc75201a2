package state

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
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

// TestNamespacesWithoutTurnsComeFirst: a change comes before the many of tenants that had turns, once in a round of all.
func TestNamespacesWithoutTurnsComeFirst(t *testing.T) {
	s := syncedStore(t)
	touchAll(s, "a/1", "a/2", "a/3", "b/1", "b/2", "b/3")
	if _, got := taken(s, 3); got != "a/1 b/1 a/2" || s.Fresh() {
		t.Errorf("taken %q, want turns; fresh: %t", got, s.Fresh())
	}
	touchAll(s, "shop/web")
	if !s.Fresh() {
		t.Error("a namespace without a turn is not fresh")
	}
	if _, got := taken(s, 1); got != "shop/web" || s.Fresh() {
		t.Errorf("taken %q, want the namespace that had no turn; fresh: %t", got, s.Fresh())
	}
	touchAll(s, "shop/web")
	if _, got := taken(s, 3); got != "b/2 a/3 shop/web" {
		t.Errorf("taken %q, want the others before a namespace that had a turn", got)
	}
	touchAll(s, "shop/web")
	if _, got := taken(s, 9); got != "b/3 shop/web" || s.Rest() || s.Fresh() {
		t.Errorf("taken %q, want the rest", got)
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

// TestHold: a namespace on hold has no turns, and keeps its changes. The others go on.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // no time passes but that of the hold
		s := syncedStore(t)
		touchAll(s, "tenant/a", "shop/web", "tenant/b")
		s.Hold("tenant", time.Minute)
		touchAll(s, "tenant/c", "bank/web")
		c, got := taken(s, 9)
		if got != "shop/web bank/web" || s.Rest() {
			t.Errorf("taken %q, want those of the others", got)
		}
		s.Applied(c)
		touchAll(s, "tenant/a", "bank/web")
		expectPending(t, s, false, Name{"tenant", "a"}, Name{"tenant", "b"}, Name{"tenant", "c"}, Name{"bank", "web"})
		if c, got = taken(s, 9); got != "bank/web" {
			t.Errorf("taken %q, want those of the others", got)
		}
		s.Applied(c)
		drainWake(s)
		time.Sleep(time.Minute - 1)
		if synctest.Wait(); woken(s) || s.Rest() {
			t.Error("the hold ends too early")
		}
		time.Sleep(time.Nanosecond)
		if synctest.Wait(); !woken(s) {
			t.Error("the end of the hold does not wake the loop")
		}
		if _, got := taken(s, 9); got != "tenant/a tenant/b tenant/c" || s.Rest() {
			t.Errorf("taken %q, want the rest", got)
		}
	})
}

// TestTurnsByCost: a tenant whose changes are expensive has no more time than another one whose changes are cheap. A cheap change
// waits for one expensive one at most, and what changes again meanwhile is taken once.
func TestTurnsByCost(t *testing.T) {
	s := syncedStore(t)
	cost := map[string]time.Duration{"dear": 50 * Turn, "cheap": Turn, "calm": 2 * Turn}
	used, since := map[string]time.Duration{}, 0
	for round := range 10_000 {
		touchAll(s, "dear/a", "dear/b", "cheap/a", "cheap/b")
		if round%100 == 0 {
			touchAll(s, "calm/web") // waits for nobody who had turns
		}
		c, _ := s.Take(1)
		namespace := c.Services[0].Namespace
		if since++; namespace != "dear" {
			since = 0
		}
		if since > 1 {
			t.Fatal("others wait for two expensive changes")
		}
		if round%100 == 0 && namespace != "calm" && round > 0 {
			t.Errorf("round %d: calm/web waits for %s", round, c.Services[0])
		}
		used[namespace] += cost[namespace]
		s.Charge(namespace, cost[namespace])
		s.Applied(c)
	}
	if ratio := float64(used["dear"]) / float64(used["cheap"]); ratio < 0.8 || ratio > 1.3 {
		t.Errorf("they used %v", used)
	}
}

// TestClusterComesFirst: Services of the cluster itself wait for no tenant, and the hold of a namespace is not theirs.
func TestClusterComesFirst(t *testing.T) {
	s := syncedStore(t)
	touchAll(s, "tenant/a", "default/web", "tenant/b", "kube-system/dns", "default/kubernetes")
	if _, got := taken(s, 1); got != "kube-system/dns" || !s.Fresh() {
		t.Errorf("taken %q, want that of the cluster; fresh: %t", got, s.Fresh())
	}
	s.Hold("default", time.Hour)
	s.Charge("tenant", time.Hour)
	if _, got := taken(s, 9); got != "default/kubernetes tenant/a tenant/b" || s.Rest() {
		t.Errorf("taken %q, want all that are not on hold", got)
	}
	touchAll(s, "default/kubernetes")
	if _, got := taken(s, 9); got != "default/kubernetes" {
		t.Errorf("taken %q, want that of the cluster", got)
	}
}
