package program

import (
	"testing"
	"time"
)

func TestParseClass(t *testing.T) {
	classes := []Class{
		NewClass(Random, 1, 0, false), NewClass(Random, 16, 0, true), NewClass(Random, 17, 0, false), NewClass(InTurn, 5, 0, false),
		NewClass(SourceHash, 1021, 0, false), NewClass(Random, 3, 3*time.Hour, false), NewClass(Random, 40, 90*time.Second, true),
		NewClass(InTurn, 2, 86401*time.Second, true), NewClass(SourceHash, 65521, 26*time.Hour+time.Minute, false),
	}
	for _, want := range classes {
		if got, ok := ParseClass(want.ChainName()); !ok || got != want {
			t.Errorf("%s: read as %+v, %t; want %+v", want.ChainName(), got, ok, want)
		}
	}
	for _, other := range []string{
		"", "balance", "nat-output", "random", "random-", "random-x", "random-3-", "random-3-sticky", "random-3-sticky-", "random-3-sticky-3",
		"random-3-sticky-h", "random-3-sticky-3y", "random-3-sticky-3h-remote", "random-03", "turn-3-local", "token-random-3", "recall-local", "maglev-3",
		"random-3-local", "random-4294967296", "random-3-sticky-3h-local-same-port",
	} {
		if c, ok := ParseClass(other); ok {
			t.Errorf("%q: read as the class %+v", other, c)
		}
	}
}

// TestSlotsOfClasses: a pool with affinity, even of a second, has slots with tokens. One that keeps ports has addresses.
func TestSlotsOfClasses(t *testing.T) {
	for want, c := range map[SetID]Class{StickySlots: {Affinity: 1}, Addresses: {SamePort: true}, Endpoints: {}} {
		if got := c.Slots(); got != want {
			t.Errorf("%+v: %v, want %v", c, got, want)
		}
	}
	for id, want := range map[SetID]bool{
		Affinity: true, Unanswered: true, Refusing: true, HeldBack: true, JustHeldBack: true, Endpoints: false, StickySlots: false,
	} {
		if got := id.FilledByRules(); got != want {
			t.Errorf("%s is filled by rules: %t", id, got)
		}
	}
	x := Feature{Module: "nft_fib_*"}
	if four, six := x.Modules(IPv4), x.Modules(IPv6); four != "nft_fib_ipv4" || six != "nft_fib_ipv6" {
		t.Errorf("modules %s and %s", four, six)
	}
}
