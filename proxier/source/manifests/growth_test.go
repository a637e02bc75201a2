package manifests

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
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

// TestHugeFile: a file past the limit is not read, whether its size shows that or not. Its last good content stays in force.
func TestHugeFile(t *testing.T) {
	f := newFolder(t, map[string]string{"a.yaml": service("web", "10.96.0.1"), "b.yaml": service("mail", "10.96.0.2")})
	f.load()
	huge := filepath.Join(f.dir, "a.yaml")
	if err := os.Truncate(huge, 3<<30); err != nil { // sparse
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 2 {
		f.load()
		f.expectServices("shop/web=10.96.0.1", "shop/mail=10.96.0.2")
		f.expectProblems("File /a.yaml line 1: cannot be read: the file has 3221225472 bytes or more, and a manifest may have 67108864; " +
			"split it into several files: its previous content, if any, stays in force")
	}
	if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 1<<20 {
		t.Errorf("%d bytes were allocated to refuse the file", after.TotalAlloc-before.TotalAlloc)
	}
	if got := f.lines.Lines("level=WARN"); len(got) != 1 || !strings.Contains(got[0], huge) {
		t.Errorf("logged %d times: %q", len(got), got)
	}
	f.write("a.yaml", service("web", "10.96.0.3"))
	f.load()
	f.expectServices("shop/web=10.96.0.3", "shop/mail=10.96.0.2")
	f.expectProblems()
	if data, err := readFile("/dev/zero", 0); err == nil || !strings.Contains(err.Error(), "67108865 bytes or more") { // its size is 0
		t.Errorf("read %d bytes of a file without end: %v", len(data), err)
	}
}

// TestFaultsOfAFile: a file with very many faults is a hundred lines of the log, and as many Problems, once.
func TestFaultsOfAFile(t *testing.T) {
	for what, text := range map[string]string{
		"JSON":                 strings.Repeat("{}\n", 10_000),
		"YAML":                 strings.Repeat("---\na: [\n", 1000),
		"objects of no kind":   strings.Repeat("---\na: 1\n", 1000),
		"one object too often": strings.Repeat("---\n"+service("web", "10.96.0.1"), 1000),
	} {
		f := newFolder(t, map[string]string{"a.yaml": text, "b.yaml": service("mail", "10.96.0.2")})
		for range 2 {
			f.load()
			if got := f.problems(); len(got) != maxFaults+1 || !strings.Contains(strings.Join(got, ""), "more faults, from here on") {
				t.Errorf("%s: %d problems", what, len(got))
			}
		}
		if n := len(f.lines.Lines()); n > maxFaults+1 {
			t.Errorf("%s: %d lines of the log", what, n)
		}
	}
}

// TestNobodyWaitsForAPipe: what takes the place of a file, or what a link leads to, keeps the changes of other files waiting for a
// moment only.
func TestNobodyWaitsForAPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "a.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := (&file{}).read(pipe); len(data) > 0 || err != nil {
		t.Errorf("a pipe without a writer: %q, %v", data, err)
	}
	writer, err := os.OpenFile(pipe, os.O_RDWR, 0) // it writes nothing
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if _, err := (&file{}).read(pipe); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a pipe in which nobody writes: %v", err)
	}
}
