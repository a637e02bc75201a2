package main

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// giveWayOf has a child of the test give way as a command does, and print its priority.
const giveWayOf = "VERDICT_TEST_GIVE_WAY"

// TestReadersGiveWay: the daemon keeps its priority, and commands that read have a lower one.
func TestReadersGiveWay(t *testing.T) {
	if path := os.Getenv(giveWayOf); path != "" {
		cmd, _, err := newRoot().Find(strings.Fields(path))
		if err != nil {
			t.Fatal(err)
		}
		giveWay(cmd)
		raw, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("nice=%d;", 20-raw) // the system call answers 20 minus the nice value
		return
	}
	own, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append([]string{"run", "get frontend"}, readingCommands...) {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestReadersGiveWay$", "-test.v")
		cmd.Env = append(os.Environ(), giveWayOf+"="+path)
		out, err := cmd.CombinedOutput()
		want := gentle
		if path == "run" {
			want = 20 - own
		}
		if !strings.Contains(string(out), "nice="+strconv.Itoa(want)+";") || err != nil {
			t.Errorf("%s: want nice %d; error %v\n%s", path, want, err, out)
		}
	}
}
