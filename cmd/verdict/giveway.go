package main

import (
	"runtime"
	"slices"

	"github.com/spf13/cobra"
)

// readingCommands are the commands that read what a daemon on this node wrote.
var readingCommands = []string{"list", "get", "top", "explain", "diff"}

// giveWay limits a command that reads to one processor. Without the limit, the garbage collector takes the others as
// well, and the daemon waits for one before it writes a change (BenchmarkPassBeside in e2e/daemon).
func giveWay(cmd *cobra.Command) {
	for ; cmd.HasParent(); cmd = cmd.Parent() {
		if slices.Contains(readingCommands, cmd.Name()) {
			runtime.GOMAXPROCS(1)
		}
	}
}
