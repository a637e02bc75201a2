package main

import (
	"runtime"
	"strings"
	"testing"
)

// TestReadersGiveWay: each of them takes one processor, and the daemon takes what it gets.
func TestReadersGiveWay(t *testing.T) {
	all := runtime.GOMAXPROCS(3)
	defer runtime.GOMAXPROCS(all)
	root := newRoot()
	for _, path := range append([]string{"run", "get frontend"}, readingCommands...) {
		cmd, _, err := root.Find(strings.Fields(path))
		if err != nil {
			t.Fatal(err)
		}
		runtime.GOMAXPROCS(3)
		giveWay(cmd)
		want := 1
		if path == "run" {
			want = 3
		}
		if got := runtime.GOMAXPROCS(0); got != want {
			t.Errorf("%s uses %d processors, want %d", path, got, want)
		}
	}
}
