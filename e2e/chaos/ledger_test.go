//go:build e2e

package chaos

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/procfs"
)

// ledger counts what clients of the untouched Services saw. A failure counts against Verdict unless it overlaps a
// window in which a foreign edit had removed rules.
type ledger struct {
	mu       sync.Mutex
	log      io.Writer
	made     int // connections and flows that were begun
	requests int // over connections that were already open
	excused  map[string]int
	windows  []*window
	pending  []failure // that judge has not seen
	broken   []failure // that nothing excuses
	dropped  int       // packets that the machine's queues have dropped, when judge read it last

	frail             int           // of the connections that were made: to Services with an endpoint that fails
	slowest           time.Duration // of these
	failed, shortened int64         // system calls of the daemon that failed; of these: calls that read a part of a datagram
}

// window is the time from a foreign edit until the kernel is right again.
type window struct {
	from, to time.Time
	affinity bool // it excuses only lost affinity
}

// The kinds of failures.
const (
	newConnection  = "new connection"
	openConnection = "open connection"
	affinityLost   = "affinity"
)

// failure is what a client saw instead of an answer.
type failure struct {
	kind     string
	from, to time.Time
	text     string
}

func (f failure) String() string {
	const clock = "15:04:05.000"
	return fmt.Sprintf("%s to %s: %s: %s", f.from.UTC().Format(clock), f.to.UTC().Format(clock), f.kind, f.text)
}

// note writes a line into the log.
func (l *ledger) note(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.log, "%s %s\n", time.Now().UTC().Format("15:04:05.000"), fmt.Sprintf(format, args...))
}

func (l *ledger) madeOne(frail bool, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made++
	if frail {
		l.frail, l.slowest = l.frail+1, max(l.slowest, took)
	}
}

func (l *ledger) failedCalls(failed, shortened int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed, l.shortened = l.failed+failed, l.shortened+shortened
}

func (l *ledger) askedAgain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests++
}

// fail notes a failure that began at a time and has just ended.
func (l *ledger) fail(kind string, from time.Time, format string, args ...any) {
	f := failure{kind: kind, from: from, to: time.Now(), text: fmt.Sprintf(format, args...)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = append(l.pending, f)
	fmt.Fprintln(l.log, f)
}

// open begins a window.
func (l *ledger) open() *window { return l.begin(&window{from: time.Now()}) }

// openForAffinity begins a window of another version, which may know clients by other numbers, or Services by other names.
func (l *ledger) openForAffinity() { l.begin(&window{from: time.Now(), affinity: true}) }

func (l *ledger) begin(w *window) *window {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.windows = append(l.windows, w)
	return w
}

// close ends a window, unless it has ended before.
func (l *ledger) close(w *window, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.to.IsZero() {
		w.to = at
	}
}

// closeAll ends all windows.
func (l *ledger) closeAll() {
	l.mu.Lock()
	windows := l.windows
	l.mu.Unlock()
	for _, w := range windows {
		l.close(w, time.Now())
	}
}

// editedSince reports whether a window was open at or after a time.
func (l *ledger) editedSince(at time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.excuses(affinityLost, at, time.Now())
}

func (l *ledger) excuses(kind string, from, to time.Time) bool {
	for _, w := range l.windows {
		if (kind == affinityLost || !w.affinity) && to.After(w.from) && (w.to.IsZero() || from.Before(w.to)) {
			return true
		}
	}
	return false
}

// judge decides about the failures of a round. It returns an error if nothing excuses one of them.
func (l *ledger) judge() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var texts []string
	for _, f := range l.pending {
		if l.excuses(f.kind, f.from, f.to) {
			l.excused[f.kind]++
			continue
		}
		l.broken = append(l.broken, f)
		texts = append(texts, f.String())
	}
	l.pending = nil
	before := l.dropped
	l.dropped = queueDrops()
	if len(texts) == 0 {
		return nil
	}
	const shown = 12
	more := ""
	if len(texts) > shown {
		more, texts = fmt.Sprintf("\n    and %d more", len(texts)-shown), texts[:shown]
	}
	return fmt.Errorf("clients of untouched Services failed (meanwhile the queues of the processors, which all namespaces "+
		"share, dropped %d packets):\n    %s%s", l.dropped-before, strings.Join(texts, "\n    "), more)
}

// queueDrops is how many packets the processors have dropped because their queues (net.core.netdev_max_backlog) were full.
// A flood in any namespace of the machine does that to all of them.
func queueDrops() (sum int) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0
	}
	processors, _ := fs.NetSoftnetStat() // without them the count is 0, and says nothing
	for _, p := range processors {
		sum += int(p.Dropped)
	}
	return sum
}
