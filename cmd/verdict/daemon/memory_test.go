package daemon

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth"
	"github.com/verdict-proxy/verdict/proxier/state"
)

var badService = state.Name{Namespace: "shop", Name: "web"}

// TestMemoryFile: what one process saves, the next one loads, and nothing is readable by others.
func TestMemoryFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	log := slog.New(slog.DiscardHandler)
	m := newMemory(dir, log)
	if list, err := m.Load(); len(list) > 0 || err != nil {
		t.Errorf("without a file: %v, %v", list, err)
	}
	want := []endpointhealth.Remembered{{
		Service: badService,
		Failure: state.Failure{
			Protocol: state.UDP, At: netip.MustParseAddrPort("[2001:db8::1]:53"), Since: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Sure: true,
		},
	}}
	if err := m.Save(want); err != nil {
		t.Fatal(err)
	}
	if list, err := newMemory(dir, log).Load(); err != nil || !slices.Equal(list, want) {
		t.Errorf("loaded %+v, %v; want %+v", list, err, want)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %v, %v", files, err)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.WriteFile(files[0], []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Load(); err == nil || !strings.Contains(err.Error(), files[0]) {
		t.Errorf("a damaged file: %v", err)
	}
	if newMemory("", log) != nil || newMemory("/proc/none", log) != nil {
		t.Error("a memory without a folder")
	}
}

// TestMemoryFileOfTwo: while one process takes over from another, both save. What is loaded is whole.
func TestMemoryFileOfTwo(t *testing.T) {
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	var running sync.WaitGroup
	for i := range 2 {
		list := make([]endpointhealth.Remembered, 1+5000*i)
		for j := range list {
			list[j] = endpointhealth.Remembered{Service: badService, Failure: state.Failure{At: netip.MustParseAddrPort("10.0.0.1:80")}}
		}
		running.Go(func() {
			m := newMemory(dir, log)
			for range 50 {
				if err := m.Save(list); err != nil {
					t.Error(err)
				}
				if _, err := m.Load(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	if files, err := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("files %v, %v", files, err)
	}
}
