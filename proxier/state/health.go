package state

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// Failure is an endpoint of a Service that is not good at this time.
type Failure struct {
	Protocol Protocol
	At       netip.AddrPort
	Since    time.Time
	// Sure means that the endpoint, or its host, has answered, and the answer is bad. Silence may be the fault of the
	// network of this node, or of a network policy, so no more than a share of a pool is left out because of it.
	Sure bool
	// Accepts means that the endpoint accepts TCP connections, and only what it says is bad: no connection waits for an answer.
	Accepts bool
}

// Compare orders failures by endpoint.
func (f Failure) Compare(o Failure) int {
	return cmp.Or(f.At.Compare(o.At), cmp.Compare(f.Protocol, o.Protocol))
}

// Health has the endpoints of a Service that are not good, sorted by Compare. It is never changed in place.
type Health []Failure

// MergeFailures sorts failures, and joins those of one endpoint.
func MergeFailures(list Health) (out Health) {
	slices.SortFunc(list, Failure.Compare)
	for _, f := range list {
		if last := len(out) - 1; last >= 0 && out[last].Compare(f) == 0 {
			out[last].Sure, out[last].Accepts = out[last].Sure || f.Sure, out[last].Accepts && f.Accepts
			if f.Since.Before(out[last].Since) {
				out[last].Since = f.Since
			}
			continue
		}
		out = append(out, f)
	}
	return out
}
