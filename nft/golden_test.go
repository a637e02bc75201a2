//go:build !nokernel

package nft

import "testing"

// TestGolden compares three ways to load the same tables: the engine, the nft program with the golden text, and the nft
// program with its own listing of the engine's tables.
func TestGolden(t *testing.T) {
	for _, x := range examples() {
		t.Run(x.name, func(t *testing.T) {
			text := x.golden(t)
			ours, theirs, again := newNamespace(t), newNamespace(t), newNamespace(t)
			e := ours.engine(t)
			e.instance = 1 // as in the golden text
			x.install(t, e)
			listed := ours.list(t)

			theirs.load(t, text)
			compareListings(t, "the engine's table and the golden text loaded by nft differ", listed, theirs.list(t))
			compareBytecode(t, "the engine encodes other rules or elements than nft does from the golden text", ours, theirs)
			compareShapes(t, ours, theirs)

			again.load(t, listed)
			compareListings(t, "the listing of the engine's table does not load unchanged", again.list(t), listed)
			ours.load(t, "flush ruleset\n"+listed)
			compareListings(t, "the listing does not load unchanged over its own table", ours.list(t), listed)
		})
	}
}

// golden returns the text that Memory prints, after comparing it with the golden files and having nft check it.
func (x example) golden(t *testing.T) string {
	t.Helper()
	text := x.memory(t)
	newNamespace(t).Must(t, text, "nft", "-c", "-f", "-")
	if !x.large {
		x.compareGolden(t, text)
	}
	return text
}
