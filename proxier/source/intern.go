package source

import "sync"

// internLimit bounds what an interner remembers. Node names, namespaces, zones and port names of the largest clusters
// stay far below it; a cluster that keeps inventing names starts over instead of filling memory for ever.
const internLimit = 1 << 16

// interner gives equal strings one backing array. Not the package unique: it forgets a string at the next garbage
// collection unless a Handle is kept, and a state value keeps plain strings.
type interner struct {
	mu    sync.Mutex
	known map[string]string
}

func newInterner() *interner { return &interner{known: map[string]string{}} }

func (in *interner) share(s string) string {
	if s == "" {
		return ""
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if k, ok := in.known[s]; ok {
		return k
	}
	if len(in.known) >= internLimit {
		in.known = map[string]string{}
	}
	in.known[s] = s
	return s
}
