//go:build !nokernel

package loopback

import (
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/e2e/netns"
	"github.com/verdict-proxy/verdict/nft/program"
)

func TestMain(m *testing.M) { os.Exit(netns.Enter(m.Run)) }

// TestGuardNamesTheProcess: the keeper finds a change at the same time as the kernel reports it, and names the process.
func TestGuardNamesTheProcess(t *testing.T) {
	ns, s := netns.New(t), config.Default()
	s.NodePortAddresses = []string{config.NodePortLocalhost}
	var log strings.Builder
	keeper := NewKeeper(slog.New(slog.NewTextHandler(&log, nil)))
	ns.MustDo(t, func() error {
		if err := keeper.Set(&s); err != nil {
			return err
		}
		if err := ns.Load("delete table ip " + program.LoopbackTableName); err != nil {
			return err
		}
		keeper.Changed("nft")
		return keeper.look("", time.Now())
	})
	if !strings.Contains(log.String(), "process=nft") {
		t.Errorf("the log does not name the process:\n%s", log.String())
	}
}
