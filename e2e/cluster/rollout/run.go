package rollout

import (
	"compress/gzip"
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

const suffix = ".rollouts.json.gz"

// Save writes the run into a folder. The name of the file begins with a given one.
func (r *Run) Save(dir, name string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, name+suffix))
	if err != nil {
		return err
	}
	w := gzip.NewWriter(f)
	if err := errors.Join(json.NewEncoder(w).Encode(r), w.Close(), f.Close()); err != nil {
		return fmt.Errorf("save the connections under %s: %w", r.Proxy, err)
	}
	return os.WriteFile(filepath.Join(dir, name+".notable.txt"), []byte(r.Notable()), 0o644)
}

// Load reads all runs of a folder. Verdict comes before kube-proxy.
func Load(dir string) (runs []*Run, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		r, err := load(file)
		if err != nil {
			return nil, fmt.Errorf("read the connections in %s: %w", file, err)
		}
		runs = append(runs, r)
	}
	slices.SortFunc(runs, func(a, b *Run) int { return strings.Compare(a.Proxy, b.Proxy) })
	return runs, nil
}

func load(file string) (*Run, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	r := &Run{}
	return r, json.NewDecoder(text).Decode(r)
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
