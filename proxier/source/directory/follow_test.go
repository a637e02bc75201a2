package directory

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

// TestFollowWithoutEvents: too many events get lost, and network mounts send none. The follower watches nothing at
// first, so only the event under test can make it read.
func TestFollowWithoutEvents(t *testing.T) {
	for name, tt := range map[string]struct {
		every time.Duration
		lost  bool
	}{
		"overflow":     {every: time.Hour, lost: true},
		"regular look": {every: 10 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			watcher, err := fsnotify.NewWatcher()
			if err != nil {
				t.Fatal(err)
			}
			defer watcher.Close()
			ctx, read := context.WithCancel(t.Context())
			follower := follower{
				Options: Options{
					Dir: t.TempDir(), Links: func() []string { return nil }, Unread: func() bool { return false }, Log: slog.New(slog.DiscardHandler),
					Scan: func() error {
						read()
						return nil
					},
				},
				watcher: watcher, every: tt.every,
			}
			if tt.lost {
				go func() { watcher.Errors <- fsnotify.ErrEventOverflow }()
			}
			if err := follower.follow(ctx); err != nil || !errors.Is(ctx.Err(), context.Canceled) {
				t.Errorf("error %v, context %v; want to read once more", err, ctx.Err())
			}
		})
	}
}

// TestFollowEndsWithItsWatch: without its watch, the source returns an error.
func TestFollowEndsWithItsWatch(t *testing.T) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	if err := watcher.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	follower := follower{Options: Options{Dir: dir}, watcher: watcher, every: time.Hour}
	if err := follower.follow(t.Context()); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v, want an error that names the directory", err)
	}
}

// TestSettling: the wait ends after a moment of quiet, and after the longest wait if events never stop.
func TestSettling(t *testing.T) {
	var s settling
	if s.over() != nil {
		t.Fatal("waits although nothing has happened")
	}
	start := time.Now()
	s.happened(start)
	<-s.over()
	for _, tt := range []struct{ after, want time.Duration }{
		{0, quietPeriod},
		{longestWait - quietPeriod, quietPeriod},
		{longestWait - quietPeriod/2, quietPeriod / 2},
		{longestWait, 0},
		{2 * longestWait, -longestWait},
	} {
		if got := s.wait(start.Add(tt.after)); got != tt.want {
			t.Errorf("%v after the first event: waits %v, want %v", tt.after, got, tt.want)
		}
	}
	s.happened(start.Add(time.Hour))
	<-s.over()
}
