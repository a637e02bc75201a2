//go:build !nokernel

package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// buildTools builds the program in the folder tools. It links the libraries of Helm, kustomize and Prometheus, so the
// first build takes two minutes.
var buildTools = sync.OnceValues(func() (string, error) {
	path, err := filepath.Abs("../../.cache/deploy-tools")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-C", "tools", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	return path, cmd.Run()
})

// tool runs the program with something on standard input.
func tool(t *testing.T, input string, args ...string) string {
	t.Helper()
	path, err := buildTools()
	if err != nil {
		t.Fatalf("build config/deploy/tools: %v", err)
	}
	cmd := exec.Command(path, args...)
	cmd.Stdin = strings.NewReader(input)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, errs.String())
	}
	return string(out)
}
