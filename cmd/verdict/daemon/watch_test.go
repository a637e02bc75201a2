//go:build !nokernel

package daemon

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/cmd/verdict/loopback"
	"github.com/verdict-proxy/verdict/e2e/netns"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
)

// TestWatchWithALostSocket closes the socket that reads the events of nf_tables. The loop is told to look at everything, and
// later events come from a new socket. Without it, the error ended the daemon.
func TestWatchWithALostSocket(t *testing.T) {
	n := netns.New(t)
	engine, err := nft.Open(nft.Options{NetNS: n.Fd()})
	if err != nil {
		t.Fatal(err)
	}
	k := &kernelSide{engine: engine}
	if k.watcher, err = engine.Watch(); err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Apply(); err != nil {
		t.Fatal(err)
	}
	lost := k.watcher
	ctx, cancel := context.WithCancel(t.Context())
	events, ended, log := make(chan dataplane.Interference), make(chan error, 1), &syncBuffer{}
	logger := slog.New(slog.NewTextHandler(log, nil))
	go func() { ended <- k.watch(ctx, loopback.NewKeeper(logger), events, logger) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := k.close(); err != nil {
			t.Error(err)
		}
	}()
	next := func() (i dataplane.Interference) {
		t.Helper()
		select {
		case i = <-events:
		case err := <-ended:
			t.Fatalf("the watch ended: %v", err)
		case <-time.After(3 * time.Minute):
			t.Fatalf("nothing is told; the log:\n%s", log)
		}
		return i
	}
	if err := lost.Close(); err != nil {
		t.Fatal(err)
	}
	if i := next(); !i.Lost {
		t.Errorf("after the loss: %+v", i)
	}
	n.Must(t, "add rule ip verdict nat-prerouting accept", "nft", "-f", "-")
	if i := next(); i.Lost || i.Process != "nft" {
		t.Errorf("after an edit: %+v", i)
	}
}

// syncBuffer is written by the daemon and read by the test.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
