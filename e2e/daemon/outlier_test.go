//go:build !nokernel

package daemon

import (
	"context"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// output runs a command on the node and returns what it prints.
func output(t testing.TB, d *Daemon, args ...string) string {
	t.Helper()
	var out strings.Builder
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := d.Node.Start(cmd); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the output says what happened
	return out.String()
}

// TestOutliersAreShown: when an endpoint is ejected, every command says so, with since when and why.
func TestOutliersAreShown(t *testing.T) {
	w, dir := lab.New(t), t.TempDir()
	vip, err := lab.Lookup(lab.IPv4, "VIP1")
	if err != nil {
		t.Fatal(err)
	}
	web := Service{Name: "shop/web", ClusterIP: vip, Mode: "eject", Node: "n2", Endpoints: []string{"10.0.1.1", "10.0.1.2", "10.0.2.1"}}
	WriteFile(t, dir, "web.yaml", web.Manifest())
	d := Start(t, binary, w.Node, dir)
	time.Sleep(2 * time.Second) // only an endpoint that has answered this node is ejected
	w.At(t, lab.Remote).Must(t, `table netdev gone { chain in { type filter hook ingress device "eth0" priority 0; policy drop; }; }`,
		"nft", "-f", "-")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = w.At(t, "x").Ask(lab.Question{Protocol: lab.TCP, To: netip.AddrPortFrom(vip, 80), Patience: 1500 * time.Millisecond})
		}
	}()
	defer func() { stop(); <-done }()
	const why = "clients had no answer"
	for _, args := range [][]string{
		{"list", "shop/web"}, {"list", "--endpoint", "10.0.2.1"}, {"get", "frontend", vip.String() + ":80"}, {"list", "-o", "json", "shop/web"},
		{"explain", "10.0.1.1", vip.String() + ":80"}, {"get", "endpoint", "10.0.2.1"},
	} {
		got := ""
		for late := time.Now().Add(Patience); time.Now().Before(late); time.Sleep(100 * time.Millisecond) {
			if got = output(t, d, args...); strings.Contains(got, "ejected for ") && strings.Contains(got, why) {
				break
			}
		}
		if !strings.Contains(got, "ejected for ") || !strings.Contains(got, why) {
			t.Errorf("verdict %s does not say that 10.0.2.1 is ejected:\n%s\n%s", strings.Join(args, " "), got, d.Log(5))
		}
	}
}
