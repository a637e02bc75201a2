//go:build e2e || ipvs

package random

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// noIPv6 switches IPv6 off on the node, for all interfaces or for one, while clients use IPv4 Services, and on again.
// Before and after each switch, the kernel has what the manifests ask for. In the end IPv6 Services answer as before. While
// IPv6 is off, IPVS cannot serve it, and nft does.
func noIPv6(t *testing.T, backend string) {
	n := newNode(t, rand.New(rand.NewPCG(1, 6)), backend)
	n.equal("the untouched Services")
	clients := n.watch(lab.IPv4)
	restore := n.addressesAndRoutes()
	flip := func(where, value string) {
		n.must(n.world.Node.Sysctl("net.ipv6.conf." + where + ".disable_ipv6=" + value))
	}
	changes := func(what string, equal bool) {
		for range 2 {
			n.note(what + ", " + n.writeService() + ", " + n.mode())
			if equal {
				n.equal(n.history[len(n.history)-1])
			}
		}
		clients.noticeNothing(n.history)
	}
	switches := []struct {
		where   string
		restart bool // the daemon starts while IPv6 is off
	}{
		{"all", false}, {lab.OutsideLink, true}, {"all", true}, {lab.InnerLink, false}, {"lo", false}, {"lo", true},
	}
	if backend != "" {
		switches = switches[:1] // IPVS is tried again after a minute
	}
	for _, tt := range switches {
		if tt.restart {
			n.stop()
		}
		flip(tt.where, "1")
		if tt.restart {
			n.start()
		}
		changes("IPv6 is off: "+tt.where, backend == "")
		flip(tt.where, "0")
		restore()
		changes("IPv6 is on again: "+tt.where, true)
		n.answersIPv6(tt.where)
	}
	clients.end(n.history)
	t.Log(clients)
}

// addressesAndRoutes returns a function that gives the node the IPv6 addresses and routes that it has now. The kernel
// forgets them when IPv6 is switched off; on a real node, the configuration of its network gives them back.
func (n *node) addressesAndRoutes() (restore func()) {
	n.Helper()
	commands := ""
	for line := range strings.Lines(n.world.Node.Must(n, "", "ip", "-6", "-o", "address", "show", "scope", "global")) {
		words := strings.Fields(line) // number, link, inet6, address
		commands += "address replace " + words[3] + " dev " + words[1] + " nodad\n"
	}
	for line := range strings.Lines(n.world.Node.Must(n, "", "ip", "-6", "route", "show")) {
		if !strings.Contains(line, " proto kernel") {
			commands += "route replace " + line
		}
	}
	return func() {
		n.Helper()
		n.world.Node.Must(n, commands, "ip", "-6", "-batch", "-")
	}
}

// answersIPv6 expects that all frontends of an untouched Service answer over IPv6, from outside, from a pod and from the
// node.
func (n *node) answersIPv6(after string) {
	n.Helper()
	web, _, _ := targets(lab.IPv6)
	for _, place := range []string{lab.Outside, "d", lab.Node} {
		for _, to := range web {
			for _, p := range []lab.Protocol{lab.TCP, lab.UDP} {
				n.answers(after, place, lab.Question{Protocol: p, To: to, Patience: 2 * time.Second})
			}
		}
	}
}

// answers asks until there is an answer. Right after a switch, neighbors have to find each other.
func (n *node) answers(after, place string, q lab.Question) {
	n.Helper()
	for late := time.Now().Add(patience); ; {
		r := n.world.At(n, place).Ask(q)
		if r.Outcome == lab.Answered {
			return
		}
		if time.Now().After(late) {
			n.Fatalf("after %s, %s from %s: %s\n%s\n%s", after, q, place, r, n.daemon.Log(20), n.history)
		}
	}
}
