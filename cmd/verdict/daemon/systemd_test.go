package daemon

import (
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/proxier/health"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestWatchdogStarves: systemd gets nothing more for its watchdog while the loop is stuck or a change waits too long.
func TestWatchdogStarves(t *testing.T) {
	name := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	t.Setenv("NOTIFY_SOCKET", name)
	now := time.Now()
	proxy := health.NewProxy(health.ProxyOptions{Timeout: time.Minute, Now: func() time.Time { return now }})
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
