package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// failures is the folder in which failed tests leave what is needed to understand them. CI sets VERDICT_FAILURES, and prints
// the ends of the files.
func failures() string {
	if dir := os.Getenv("VERDICT_FAILURES"); dir != "" {
		return dir
	}
	return filepath.Join(os.TempDir(), "verdict-failures")
}

// SaveMoment writes the rules, the flows and the virtual servers of a node, and the logs of processes, into a folder of their
// own, and returns it. What cannot be read is part of the error; the rest is there.
func SaveMoment(name string, node *Namespace, processes ...*Process) (dir string, err error) {
	dir = filepath.Join(failures(), strings.NewReplacer("/", "_", " ", "-").Replace(name))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return dir, fmt.Errorf("make a folder for what a failed test leaves: %w", err)
	}
	var errs []error
	for file, command := range map[string][]string{
		"ruleset": {"nft", "list", "ruleset"}, "flows": {"conntrack", "-L"}, "flows6": {"conntrack", "-L", "-f", "ipv6"},
		"ipvs": {"cat", "/proc/net/ip_vs"}, "ipvs-connections": {"cat", "/proc/net/ip_vs_conn"}, "addresses": {"ip", "address"},
	} {
		text, err := node.Command(command[0], command[1:]...)
		if err != nil && !strings.HasPrefix(file, "ipvs") { // few kernels have it
			errs = append(errs, err)
		}
		errs = append(errs, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644))
	}
	for _, p := range processes {
		if p != nil {
			const everything = 1 << 30
			errs = append(errs, os.WriteFile(filepath.Join(dir, p.Name+".log"), []byte(p.Log(everything)+"\n"), 0o644))
		}
	}
	return dir, errors.Join(errs...)
}

// SaveIfFailed saves the moment of a test that has failed, and shows the ends of the logs. It is for the cleanup of a test,
// before that ends the processes.
func SaveIfFailed(t testing.TB, node *Namespace, processes ...*Process) {
	t.Helper()
	if !t.Failed() {
		return
	}
	dir, err := SaveMoment(t.Name(), node, processes...)
	t.Logf("rules, flows and logs of this moment are in %s", dir)
	if err != nil {
		t.Log(err)
	}
	for _, p := range processes {
		if p != nil {
			t.Logf("the log of %s ends:\n%s", p.Name, p.Log(60))
		}
	}
}
