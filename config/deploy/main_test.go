// Package deploy tests what Verdict is shipped with: daemonset.yaml and verdict.service, each with the binary that it
// starts. It is not about what the binary does with packets; e2e is.
package deploy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// binary is built once for all tests of this package.
var binary string

func TestMain(m *testing.M) {
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "verdict-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "verdict")
	build := exec.Command("go", "build", "-o", binary, "../../cmd/verdict")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s\n", err, out)
		return 1
	}
	return m.Run()
}
