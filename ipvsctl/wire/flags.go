package wire

import (
	"fmt"
	"slices"
	"strings"
)

// Flags modify a scheduler. The bits are those of the kernel. Both schedulers that have flags, sh and mh, use the
// same bits.
type Flags uint32

// The flags of the schedulers sh and mh.
const (
	// Fallback sends a client to another real server when its own has weight 0 (sh-fallback, mh-fallback). The engine
	// always sets it for these two schedulers.
	Fallback Flags = 0x8 // IP_VS_SVC_F_SCHED1
	// HashPort hashes the client's port together with its address (sh-port, mh-port).
	HashPort Flags = 0x10 // IP_VS_SVC_F_SCHED2
	AllFlags       = Fallback | HashPort
)

// ParseFlags parses a comma-separated list in the notation of ipvsadm -b: sh-port, sh-fallback, mh-port, mh-fallback, or
// flag-1 and flag-2 for both schedulers.
func ParseFlags(scheduler, list string) (Flags, error) {
	var flags Flags
	for word := range strings.SplitSeq(list, ",") {
		word = strings.TrimSpace(word)
		if word == "" {
			continue
		}
		names := FlagNames(scheduler)
		i := max(slices.Index(names, word), slices.Index([]string{"flag-1", "flag-2"}, word))
		if i < 0 || i >= len(names) {
			return 0, fmt.Errorf("scheduler %s has no flag %q", scheduler, word)
		}
		flags |= Fallback << i
	}
	return flags, nil
}

// FlagNames returns the names of a scheduler's flags in the order of their bits.
func FlagNames(scheduler string) []string {
	if scheduler != "sh" && scheduler != "mh" {
		return nil
	}
	return []string{scheduler + "-fallback", scheduler + "-port"}
}

// Text prints flags in the notation of ipvsadm -b.
func (f Flags) Text(scheduler string) string {
	names := FlagNames(scheduler)
	var set []string
	for i := range 3 {
		switch bit := Fallback << i; {
		case f&bit == 0:
		case i < len(names):
			set = append(set, names[i])
		default:
			set = append(set, fmt.Sprintf("flag-%d", i+1))
		}
	}
	return strings.Join(set, ",")
}
