package main

import (
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// readingCommands are the commands that read what a daemon on this node wrote.
var readingCommands = []string{"list", "get", "top", "explain", "diff"}

// gentle is the nice value of a command that reads. Beside a daemon that wants the same processor, it gets a tenth.
const gentle = 10

// giveWay lowers the priority of a command that reads, so that the daemon does not wait for a processor before it writes
// a change (BenchmarkPassBeside in e2e/daemon).
func giveWay(cmd *cobra.Command) {
	for ; cmd.HasParent(); cmd = cmd.Parent() {
		if slices.Contains(readingCommands, cmd.Name()) {
			lowerPriority()
		}
	}
}

// lowerPriority lowers that of all threads. New threads have the priority of the thread that makes them. Where this is
// not possible, the command works as it is.
func lowerPriority() {
	threads, _ := os.ReadDir("/proc/self/task")
	for _, t := range threads {
		if id, err := strconv.Atoi(t.Name()); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, id, gentle)
		}
	}
}
