//go:build !nokernel

package nft

import (
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/nft/kernel"
)

// TestRecord writes, replaces, reads and deletes a record, also when there is nothing to replace or to delete.
func TestRecord(t *testing.T) {
	o := kernel.Options{NetNS: newNamespace(t).Fd()}
	expect := func(want string) {
		t.Helper()
		if got, err := kernel.ReadRecord(o); err != nil || got != want {
			t.Errorf("%q, error %v; want %q", got, err, want)
		}
	}
	expect("")
	for _, text := range []string{"a=1", strings.Repeat("x", 250)} {
		if err := kernel.WriteRecord(o, text); err != nil {
			t.Fatal(err)
		}
		expect(text)
	}
	for range 2 {
		if err := kernel.DeleteRecord(o); err != nil {
			t.Fatal(err)
		}
		expect("")
	}
}
