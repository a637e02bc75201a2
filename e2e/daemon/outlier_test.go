//go:build !nokernel

package daemon

import (
	"context"
	"net/netip"
	"os/exec"
	"slices"
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
	lab.Must(t, d.Node.Start(cmd))
	_ = cmd.Wait() // the output says what happened
	return out.String()
}

// TestOutliersAreShown: when an endpoint is ejected, every command says so, with since when and why.
func TestOutliersAreShown(t *testing.T) {
	w, dir := lab.New(t), t.TempDir()
	vip := lab.Address(lab.IPv4, "VIP1")
	web := Service{Name: "shop/web", ClusterIP: vip, Mode: "eject", Node: "n2", Endpoints: []string{"10.0.1.1", "10.0.1.2", "10.0.2.1"}}
	WriteFile(t, dir, "web.yaml", web.Manifest())
	d := Start(t, binary, w.Node, dir)
	w.At(t, "c").UntilAccepted(t, 1) // only an endpoint that has answered this node is ejected
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
	says := told{"10.0.2.1", []string{"ejected for ", "clients had no answer"}}
	for _, args := range [][]string{
		{"list", "shop/web"}, {"list", "--endpoint", "10.0.2.1"}, {"get", "frontend", vip.String() + ":80"},
		{"explain", "10.0.1.1", vip.String() + ":80"}, {"get", "endpoint", "10.0.2.1"},
	} {
		d.tells(t, args, says)
	}
	d.tells(t, []string{"list", "-o", "json", "shop/web"}, told{"outlier", says.words})
}

// told is what a line about an endpoint has to say.
type told struct {
	endpoint string
	words    []string
}

// in reports whether an output has the line.
func (w *told) in(out string) bool {
	for line := range strings.Lines(out) {
		found := strings.Contains(line, w.endpoint)
		for _, word := range w.words {
			found = found && strings.Contains(line, word)
		}
		if found {
			return true
		}
	}
	return false
}

// tells runs a command until it tells everything.
func (d *Daemon) tells(t *testing.T, args []string, wanted ...told) {
	t.Helper()
	got, lacks := "", wanted
	for late := time.Now().Add(Patience); time.Now().Before(late); time.Sleep(100 * time.Millisecond) {
		got = output(t, d, args...)
		if lacks = slices.DeleteFunc(slices.Clone(wanted), func(w told) bool { return w.in(got) }); len(lacks) == 0 {
			break
		}
	}
	for _, w := range lacks {
		t.Errorf("verdict %s does not say of %s %q:\n%s\n%s", strings.Join(args, " "), w.endpoint, w.words, got, d.Log(5))
	}
	if strings.Contains(got, "2562047h") {
		t.Errorf("verdict %s says since when something is that never began:\n%s", strings.Join(args, " "), got)
	}
}

// everywhere has the commands tell of all endpoints of a Service. The endpoint is one of them.
func (d *Daemon) everywhere(t *testing.T, vip netip.Addr, endpoint string, wanted ...told) {
	t.Helper()
	for _, args := range [][]string{
		{"list", "shop/web"}, {"list"}, {"get", "frontend", vip.String() + ":80"}, {"explain", "10.0.1.1", vip.String() + ":80"},
	} {
		d.tells(t, args, wanted...)
	}
	i := slices.IndexFunc(wanted, func(w told) bool { return w.endpoint == endpoint })
	d.tells(t, []string{"get", "endpoint", endpoint}, wanted[i])
	d.tells(t, []string{"list", "--endpoint", endpoint}, wanted[i])
	d.tells(t, []string{"list", "-o", "json", "shop/web"}, told{"outlier", wanted[i].words})
}

// TestChecksAreShown: every command says which endpoints fail their check or are backups, with since when and
// why.
func TestChecksAreShown(t *testing.T) {
	w, dir := lab.New(t), t.TempDir()
	vip := lab.Address(lab.IPv4, "VIP1")
	web := Service{
		Name: "shop/web", ClusterIP: vip, Node: "n2", Endpoints: []string{"10.0.1.1", "10.0.2.1"}, Backups: []string{"10.0.1.2"},
		Notes: `"verdict-proxy.github.io/health-check": "tcp interval=1s rise=1 fall=1",`,
	}
	WriteFile(t, dir, "web.yaml", web.Manifest())
	d := Start(t, binary, w.Node, dir, "--outlier-detection=off")
	refuse := func(pod string) {
		w.At(t, pod).Must(t, `table inet refuse { chain in { type filter hook input priority 0; tcp dport 8080 reject with tcp reset; }; }`,
			"nft", "-f", "-")
	}
	fails := []string{"fails its check for ", ": connection refused"}
	const first, second, spare = "10.0.1.1", "10.0.2.1", "10.0.1.2"

	refuse("c")
	d.everywhere(t, vip, second, told{second, fails}, told{spare, []string{"backup, not used: another endpoint is good"}})
	d.tells(t, []string{"get", "endpoint", spare}, told{spare, []string{"backup, not used: another endpoint is good"}})

	refuse("a")
	d.everywhere(t, vip, spare, told{first, fails}, told{second, fails},
		told{spare, []string{"backup, in use for ", ": no other endpoint is good"}})

	w.At(t, "c").Must(t, "", "nft", "delete", "table", "inet", "refuse")
	d.everywhere(t, vip, spare, told{first, fails},
		told{spare, []string{"backup, not used: another endpoint is good"}})

	refuse("c")
	refuse("b")
	kept := append(slices.Clone(fails), "; it gets connections all the same: no endpoint is good")
	d.everywhere(t, vip, first, told{first, kept}, told{second, kept},
		told{spare, append(slices.Clone(fails), "; backup, not used: no endpoint is good, and on-all-down is keep")})
}
