//go:build e2e

package flood

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/verdict-proxy/verdict/e2e/daemon"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/netns"
	"github.com/verdict-proxy/verdict/e2e/program"
)

var verdict string // the program under test

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		fmt.Fprintln(os.Stderr, play(role))
		os.Exit(1) // what it plays does not end by itself
	}
	os.Exit(netns.Enter(func() int { return program.Main(m, &verdict) }))
}

// bed is a world with the daemon on its node, and two Services: shop/calm, which others must not disturb, and
// tenant/sticky, with session affinity.
type bed struct {
	*lab.World
	server *server
	daemon *daemon.Daemon
	dir    string
	prefix []string // of the command of the daemon
}

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:6444"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
current-context: c
`

// untracked keeps out of the table of connections what the kernel would remove from a full one at a moment of its own:
// flows of which it has not seen both directions from the start. Such are the connections with the API server, which are
// older than the rules of the daemon, and the reports of multicast groups. Their removal makes room for a new connection.
const untracked = `table ip untracked {
	chain output {
		type filter hook output priority raw
		tcp dport 6444 notrack
		tcp sport 6444 notrack
		ip protocol igmp notrack
	}
	chain prerouting {
		type filter hook prerouting priority raw
		ip protocol igmp notrack
	}
}`

// newBed makes the world, and starts the daemon with these further objects.
func newBed(t testing.TB, further ...object) *bed {
	t.Helper()
	b := newBedWithout(t)
	b.server.put(further...)
	b.start(t)
	return b
}

// newBedWithout makes the world without a daemon.
func newBedWithout(t testing.TB) *bed {
	t.Helper()
	b := &bed{World: lab.New(t), server: newServer(), dir: t.TempDir()}
	sticky := slice("tenant", "sticky", pod("a", 8080), pod("b", 8080))
	sticky.Ports[1].Port = ptr.To[int32](9) // nobody answers UDP there: a server in this process would need a core in a flood
	b.server.put(node(), service("default", "kubernetes", netip.MustParseAddrPort("10.96.0.1:443"), false),
		service("shop", "calm", calmFrontend, false), slice("shop", "calm", pod("a", 8080), pod("b", 8080)),
		service("tenant", "sticky", stickyFrontend, true), sticky)
	b.Node.Must(t, untracked, "nft", "-f", "-")
	b.Node.MustDo(t, func() error { b.server.listen(t, "127.0.0.1:6444"); return nil })
	lab.Must(t, os.WriteFile(filepath.Join(b.dir, "kubeconfig"), []byte(kubeconfig), 0o600))
	return b
}

func pod(name string, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(lab.PodAddress(lab.IPv4, name), port)
}

// command is that of the daemon.
func (b *bed) command(flags ...string) []string {
	return append(append(slices.Clone(b.prefix),
		verdict, "run", "--kubeconfig="+filepath.Join(b.dir, "kubeconfig"), "--hostname-override="+lab.NodeName, "--backend=nft",
		"--cluster-cidr=10.0.0.0/16", "--healthz-bind-address=", "--conntrack-max-per-core=0",
	), flags...)
}

// start starts the daemon, and waits for its first pass.
func (b *bed) start(t testing.TB, flags ...string) {
	t.Helper()
	b.daemon = daemon.Run(t, b.Node, b.dir, b.command(flags...)...)
}
