//go:build ipvs

package ipvs

import (
	"fmt"
	"os"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/runner"
)

// binaryVariable names the verdict binary in the environment; e2e/ipvskernel/test.sh builds it.
const binaryVariable = "VERDICT_BINARY"

func TestMain(m *testing.M) {
	for _, path := range []string{os.Getenv(binaryVariable), "/proc/net/ip_vs"} {
		if _, err := os.Stat(path); err != nil {
			fmt.Fprintf(os.Stderr, "these tests need a kernel with IPVS and %s=PATH of verdict; e2e/ipvskernel/test.sh gives them both: %v\n", binaryVariable, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

func verdict() runner.Proxy {
	return runner.Proxy{Kind: runner.Verdict, Binary: os.Getenv(binaryVariable)}
}
