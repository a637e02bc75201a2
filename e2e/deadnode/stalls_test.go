//go:build e2e || ipvs

package deadnode

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/procfs"
)

// stalls measures how much time of a second this process or the daemon wanted a processor and had none, or was stopped. The servers and
// clients are in this process. How soon something happens proves nothing then.
type stalls struct {
	daemon int // its process

	mu     sync.Mutex
	last   time.Time
	waited map[string]int // nanoseconds, by the threads of the daemon
	own    wait
	others wait
}

// wait is how long a process waited.
type wait struct {
	latest []time.Duration // by looks
	most   time.Duration   // in as many looks as there are in a second
}

const (
	stallPeriod = 20 * time.Millisecond
	stallLimit  = 100 * time.Millisecond // of a second; less harms nothing that has a second
	maxStalls   = 10                     // how often the machine may stand still
)

func (w *wait) note(took time.Duration) {
	w.latest = append(w.latest, took)
	w.latest = w.latest[max(0, len(w.latest)-int(time.Second/stallPeriod)):]
	sum := time.Duration(0)
	for _, took := range w.latest {
		sum += took
	}
	w.most = max(w.most, sum)
}

func watchStalls(t testing.TB, daemon int) *stalls {
	s := &stalls{daemon: daemon, last: time.Now(), waited: map[string]int{}}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			case <-time.After(stallPeriod):
				s.look()
			}
		}
	}()
	t.Cleanup(func() { close(end); <-ended })
	return s
}

func (s *stalls) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	since := time.Since(s.last)
	s.last = s.last.Add(since)
	s.own.note(max(0, since-stallPeriod))
	if stopped(s.daemon) {
		s.others.note(since)
		return
	}
	sum := 0
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", s.daemon))
	for _, file := range threads { // one that has ended has none, nor has any in a kernel without these statistics
		text, err := os.ReadFile(file)
		var ran, waited int
		if _, again := fmt.Sscan(string(text), &ran, &waited); err != nil || again != nil {
			continue
		}
		if before, known := s.waited[file]; known {
			sum += waited - before
		}
		s.waited[file] = waited
	}
	s.others.note(time.Duration(sum))
}

func stopped(pid int) bool {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return false
	}
	stat, err := process.Stat()
	return err == nil && stat.State == "T"
}

// errSlow means that the daemon needed too much time, however it came.
var errSlow = errors.New("connections fail before the daemon has deleted their flows")

// undisturbed runs a scenario, and runs it again if something goes wrong while the machine stands still. Without such an excuse, and
// if it has one each time, the test fails.
func undisturbed(t *testing.T, scenario func() (*bed, error)) {
	t.Helper()
	for range maxStalls {
		b, err := scenario()
		if err == nil {
			return
		}
		b.stalls.look()
		b.stalls.mu.Lock()
		own, others := b.stalls.own.most, b.stalls.others.most
		b.stalls.mu.Unlock()
		t.Logf("at worst, this process waited %s for a processor, and the daemon %s: %v", own.Round(time.Millisecond), others.Round(time.Millisecond), err)
		if max(own, others) < stallLimit && !errors.Is(err, errSlow) {
			t.Fatal("the machine did not stand still")
		}
	}
	t.Fatalf("something went wrong in each of %d runs, in which the machine stood still", maxStalls)
}
