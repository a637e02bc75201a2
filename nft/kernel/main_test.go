//go:build !nokernel

package kernel

import (
	"os"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/netns"
)

// The tests work on the real kernel, in network namespaces that they make.
func TestMain(m *testing.M) { os.Exit(netns.Main(m)) }
