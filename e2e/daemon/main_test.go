//go:build !nokernel

package daemon

import (
	"os"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/netns"
	"github.com/verdict-proxy/verdict/e2e/program"
)

// binary is built once for all tests of this package.
var binary string

func TestMain(m *testing.M) {
	os.Exit(netns.Enter(func() int { return program.Main(m, &binary) }))
}
