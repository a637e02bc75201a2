package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/program"
)

// binary is verdict, built once for all tests of this package.
var binary string

// demo builds the demo once, beside verdict. Every user may run it.
var demo = sync.OnceValue(func() string {
	path := filepath.Join(filepath.Dir(binary), "demo")
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		panic(fmt.Sprintf("build the demo: %v\n%s", err, out))
	}
	return path
})

// fault is the environment variable that turns this test binary into a "verdict run" that fails in some way.
const fault = "VERDICT_TEST_FAULT"

func TestMain(m *testing.M) {
	if how := os.Getenv(fault); how != "" && len(os.Args) > 1 && os.Args[1] == "run" {
		os.Exit(failingProxy(how))
	}
	os.Exit(program.Main(m, &binary))
}

// patience is how long a test waits for something that normally takes some seconds at most.
const patience = time.Minute

// failingProxy does what a broken "verdict run" might.
func failingProxy(how string) int {
	switch how {
	case "ends at once":
		fmt.Fprintln(os.Stderr, "verdict: --manifests: no such folder")
	case "reports an error":
		fmt.Fprintln(os.Stderr, `time=2026-01-01T00:00:00Z level=ERROR msg="pass not applied" error="operation not permitted"`)
	}
	return 1
}
