//go:build !nokernel

package main

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestCleanupBesideADaemon: a clean-up beside a daemon removes nothing, whoever owns the tables, and says why.
func TestCleanupBesideADaemon(t *testing.T) {
	n := newNeighborhood(t)
	p := n.daemon(t, localhost, "sh", "-c", `exec "$@" --table-owner=off`, "sh")
	n.expect(t, "running", "1", guardedTable, guardTable)
	for _, args := range [][]string{{"cleanup"}, {"run", "--cleanup"}, {"cleanup", "--await-kube-proxy=1s"}} {
		exit, _, stderr := inside(t, n.node, args...)
		if exit != 1 || !strings.Contains(stderr, "another process of Verdict") || !strings.Contains(stderr, "nothing was removed") {
			t.Errorf("verdict %s ends with %d: %s", strings.Join(args, " "), exit, stderr)
		}
		n.expect(t, "after verdict "+strings.Join(args, " "), "1", guardedTable, guardTable)
	}
	p.end(syscall.SIGTERM)
	n.run(t, "--cleanup")
	n.expect(t, "cleaned up", "0")
}

// TestSysctlIsKept: node ports on 127.0.0.1 answer again after somebody has reset their sysctl.
func TestSysctlIsKept(t *testing.T) {
	n := newNeighborhood(t)
	p := n.daemon(t, localhost)
	n.expect(t, "running", "1", guardedTable, guardTable)
	n.node.Must(t, "", "sysctl", "-qw", routeLocalnet+"=0")
	for end := time.Now().Add(3 * time.Minute); n.sysctl(t) != "1" && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	n.expect(t, "after a reset", "1", guardedTable, guardTable)
	if log := p.end(syscall.SIGTERM); !strings.Contains(log, "another process reset the sysctl") {
		t.Errorf("nothing is said:\n%s", log)
	}
}
