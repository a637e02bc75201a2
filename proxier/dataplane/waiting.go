package dataplane

import "github.com/verdict-proxy/verdict/proxier/state"

// Waiting has the Services that wait: nft does not have them as planned yet, because its transactions had enough without them. The next
// Apply goes on. There may be very many, so whoever has to know asks for one, and learns from a Result which ones have stopped waiting.
type Waiting struct {
	services map[state.Name]bool
	in       map[string]int // how many there are in namespaces
	ended    []state.Name   // to wait, and no Result has reported it
}

// Has reports whether a Service waits.
func (w *Waiting) Has(name state.Name) bool { return w.services[name] }

// In reports whether Services of a namespace wait.
func (w *Waiting) In(namespace string) bool { return w.in[namespace] > 0 }

// Some reports whether another Apply has to come: Services wait, or no Result has reported that they do not any more.
func (w *Waiting) Some() bool { return len(w.services)+len(w.ended) > 0 }

// Set notes whether a Service waits.
func (w *Waiting) Set(name state.Name, waits bool) {
	switch {
	case waits == w.services[name]:
	case waits:
		if w.services == nil {
			w.services, w.in = map[state.Name]bool{}, map[string]int{}
		}
		w.services[name] = true
		w.in[name.Namespace]++
	default:
		delete(w.services, name)
		if w.in[name.Namespace]--; w.in[name.Namespace] == 0 {
			delete(w.in, name.Namespace)
		}
		w.ended = append(w.ended, name)
	}
}

// takeEnded returns the Services that have stopped waiting since the last call. Some may wait again.
func (w *Waiting) takeEnded() (names []state.Name) {
	names, w.ended = w.ended, nil
	return names
}
