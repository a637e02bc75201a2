//go:build !nokernel

package nft

import (
	"errors"
	"testing"

	"github.com/verdict-proxy/verdict/nft/kernel"
)

// TestClaim: one process at a time has the claim of a network namespace, and each namespace has its own.
func TestClaim(t *testing.T) {
	o, elsewhere := kernel.Options{NetNS: newNamespace(t).Fd()}, kernel.Options{NetNS: newNamespace(t).Fd()}
	claim := func(o kernel.Options, want error) kernel.Claim {
		t.Helper()
		c, err := kernel.ClaimNamespace(o)
		if errors.Is(err, errors.ErrUnsupported) {
			t.Skip(err)
		}
		if !errors.Is(err, want) {
			t.Fatalf("error %v, want %v", err, want)
		}
		return c
	}
	first := claim(o, nil)
	claim(o, kernel.ErrClaimed)
	other := claim(elsewhere, nil)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := claim(o, nil)
	if err := errors.Join(second.Close(), other.Close(), kernel.Claim{}.Close()); err != nil {
		t.Fatal(err)
	}
}
