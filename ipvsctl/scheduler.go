package ipvsctl

import (
	"fmt"
	"slices"
	"strings"
)

// maxSchedulerName is IP_VS_SCHEDNAME_MAXLEN without the closing zero.
const maxSchedulerName = 15

// Schedulers lists the schedulers of the kernel (up to 6.18), without saying whether a kernel at hand has them.
func Schedulers() []string {
	return []string{"rr", "wrr", "lc", "wlc", "sed", "nq", "lblc", "lblcr", "dh", "fo", "ovf", "twos", "sh", "mh"}
}

// Module is the kernel module of a scheduler.
func Module(scheduler string) string { return "ip_vs_" + scheduler }

// Flags modify a scheduler. The bits are those of the kernel, where both schedulers that know flags share them.
type Flags uint32

// The flags of the schedulers sh and mh.
const (
	// Fallback passes a client on to another real server when its own has weight 0 (sh-fallback, mh-fallback). It is
	// always set for these two.
	Fallback Flags = 0x8 // IP_VS_SVC_F_SCHED1
	// HashPort hashes the client's port together with its address (sh-port, mh-port).
	HashPort Flags = 0x10 // IP_VS_SVC_F_SCHED2
	allFlags       = Fallback | HashPort
)

// ParseFlags understands a comma separated list as ipvsadm's -b has it: sh-port, sh-fallback, mh-port, mh-fallback.
func ParseFlags(scheduler, list string) (Flags, error) {
	var flags Flags
	for word := range strings.SplitSeq(list, ",") {
		word = strings.TrimSpace(word)
		if word == "" {
			continue
		}
		i := slices.Index(flagNames(scheduler), word)
		if i < 0 {
			return 0, fmt.Errorf("scheduler %s has no flag %q", scheduler, word)
		}
		flags |= Fallback << i
	}
	return flags, nil
}

// flagNames are a scheduler's flags in the order of their bits.
func flagNames(scheduler string) []string {
	if scheduler != "sh" && scheduler != "mh" {
		return nil
	}
	return []string{scheduler + "-fallback", scheduler + "-port"}
}

// text lists flags as ipvsadm's -b takes them.
func (f Flags) text(scheduler string) string {
	names := flagNames(scheduler)
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
