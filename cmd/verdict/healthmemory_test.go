package main

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth"
	"github.com/verdict-proxy/verdict/proxier/state"
)

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
