package daemon

import (
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/health"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// notifySocket is the socket of a manager, to which this process sends its notifications.
func notifySocket(t *testing.T) *net.UnixConn {
	t.Helper()
	name := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	t.Setenv("NOTIFY_SOCKET", name)
	return c
}

// TestWatchdogStarves: systemd gets nothing more for its watchdog while the loop is stuck or a change waits too long.
func TestWatchdogStarves(t *testing.T) {
	c := notifySocket(t)
	now := time.Now()
	proxy := health.NewProxy(health.ProxyOptions{Timeout: time.Minute, Pause: noPause, Now: func() time.Time { return now }})
	s := &supervised{
		proxy: proxy, daemon: &socket.Daemon{Journal: socket.NewJournal(), Store: state.NewStore()},
		watchdog: time.Minute, log: slog.New(slog.DiscardHandler),
	}
	fed := func() bool {
		s.report()
		s.notify("END=1")
		for buffer, got := make([]byte, 4096), ""; ; {
			n, err := c.Read(buffer)
			if err != nil {
				t.Fatal(err)
			}
			if string(buffer[:n]) == "END=1" {
				return strings.Contains(got, "WATCHDOG=1")
			}
			got += string(buffer[:n])
		}
	}
	for _, step := range []struct {
		name string
		do   func()
		want bool
	}{
		{"at the start", func() {}, true},
		{"the loop turns", proxy.Turned, true},
		{"a change waits", func() { proxy.Pending(now) }, true},
		{"the loop turns for a minute, but the change still waits", func() { now = now.Add(time.Minute); proxy.Turned() }, true}, // a restart would not help
		{"the kernel has it", func() { proxy.PassDone(now, true) }, true},
		{"the loop is stuck", func() { now = now.Add(time.Minute) }, false},
		{"it goes on", proxy.Turned, true},
	} {
		if step.do(); fed() != step.want {
			t.Errorf("%s: the watchdog is served: %v, want %v", step.name, !step.want, step.want)
		}
	}
}

// TestManagerDoesNotRead: the manager reads nothing until its socket is full. Notifications do not wait for it for ever, and what
// was not delivered is said again.
func TestManagerDoesNotRead(t *testing.T) {
	c := notifySocket(t)
	proxy := health.NewProxy(health.ProxyOptions{Timeout: time.Hour, Pause: noPause, Now: time.Now})
	s := &supervised{
		proxy: proxy, daemon: &socket.Daemon{Journal: socket.NewJournal(), Store: state.NewStore()},
		watchdog: time.Minute, files: newReloader("", &config.Settings{}, state.NewStore(), nil), log: slog.New(slog.DiscardHandler),
	}
	s.files.store.MarkSynced()
	for n := 0; s.notify("FILLS=1"); n++ {
		if n > 10_000 { // net.unix.max_dgram_qlen is 10 or 512
			t.Fatal("the socket is never full")
		}
	}
	proxy.Turned()
	proxy.PassDone(time.Now(), true)
	s.report()
	if err := s.reload(t.Context()); err != nil {
		t.Error(err)
	}
	if s.ready.Load() {
		t.Error("systemd has read nothing, and counts as told that the process is ready")
	}
	ready := make(chan bool)
	go func() {
		for buffer := make([]byte, 4096); ; {
			n, err := c.Read(buffer)
			if text := string(buffer[:n]); err != nil || strings.HasPrefix(text, "READY=1\n") {
				ready <- strings.Contains(text, "\nSTATUS=")
				return
			}
		}
	}()
	for late := time.Now().Add(3 * time.Minute); !s.ready.Load(); s.report() {
		if time.Now().After(late) {
			t.Fatal("nothing is delivered to a manager that reads again")
		}
	}
	if !<-ready {
		t.Error("the manager is not told that the process is ready, and its status")
	}
}

func noPause() time.Duration { return 0 }
