package demo

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The daemon logs with slog. The fields that the demo reads survive the way through JSON.
func TestEntryOfTheLog(t *testing.T) {
	read, write := io.Pipe()
	p := &proxy{log: make(chan entry, 4), ended: make(chan error, 1)}
	go p.read(read)
	log := slog.New(slog.NewJSONHandler(write, &slog.HandlerOptions{Level: slog.LevelDebug}))
	log.Debug("pass applied", "services", 1, "added", 4, "deleted", 8, "bytes", 276, "kernel", 377*time.Microsecond, "duration", time.Millisecond)
	log.Error("pass not applied", "error", errors.New("no"), "added", 3)
	if _, err := io.WriteString(write, "verdict: plain words\n"); err != nil {
		t.Fatal(err)
	}
	write.Close()
	want := []entry{
		{Level: "DEBUG", Msg: "pass applied", Added: 4, Deleted: 8, Bytes: 276, Kernel: 377 * time.Microsecond, Duration: time.Millisecond},
		{Level: "ERROR", Msg: "pass not applied", Error: "no", Added: 3},
		{Level: "ERROR", Msg: "verdict: plain words"},
	}
	for i, changed := range []bool{true, false, false} {
		e, open := <-p.log
		if !open || e != want[i] || e.changed() != changed {
			t.Errorf("entry %+v, changed %v; want %+v, %v", e, e.changed(), want[i], changed)
		}
	}
	if _, open := <-p.log; open {
		t.Error("the log goes on after its end")
	}
}

// TestInterruptedWhileItStarts: the proxy ends by a Ctrl-C that reaches the demo later.
func TestInterruptedWhileItStarts(t *testing.T) {
	p := startFailing(t, "is interrupted")
	p.ended <- <-p.ended
	ctx, interrupt := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, interrupt)
	if _, err := p.await(ctx, "it was ready", (*entry).changed); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the demo is interrupted", err)
	}
}

// startFailing starts this test binary as a "verdict run" that fails.
func startFailing(t *testing.T, how string) *proxy {
	t.Helper()
	t.Setenv(fault, how)
	p, err := startProxy([]string{"--manifests", "x"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.process.Process.Kill(); err == nil {
			<-p.ended
		}
	})
	return p
}

func TestAwaitTellsWhatIsWrong(t *testing.T) {
	tests := []struct {
		how     string
		patient bool // wait without a limit
		fails   string
	}{
		{"ends at once", true, "verdict run: verdict: --manifests: no such folder"},
		{"ends without a word", true, "verdict run ended before the rules were in the kernel"},
		{"reports an error", true, "verdict run: pass not applied: operation not permitted"},
		{"warns only", false, "wait until the rules were in the kernel: context deadline exceeded; it warned: object cannot be honored: no port"},
	}
	for _, tt := range tests {
		t.Run(tt.how, func(t *testing.T) {
			p := startFailing(t, tt.how)
			ctx, stop := context.WithTimeout(t.Context(), patience)
			defer stop()
			if !tt.patient {
				p.untilRead(t, 1)
				ctx, stop = context.WithTimeout(ctx, 300*time.Millisecond)
				defer stop()
			}
			_, err := p.await(ctx, "the rules were in the kernel", (*entry).changed)
			if err == nil || err.Error() != tt.fails {
				t.Errorf("await: %v, want %q", err, tt.fails)
			}
		})
	}
}

func TestStopOfAProxyThatDoesNot(t *testing.T) {
	p := startFailing(t, "hears no signal")
	if _, err := p.await(t.Context(), "it was ready", (*entry).changed); err != nil {
		t.Fatal(err)
	}
	if err := p.stop(); err == nil || !strings.Contains(err.Error(), "did not stop within") {
		t.Errorf("stop: %v", err)
	}
}

func TestStopOfAProxyThatEndedBadly(t *testing.T) {
	p := startFailing(t, "warns only")
	p.untilRead(t, 1)
	if err := p.stop(); err == nil || err.Error() != "verdict run ended badly: signal: terminated" {
		t.Errorf("stop: %v", err)
	}
}

// untilRead waits until there are lines in the log.
func (p *proxy) untilRead(t *testing.T, lines int) {
	t.Helper()
	for late := time.Now().Add(patience); len(p.log) < lines; time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("the proxy logs nothing")
		}
	}
}

func TestRenderThatFails(t *testing.T) {
	t.Setenv(fault, "ends at once")
	if _, err := render(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "no such folder") {
		t.Errorf("render: %v, want the message of verdict render", err)
	}
}

// This test uses real sockets of both families on the loopback interface of the test.
func TestAskAndAnswer(t *testing.T) {
	loopback := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")}
	for _, a := range loopback {
		port := ownPort(t, a)
		h := &host{namespace: &namespace{}, name: "pod-x", addresses: []netip.Addr{a}}
		if err := h.serve(port); err != nil {
			t.Fatal(err)
		}
		got, err := h.ask(t.Context(), netip.AddrPortFrom(a, port), 20)
		if err != nil || len(got) != 1 || got["pod-x"] != 20 {
			t.Errorf("asked 20 times: %v, %v", got, err)
		}
		if err := h.serve(port); err == nil || !strings.Contains(err.Error(), "listen in pod-x") {
			t.Errorf("serving twice: %v", err)
		}
	}
}

func TestAskFails(t *testing.T) {
	a := netip.MustParseAddr("127.0.0.1")
	to := netip.AddrPortFrom(a, ownPort(t, a))
	h := &host{namespace: &namespace{}, name: "client"}
	_, err := h.ask(t.Context(), to, 20)
	if !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), "connection 1 of 20 from client to "+to.String()) {
		t.Errorf("asking a port without a listener: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := h.ask(ctx, to, 20); !errors.Is(err, context.Canceled) && !strings.Contains(err.Error(), "operation was canceled") {
		t.Errorf("asking after the interrupt: %v", err)
	}
}

// ownPort returns a port without a listener. It belongs to the test until that ends: the kernel gives a port that a socket has
// to nobody who asks for any port, and lets a second socket listen at it that names it.
func ownPort(t *testing.T, a netip.Addr) uint16 {
	t.Helper()
	domain, at := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Addr: a.As16()})
	if a.Is4() {
		domain, at = unix.AF_INET, &unix.SockaddrInet4{Addr: a.As4()}
	}
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.Bind(fd, at)); err != nil {
		t.Fatal(err)
	}
	own, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	if v4, ok := own.(*unix.SockaddrInet4); ok {
		return uint16(v4.Port)
	}
	return uint16(own.(*unix.SockaddrInet6).Port)
}

func TestStageError(t *testing.T) {
	if err := stageError(nil); err != nil {
		t.Errorf("no error becomes %v", err)
	}
	if err := stageError(os.ErrClosed); !errors.Is(err, os.ErrClosed) {
		t.Errorf("another error becomes %v", err)
	}
}
