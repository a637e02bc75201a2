package clients

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// Client connects to one address from one place.
type Client struct {
	Place    string
	Question lab.Question
}

func (c Client) String() string { return fmt.Sprintf("from %s: %s", c.Place, c.Question) }

// Loops are clients that connect again and again.
type Loops struct {
	world    *lab.World
	patience time.Duration // of the clients
	stop     chan struct{}
	running  sync.WaitGroup
	asked    atomic.Int64
	failed   atomic.Int64
	excused  atomic.Int64
	mu       sync.Mutex
	phase    string    // what happens now
	failures []failure // the first ones
	excuses  []excuse
}

// Start starts a loop for each client. A client pauses between two connections, so that it does not run out of ports.
func Start(t *testing.T, w *lab.World, clients []Client, pause time.Duration) *Loops {
	t.Helper()
	l := &Loops{world: w, stop: make(chan struct{})}
	for _, c := range clients {
		l.patience = max(l.patience, c.Question.Patience)
		place := w.At(t, c.Place)
		l.running.Go(func() {
			for {
				select {
				case <-l.stop:
					return
				case <-time.After(pause):
				}
				l.asked.Add(1)
				l.ask(place, c)
			}
		})
	}
	return l
}

// ask makes one connection. A TCP connection that had to send a packet again has lost one, and counts as a failure.
func (l *Loops) ask(place *lab.Namespace, c Client) {
	began := time.Now()
	flow, r := place.Open(c.Question)
	if flow == nil {
		if c.Question.Protocol == lab.UDP && l.isExcused(began) {
			return
		}
		l.fail(c, r.String())
		return
	}
	defer flow.Close()
	if c.Question.Protocol != lab.TCP {
		return
	}
	if n, err := flow.Retransmits(); err != nil || n > 0 && !l.isExcused(began) {
		l.fail(c, fmt.Sprintf("answered, after %d packets were sent again: %v", n, err))
	}
}

// excuse is a time in which somebody else drops first packets.
type excuse struct{ from, to time.Time }

// Excuse calls fn. Connections that begin before it returns may lose their first packet: one of TCP must still be answered,
// later; one of UDP, which sends no second packet, need not be.
func (l *Loops) Excuse(fn func()) {
	l.mu.Lock()
	l.excuses = append(l.excuses, excuse{from: time.Now()})
	i := len(l.excuses) - 1
	l.mu.Unlock()
	fn()
	l.mu.Lock()
	l.excuses[i].to = time.Now()
	l.mu.Unlock()
}

// isExcused reports whether a connection began while somebody else dropped first packets, and counts it then.
func (l *Loops) isExcused(began time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	in := slices.ContainsFunc(l.excuses, func(e excuse) bool {
		return !began.Before(e.from) && (e.to.IsZero() || began.Before(e.to))
	})
	if in {
		l.excused.Add(1)
	}
	return in
}

// failure is a connection that failed, and when.
type failure struct {
	at   time.Time
	text string
}

func (f failure) String() string { return f.at.UTC().Format("15:04:05.000") + " " + f.text }

func (l *Loops) fail(c Client, what string) {
	l.failed.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.failures) < 10 {
		l.failures = append(l.failures, failure{time.Now(), fmt.Sprintf("(%s) %s: %s", l.phase, c, what)})
	}
}

// Phase names what happens from now on. Failures show it.
func (l *Loops) Phase(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.phase = fmt.Sprintf("%s since %s", what, time.Now().UTC().Format("15:04:05.000"))
}

// Asked is how many connections the loops have made so far.
func (l *Loops) Asked() int64 { return l.asked.Load() }

// WaitMore waits until the loops have made that many connections more, so that something is tried under load however slow
// the machine is.
func (l *Loops) WaitMore(t *testing.T, connections int64) {
	t.Helper()
	until := l.Asked() + connections
	for late := time.Now().Add(2 * time.Minute); l.Asked() < until; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("the loops made %d connections in 2 minutes, want %d", l.Asked()-until+connections, connections)
		}
	}
}

// Report logs how far a long test has come.
func (l *Loops) Report(t *testing.T, when string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	t.Logf("%s: %d connections, %d failed: %s", when, l.Asked(), l.failed.Load(), l.failures)
}

// End ends the loops and reports what failed, each with the log lines of that moment in the folder.
func (l *Loops) End(t *testing.T, dir string) {
	t.Helper()
	close(l.stop)
	l.running.Wait()
	t.Logf("%d connections, %d failed, %d late or unanswered with an excuse", l.Asked(), l.failed.Load(), l.excused.Load())
	if l.Asked() == 0 {
		t.Error("the loops made no connection")
	}
	for _, f := range l.failures {
		t.Errorf("%s\n%s", f, l.logsAt(t, dir, f.at))
	}
}

// logsAt returns what the programs logged in the second of a failure and in the one before, and when its question was
// asked.
func (l *Loops) logsAt(t *testing.T, dir string, at time.Time) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	var seconds []string
	for _, ago := range []time.Duration{0, time.Second, l.patience - time.Second, l.patience, l.patience + time.Second} {
		seconds = append(seconds, at.Add(-ago).UTC().Format("15:04:05."))
	}
	var out strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			if slices.ContainsFunc(seconds, func(s string) bool { return strings.Contains(line[:min(len(line), 60)], s) }) {
				fmt.Fprintf(&out, "  %s: %.300s\n", filepath.Base(file), strings.TrimSpace(line))
			}
		}
	}
	return out.String()
}

// WaitServed waits until each client gets an answer.
func WaitServed(t *testing.T, w *lab.World, clients []Client) {
	t.Helper()
	for _, c := range clients {
		for end := time.Now().Add(30 * time.Second); ; {
			r := w.At(t, c.Place).Ask(c.Question)
			if r.Outcome == lab.Answered {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s gets no answer: %s", c, r)
			}
		}
	}
}
