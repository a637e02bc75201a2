//go:build !nokernel

package host

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// patience is how long a test waits at most. It says nothing about the expected time.
const patience = 30 * time.Second

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("not reached within %v: %s", patience, what)
}

// journal keeps the log of a test.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

// lines returns the logged lines that contain all parts.
func (j *journal) lines(parts ...string) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []string
	for line := range strings.Lines(j.buf.String()) {
		all := true
		for _, p := range parts {
			all = all && strings.Contains(line, p)
		}
		if all {
			found = append(found, line)
		}
	}
	return found
}

// newLog returns a logger at level Info, the default of the daemon, and its journal.
func newLog(t *testing.T) (*slog.Logger, *journal) {
	t.Helper()
	j := &journal{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log:\n%s", j.buf.String())
		}
	})
	return slog.New(slog.NewTextHandler(j, nil)), j
}

// run starts a source and stops it at the end of the test. The test fails if the source does not stop.
func run(t *testing.T, source func(context.Context) error) (stop func()) {
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

func synced(a *Addresses) bool {
	select {
	case <-a.Synced():
		return true
	default:
		return false
	}
}

// applied confirms the pending changes, so that a test sees only later ones.
func applied(t *testing.T, store *state.Store) {
	t.Helper()
	c, ok := store.Pending()
	if !ok {
		t.Fatal("the store is not synced")
	}
	store.Applied(c)
}

func addrs(list ...string) (out []netip.Addr) {
	for _, a := range list {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}
