//go:build e2e

package neighbors

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// build builds programs from their Go modules, unless the cache has them, and returns the folder that has them.
func build(t *testing.T, name string) string {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command("./build.sh", name)
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("build %s: %v", name, err)
	}
	return strings.TrimSpace(out.String())
}
