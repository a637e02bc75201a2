//go:build !nokernel

package daemon

import (
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// TestRestartKeepsFailures: an endpoint that failed its check gets no connections from the next process either, although its
// next regular check would come only minutes later. It is asked at once, and returns when it answers.
func TestRestartKeepsFailures(t *testing.T) {
	w, dir, kept := lab.New(t), t.TempDir(), "--state-dir="+t.TempDir()
	vip := lab.Address(lab.IPv4, "VIP1")
	const good, bad = "10.0.1.1", "10.0.2.1"
	checked := func(interval string) string {
		web := Service{
			Name: "shop/web", ClusterIP: vip, Node: "n2", Endpoints: []string{good, bad},
			Notes: `"verdict-proxy.github.io/health-check": "tcp interval=` + interval + ` rise=1 fall=1",`,
		}
		return web.Manifest()
	}
	serves := func(what string, want bool) {
		t.Helper()
		list := w.Node.Must(t, "", "nft", "list", "map", "ip", "verdict", "endpoints")
		if !strings.Contains(list, good) || strings.Contains(list, bad) != want {
			t.Errorf("%s: %s gets connections: %t\n%s", what, bad, !want, list)
		}
	}
	WriteFile(t, dir, "web.yaml", checked("1s"))
	w.At(t, "c").Must(t, `table inet refuse { chain in { type filter hook input priority 0; tcp dport 8080 reject with tcp reset; }; }`,
		"nft", "-f", "-")
	first := Start(t, binary, w.Node, dir, kept)
	fails := told{bad, []string{"fails its check for ", ": connection refused"}}
	first.tells(t, []string{"list", "shop/web"}, fails)
	first.eventuallyServes(t, bad, false) // the kernel gets a change after the reader of health
	lab.Must(t, first.Stop())
	serves("between the processes", false)

	WriteFile(t, dir, "web.yaml", checked("10m"))
	second := Start(t, binary, w.Node, dir, kept)
	serves("after the restart", false)
	second.tells(t, []string{"list", "shop/web"}, fails) // it was asked at once
	serves("when it was asked", false)
	lab.Must(t, second.Stop())

	w.At(t, "c").Must(t, "", "nft", "delete", "table", "inet", "refuse")
	third := Start(t, binary, w.Node, dir, kept)
	third.eventuallyServes(t, bad, true)
}

// eventuallyServes waits until an endpoint is in the pools, or is not.
func (d *Daemon) eventuallyServes(t *testing.T, endpoint string, want bool) {
	t.Helper()
	for end := time.Now().Add(Patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if strings.Contains(d.Node.Must(t, "", "nft", "list", "map", "ip", "verdict", "endpoints"), endpoint) == want {
			return
		}
	}
	t.Errorf("%s gets connections: %t\n%s", endpoint, !want, d.Log(20))
}
