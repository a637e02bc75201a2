package objects

import (
	"context"
	"os"
	"testing"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestEventLimiterIsItsOwn: a flood of Events does not take the requests of lists and watches.
func TestEventLimiterIsItsOwn(t *testing.T) {
	kubeconfig := t.TempDir() + "/kubeconfig"
	text := `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c"}}],"clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:1"}}]}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := config.Default()
	s.Kubeconfig = kubeconfig
	watches, err1 := NewClient(&s, "test", nil)
	notes, err2 := NewEventClient(&s, "test")
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	used := notes.EventsV1().RESTClient().GetRateLimiter()
	for used.TryAccept() {
	}
	if !watches.CoreV1().RESTClient().GetRateLimiter().TryAccept() {
		t.Error("lists and watches wait for Events")
	}
}

// awaited is a Source that records when MarkSynced waits for it.
type awaited struct {
	synced chan struct{}
	asked  chan struct{}
}

func newSource() awaited { return awaited{synced: make(chan struct{}), asked: make(chan struct{}, 1)} }

func (s awaited) Run(context.Context) error { return nil }

func (s awaited) Synced() <-chan struct{} {
	s.asked <- struct{}{}
	return s.synced
}

func TestMarkSyncedWaitsForAll(t *testing.T) {
	store := state.NewStore()
	sources := []awaited{newSource(), newSource(), newSource()}
	done := make(chan error, 1)
	go func() { done <- MarkSynced(context.Background(), store, sources[0], sources[1], sources[2]) }()
	for _, s := range sources {
		select {
		case <-s.asked:
		case err := <-done:
			t.Fatalf("MarkSynced returned %v before all sources were synced", err)
		}
		if _, ok := store.Pending(); ok {
			t.Fatal("the store is synced, but a source is not")
		}
		close(s.synced)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, ok := store.Pending(); !ok {
		t.Error("the store is not synced, but all sources are")
	}
}

func TestMarkSyncedEndsWithItsContext(t *testing.T) {
	store := state.NewStore()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := MarkSynced(ctx, store, newSource()); err == nil {
		t.Error("no error, although the source never delivered")
	}
	if _, ok := store.Pending(); ok {
		t.Error("the store is synced, although the source never delivered")
	}
}
