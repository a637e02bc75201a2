package nft

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files again, from the texts that Memory prints")

// TestGolden compares three ways to load the same tables: the engine, the nft program with the golden text, and the nft
// program with its own listing of the engine's tables.
func TestGolden(t *testing.T) {
	for _, x := range examples() {
		t.Run(x.name, func(t *testing.T) {
			text := x.golden(t)
			ours, theirs, again := newNamespace(t), newNamespace(t), newNamespace(t)
			x.install(t, ours.engine(t))
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

// goldenProgram is the program without any Service. For each other example, a file has the differences from it.
const goldenProgram = "testdata/program.nft"

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

// memory is the text that Memory prints.
func (x example) memory(t *testing.T) string {
	t.Helper()
	m := OpenMemory(Options{})
	x.install(t, m.Engine)
	return m.String()
}

func (x example) compareGolden(t *testing.T, text string) {
	t.Helper()
	file := goldenProgram
	if x.name != emptyExample().name {
		file = filepath.Join("testdata", x.name+".diff")
		var err error
		if text, err = goldenDiff(emptyExample().memory(t), text); err != nil {
			t.Fatal(err)
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; write it with: go test ./nft -run TestGolden -update", err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(text, "\n")); diff != "" {
		t.Fatalf("Memory prints another text than %s (- wanted, + got); if that is right, run the test with -update:\n%s",
			file, diff)
	}
}
