// Package program builds verdict for tests that run it as a process.
package program

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"testing"
)

// Variable is the environment variable with the path of a verdict for the tests. "make test" builds one for all
// packages. Without the variable, each package builds its own.
const Variable = "VERDICT_BINARY"

// Version is the version of verdict in tests.
const Version = "v0.0.0-test"

// Main is for the TestMain of a package. It puts verdict into a temporary folder, stores the path, and runs the tests.
func Main(m *testing.M, path *string) int {
	dir, err := os.MkdirTemp("", "verdict-test-")
	if err == nil {
		defer os.RemoveAll(dir)
		*path = filepath.Join(dir, "verdict")
		err = provide(*path)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// provide makes a file that an ordinary user may also run, wherever the one of the environment is.
func provide(path string) error {
	if err := os.Chmod(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("open the folder of verdict to all users: %w", err)
	}
	existing := os.Getenv(Variable)
	if existing == "" {
		return Build(path)
	}
	text, err := os.ReadFile(existing)
	if err == nil {
		err = os.WriteFile(path, text, 0o755)
	}
	if err != nil {
		return fmt.Errorf("copy the verdict that %s names: %w", Variable, err)
	}
	return nil
}

// Build builds verdict. When the test has the race detector, verdict has it, too: the two then share compiled packages,
// and a race in verdict fails the test. Otherwise verdict is static, as it is shipped.
func Build(path string) error {
	args, cgo := []string{"build", "-ldflags", "-X main.version=" + Version, "-o", path}, "CGO_ENABLED=0"
	info, _ := debug.ReadBuildInfo() // every test binary has it
	if slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args, cgo = append(args, "-race"), "CGO_ENABLED=1"
	}
	cmd := exec.Command("go", append(args, "github.com/verdict-proxy/verdict/cmd/verdict")...)
	cmd.Env = append(os.Environ(), cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build verdict for the tests: %w\n%s", err, out)
	}
	return nil
}
