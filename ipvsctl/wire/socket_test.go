//go:build !nokernel

package wire

import (
	"io"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
)

// TestQuiet checks that the warning of moby/ipvs about a missing modprobe is not logged.
func TestQuiet(t *testing.T) {
	t.Setenv("PATH", "") // without modprobe
	var logged strings.Builder
	out := logrus.StandardLogger().Out
	logrus.SetOutput(&logged)
	defer logrus.SetOutput(out)
	h, err := openServers(0)
	if err != nil {
		t.Fatal(err)
	}
	h.Close()
	if logged.Len() > 0 {
		t.Errorf("moby/ipvs logged: %s", logged.String())
	}
	if logrus.StandardLogger().Out != io.Writer(&logged) {
		t.Error("the output of the log was not restored")
	}
}
