package metrics

import "sync"

// maxProcesses bounds the names that the label process has: each process chooses its own name.
const maxProcesses = 16

// Values of the label process that are not names.
const (
	unknownProcess = "unknown" // no message of the kernel named it
	otherProcess   = "other"   // it came after maxProcesses others
)

// processNames are the names that the label process has.
type processNames struct {
	mu    sync.Mutex
	known map[string]bool
}

// label is the value for a process.
func (p *processNames) label(name string) string {
	if name == "" {
		return unknownProcess
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.known[name] && len(p.known) == maxProcesses {
		return otherProcess
	}
	p.known[name] = true
	return name
}
