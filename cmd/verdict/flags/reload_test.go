package flags

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/source/directory"
)

// followConfig follows a configuration file. It returns how verbose each version is that took effect.
func followConfig(t *testing.T, file string) <-chan int {
	t.Helper()
	levels := make(chan int, 100)
	follow(t, file, nil, func(s *config.Settings) error {
		levels <- s.Verbosity
		return nil
	})
	return levels
}

func follow(t *testing.T, file string, now <-chan directory.Request, live func(*config.Settings) error) {
	t.Helper()
	c := New(pflag.NewFlagSet("run", pflag.ContinueOnError))
	if err := c.flags.Parse([]string{"--config=" + file, "--manifests=" + t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	if err := c.Resolve(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- Follow(ctx, c, now, live, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func verbose(t *testing.T, file string, level string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(testHeader+"logging: {verbosity: "+level+"}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

func becomes(t *testing.T, levels <-chan int, want int) {
	t.Helper()
	for late := time.After(3 * time.Minute); ; {
		select {
		case got := <-levels:
			if got == want {
				return
			}
		case <-late:
			t.Fatalf("a file with verbosity %d did not take effect", want)
		}
	}
}

// TestConfigFolderIsReplaced: the folder of the file moves away, and another one takes its place. Later edits count, too.
func TestConfigFolderIsReplaced(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cfg")
	file := filepath.Join(dir, "config.yaml")
	makeFolder := func() {
		t.Helper()
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	makeFolder()
	verbose(t, file, "1")
	levels := followConfig(t, file)
	verbose(t, file, "2")
	becomes(t, levels, 2)
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	makeFolder()
	verbose(t, file, "3")
	becomes(t, levels, 3)
	verbose(t, file, "4")
	becomes(t, levels, 4)
}

// TestConfigStaysRefused: each reload of a file that cannot be used fails. What could not take effect is tried again.
func TestConfigStaysRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	verbose(t, file, "1")
	var able atomic.Bool
	now, level := make(chan directory.Request), 0
	follow(t, file, now, func(s *config.Settings) error {
		if !able.Load() {
			return errors.New("injected")
		}
		level = s.Verbosity
		return nil
	})
	refused := func(why string) {
		t.Helper()
		for range 3 {
			if err := directory.Read(t.Context(), now); err == nil || !strings.Contains(err.Error(), why) {
				t.Errorf("a reload says %v, want that %q", err, why)
			}
		}
	}
	if err := os.WriteFile(file, []byte(testHeader+"logging: {verbosity: verbose}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	refused("field logging.verbosity")
	verbose(t, file, "2")
	refused("injected")
	able.Store(true)
	if err := directory.Read(t.Context(), now); err != nil || level != 2 {
		t.Errorf("a reload says %v; the level is %d", err, level)
	}
}

// TestConfigFolderIsNeverQuiet: something else in the folder changes all the time.
func TestConfigFolderIsNeverQuiet(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	verbose(t, file, "1")
	levels := followConfig(t, file)
	verbose(t, file, "2")
	becomes(t, levels, 2)
	touched, stop := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(touched)
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
				_ = os.WriteFile(filepath.Join(dir, "other"), []byte(strings.Repeat("x", 10)), 0o644)
			}
		}
	}()
	defer func() {
		close(stop)
		<-touched
	}()
	verbose(t, file, "3")
	becomes(t, levels, 3)
}

// TestUnusedFieldsAreNamedOnce: the start has named them, so the first reading says nothing.
func TestUnusedFieldsAreNamedOnce(t *testing.T) {
	var log strings.Builder
	c := resolved(t, "portRange: 1-2\n")
	f := follower{present: c, log: slog.New(slog.NewTextHandler(&log, nil))}
	for _, tt := range []struct{ more, want string }{{"", ""}, {"configSyncPeriod: 1m\n", "configSyncPeriod=1m0s"}} {
		if err := os.WriteFile(c.File, []byte(testHeader+"portRange: 1-2\n"+tt.more), 0o644); err != nil {
			t.Fatal(err)
		}
		next, err := f.present.again()
		if err == nil {
			_, err = f.apply(next)
		}
		if err != nil || strings.Contains(log.String(), "no effect") != (tt.want != "") || !strings.Contains(log.String(), tt.want) {
			t.Errorf("%q: %v, and the log has %q", tt.more, err, log.String())
		}
	}
}
