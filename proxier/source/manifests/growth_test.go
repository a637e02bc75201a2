package manifests

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// manyFiles is a folder with a Service in each of its files, and a function that writes one of them.
func manyFiles(t testing.TB, n int) (m *Source, write func(i, port int)) {
	dir := t.TempDir()
	write = func(i, port int) {
		text := docs(service(fmt.Sprintf("s%d", i), fmt.Sprintf("10.96.%d.%d", i/250, i%250)), strings.ReplaceAll(webSlice, "web", fmt.Sprintf("s%d", i)))
		text = strings.Replace(text, "port: 80}", fmt.Sprintf("port: %d}", port), 1)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%05d.yaml", i)), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		write(i, 80)
	}
	m = New(Options{Dir: dir, NodeName: "n1", Store: state.NewStore(), Log: slog.New(slog.DiscardHandler)})
	if err := m.scan(); err != nil {
		t.Fatal(err)
	}
	for _, file := range m.files { // otherwise each file is read again for two seconds
		file.readAt = file.readAt.Add(time.Hour)
	}
	return m, write
}

// BenchmarkManifestChange writes one of many files again.
func BenchmarkManifestChange(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		b.Run(fmt.Sprintf("files=%d", n), func(b *testing.B) {
			m, write := manyFiles(b, n)
			for i := 0; b.Loop(); i++ {
				write(i%n, 81+i%1000)
				if err := m.scan(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestLookIsCheap: a look at unchanged files asks the kernel once for each of them, and remembers nothing.
func TestLookIsCheap(t *testing.T) {
	const files, most = 500, 6 // measured: 5
	m, _ := manyFiles(t, files)
	allocations := testing.AllocsPerRun(5, func() {
		if err := m.scan(); err != nil {
			t.Fatal(err)
		}
	})
	if allocations > files*most {
		t.Errorf("%.1f allocations for each unchanged file, want at most %d", allocations/files, most)
	}
}
