//go:build !nokernel

package daemon

import (
	"os"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/netns"
)

func TestMain(m *testing.M) { os.Exit(netns.Enter(m.Run)) }
