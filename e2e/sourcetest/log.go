package sourcetest

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// patience is how long a test waits at most. It says nothing about the expected time.
const patience = 3 * time.Minute

// Eventually waits until a condition holds.
func Eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("not reached within %v: %s", patience, what)
}

// Journal keeps the log of a test.
type Journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *Journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

// Lines returns the logged lines that contain all parts.
func (j *Journal) Lines(parts ...string) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []string
	for line := range strings.Lines(j.buf.String()) {
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
			found = append(found, line)
		}
	}
	return found
}

// NewLog returns a logger at level Info, the default of the daemon, and its journal.
func NewLog(t *testing.T) (*slog.Logger, *Journal) {
	t.Helper()
	j := &Journal{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log:\n%s", j.buf.String())
		}
	})
	return slog.New(slog.NewTextHandler(j, nil)), j
}

// Run starts a source and stops it at the end of the test. The test fails if the source does not stop.
func Run(t *testing.T, source func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- source(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("the source ended with error %v", err)
			}
		case <-time.After(patience):
			t.Error("the source does not stop when its context ends")
		}
	})
	t.Cleanup(stop)
	return stop
}

func Synced(s interface{ Synced() <-chan struct{} }) bool {
	select {
	case <-s.Synced():
		return true
	default:
		return false
	}
}

// Applied confirms the pending changes, so that a test sees only later ones.
func Applied(t *testing.T, store *state.Store) {
	t.Helper()
	c, ok := store.Pending()
	if !ok {
		t.Fatal("the store is not synced")
	}
	store.Applied(c)
}

// HasService reports whether the store has a Service with the given number of endpoints.
func HasService(store *state.Store, namespace, name string, endpoints int) bool {
	svc, slices := store.Service(state.Name{Namespace: namespace, Name: name})
	n := 0
	for _, s := range slices {
		n += len(s.Endpoints)
	}
	return svc != nil && n == endpoints
}

func LacksService(store *state.Store, namespace, name string) bool {
	svc, _ := store.Service(state.Name{Namespace: namespace, Name: name})
	return svc == nil
}
