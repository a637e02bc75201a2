// Package deploy tests the deployment files base/daemonset.yaml and verdict.service, together with the binary that they
// start. What the binary does with packets is tested in e2e.
package deploy

import (
	"os"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/program"
)

// binary is the path of the binary. It is built once for all tests of this package.
var binary string

func TestMain(m *testing.M) {
	withFamilies()
	os.Exit(program.Main(m, &binary))
}
