package clients

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/cluster/rate"
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
	clients []Client
	rates   []*rate.Client
	end     []func() []rate.Attempt
	stop    chan struct{}
	running sync.WaitGroup

	mu      sync.Mutex
	failed  []failure // of connections that stay open
	excuses []span
	phases  []span
}

// span is a time with a name.
type span struct {
	from, to time.Time // to is zero until the end
	what     string
}

func (s span) has(at time.Time) bool { return !at.Before(s.from) && (s.to.IsZero() || at.Before(s.to)) }

// Start starts a loop for each client. A client pauses between two connections, so that it does not run out of ports.
func Start(t *testing.T, w *lab.World, clients []Client, pause time.Duration) *Loops {
	t.Helper()
	l := &Loops{clients: clients, stop: make(chan struct{})}
	for _, c := range clients {
		q := c.Question
		r := &rate.Client{
			Targets:   []*rate.Target{{Network: q.Protocol.String(), Address: q.To.String()}},
			PerSecond: int(time.Second / pause), Sequential: true, Patience: q.Patience, LowPort: q.Ports.Low, HighPort: q.Ports.High,
			Do: w.At(t, c.Place).Do, Answer: rate.FirstLine,
		}
		l.rates, l.end = append(l.rates, r), append(l.end, r.Start())
	}
	return l
}

// Excuse calls fn. Connections that begin before it returns may lose their first packet: one of TCP must still be answered,
// later; one of UDP, which sends no second packet, need not be.
func (l *Loops) Excuse(fn func()) {
	from := time.Now()
	fn()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.excuses = append(l.excuses, span{from: from, to: time.Now()})
}

// Phase names what happens from now on. Failures show it.
func (l *Loops) Phase(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.phases = append(l.phases, span{from: time.Now(), what: what})
}

// failure is a connection that failed, and when its client noticed it.
type failure struct {
	at   time.Time
	text string
}

func (l *Loops) fail(c Client, at time.Time, what string) failure {
	phase := "before the first phase"
	for _, p := range l.phases {
		if p.has(at) {
			phase = fmt.Sprintf("%s since %s", p.what, p.from.UTC().Format("15:04:05.000"))
		}
	}
	return failure{at, fmt.Sprintf("%s (%s) %s: %s", at.UTC().Format("15:04:05.000"), phase, c, what)}
}

// judge returns the failures. A TCP connection that had to send a packet again has lost one, and counts as a failure.
func (l *Loops) judge(lists [][]rate.Attempt) (failed []failure, excused int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, list := range lists {
		udp := l.clients[i].Question.Protocol == lab.UDP
		for _, a := range list {
			answered := a.Outcome == rate.Answered
			switch {
			case answered && a.Repeated == 0:
			case (answered || udp) && slices.ContainsFunc(l.excuses, func(e span) bool { return e.has(a.Began) }):
				excused++
			default:
				what := fmt.Sprintf("%s after %s, %d packets were sent again: %s", a.Outcome, a.Took.Round(time.Millisecond), a.Repeated, a.Error)
				failed = append(failed, l.fail(l.clients[i], a.Began.Add(a.Took), what))
			}
		}
	}
	return append(failed, l.failed...), excused
}

// Asked is how many connections the loops have made so far.
func (l *Loops) Asked() (n int) {
	for _, r := range l.rates {
		n += r.Made()
	}
	return n
}

// WaitMore waits until the loops have made that many connections more, so that something is tried under load however slow
// the machine is.
func (l *Loops) WaitMore(t *testing.T, connections int) {
	t.Helper()
	until := l.Asked() + connections
	for late := time.Now().Add(2 * time.Minute); l.Asked() < until; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("the loops made %d connections in 2 minutes, want %d", l.Asked()-until+connections, connections)
		}
	}
}

// End ends the loops and reports what failed, each with the log lines of that moment in the folder.
func (l *Loops) End(t *testing.T, dir string) {
	t.Helper()
	close(l.stop)
	l.running.Wait()
	lists := make([][]rate.Attempt, len(l.end))
	for i, end := range l.end {
		lists[i] = end()
	}
	failed, excused := l.judge(lists)
	t.Logf("%d connections, %d failed, %d late or unanswered with an excuse", l.Asked(), len(failed), excused)
	if l.Asked() == 0 {
		t.Error("the loops made no connection")
	}
	slices.SortStableFunc(failed, func(a, b failure) int { return a.at.Compare(b.at) })
	for _, f := range failed[:min(len(failed), 10)] {
		t.Errorf("%s\n%s", f.text, l.logsAt(t, dir, f.at))
	}
}

// logsAt returns what the programs logged in the second of a failure and in the one before, and when its question was
// asked.
func (l *Loops) logsAt(t *testing.T, dir string, at time.Time) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	lab.Must(t, err)
	patience := l.clients[0].Question.Patience // all have the same
	var seconds []string
	for _, ago := range []time.Duration{0, time.Second, patience - time.Second, patience, patience + time.Second} {
		seconds = append(seconds, at.Add(-ago).UTC().Format("15:04:05."))
	}
	var out strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(file)
		lab.Must(t, err)
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
		lab.Eventually(t, c.String(), func() error {
			if r := w.At(t, c.Place).Ask(c.Question); r.Outcome != lab.Answered {
				return fmt.Errorf("it gets no answer: %s", r)
			}
			return nil
		})
	}
}
