package rollout

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/e2e/cluster/rate"
)

// Run is what happened under a proxy.
type Run struct {
	Proxy   string // its name in tables
	Updates []Span // in order
	Ways    []Way
}

// Span is the time of a rolling update.
type Span struct{ Began, Ended time.Time }

// Way is where connections come from and go to.
type Way struct {
	Name     string
	Attempts []rate.Attempt
}

// LateAfter is longer than connections take that need no packet again.
const LateAfter = 900 * time.Millisecond

const suffix = ".rollouts.json"

// Save writes the run into a folder. The name of the file begins with a given one.
func (r *Run) Save(dir, name string) error {
	text, err := json.Marshal(r)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return fmt.Errorf("save the connections under %s: %w", r.Proxy, err)
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, name+suffix), text, 0o644),
		os.WriteFile(filepath.Join(dir, name+".notable.txt"), []byte(r.Notable()), 0o644),
	)
}

// Load reads all runs of a folder. Verdict comes before kube-proxy.
func Load(dir string) (runs []*Run, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		r := &Run{}
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, r)
		}
		if err != nil {
			return nil, fmt.Errorf("read the connections in %s: %w", file, err)
		}
		runs = append(runs, r)
	}
	slices.SortFunc(runs, func(a, b *Run) int { return strings.Compare(a.Proxy, b.Proxy) })
	return runs, nil
}

// update returns the number of the rolling update that a moment belongs to, from 1, and the time since it began. Number 0:
// none has begun.
func (r *Run) update(at time.Time) (number int, since time.Duration) {
	for i, s := range r.Updates {
		if !at.Before(s.Began) {
			number, since = i+1, at.Sub(s.Began)
		}
	}
	return number, since
}
