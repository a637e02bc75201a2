//go:build !nokernel

package daemon

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// terminal is a terminal of 80 columns and 24 lines, and what was written to it.
type terminal struct {
	*testing.T
	ours *os.File
	mu   sync.Mutex
	text strings.Builder
}

// openTerminal returns a terminal, and the side for a program.
func openTerminal(t *testing.T) (*terminal, *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	lab.Must(t, err)
	t.Cleanup(func() { ours.Close() })
	fd := int(ours.Fd())
	lab.Must(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	lab.Must(t, err)
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
		t.Fatal(err)
	}
	theirs, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	lab.Must(t, err)
	t.Cleanup(func() { theirs.Close() })
	term := &terminal{T: t, ours: ours}
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := ours.Read(b)
			if err != nil {
				return // closed
			}
			term.mu.Lock()
			term.text.Write(b[:n])
			term.mu.Unlock()
		}
	}()
	return term, theirs
}

// waitFor waits for a text that is written from now on, and forgets it.
func (t *terminal) waitFor(pattern string) {
	t.Helper()
	wanted := regexp.MustCompile(pattern)
	got := ""
	for late := time.Now().Add(Patience); time.Now().Before(late); time.Sleep(20 * time.Millisecond) {
		t.mu.Lock()
		got = t.text.String()
		found := wanted.MatchString(got)
		if found {
			t.text.Reset()
		}
		t.mu.Unlock()
		if found {
			return
		}
	}
	t.Fatalf("the terminal does not show %q:\n%q", pattern, got)
}

// TestTop: the live view in a terminal shows rates of Services and endpoints; both are those of real connections.
func TestTop(t *testing.T) {
	w, dir := lab.New(t), t.TempDir()
	vip := lab.Address(lab.IPv4, "VIP1")
	web := Service{Name: "shop/web", ClusterIP: vip, Node: "n1", Endpoints: []string{"10.0.1.1", "10.0.2.1"}}
	WriteFile(t, dir, "web.yaml", web.Manifest())
	d := Start(t, binary, w.Node, dir)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = w.At(t, "x").Ask(lab.Question{Protocol: lab.TCP, To: netip.AddrPortFrom(vip, 80), Patience: Patience})
		}
	}()
	defer func() { stop(); <-done }()

	d.topShows(t, web.Endpoints)
	screen, theirs := openTerminal(t)
	cmd := exec.Command(binary, "top", "--interval", "200ms")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	lab.Must(t, d.Node.Start(cmd))
	screen.waitFor(`\x1b\[\?1049h.*Counting connections for 200ms`)
	for range 2 { // again and again
		screen.waitFor(`(?s)latest pass: .*shop/web:http +[1-9][0-9]*\.[0-9]`)
	}
	lab.Must(t, cmd.Process.Signal(os.Interrupt))
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	screen.waitFor(`\x1b\[\?1049l`) // what the terminal showed before
}

// topShows prints single tables until one has a rate of each endpoint.
func (d *Daemon) topShows(t *testing.T, endpoints []string) {
	t.Helper()
	once := ""
	rateless := func(end string) bool {
		return !regexp.MustCompile(`shop/web:http +` + regexp.QuoteMeta(end) + `:8080 +[0-9]*[1-9][0-9]*\.[0-9] conntrack`).MatchString(once)
	}
	for late := time.Now().Add(Patience); time.Now().Before(late); {
		once = output(t, d, "top", "--once", "--endpoints", "--interval", "2s", "shop/web")
		if !slices.ContainsFunc(endpoints, rateless) {
			return
		}
	}
	t.Errorf("top --once --endpoints lacks a rate of %q:\n%s", endpoints, once)
}
