//go:build e2e

package random

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// change is a kind of change.
type change struct {
	name   string
	weight int
	make   func(*node) string // makes it, and says what
}

func changes() []change {
	list := []change{
		{"write", 40, (*node).writeService},
		{"remove", 10, (*node).removeService},
		{"mode", 15, (*node).mode},
		{"restart", 2, (*node).restart},
		{"kill", 2, (*node).killed},
		{"reload", 4, (*node).reload},
		{"address", 3, (*node).address},
	}
	if *clock {
		list = append(list, change{"clock", 30, (*node).jump})
	}
	return list
}

// draw draws a kind of change by its weight.
func (n *node) draw() change {
	list, sum := changes(), 0
	for _, c := range list {
		sum += c.weight
	}
	at := n.r.IntN(sum)
	for _, c := range list {
		if at -= c.weight; at < 0 {
			return c
		}
	}
	return list[0]
}

// randomPrefix begins the names of the files with random Services.
const randomPrefix = "random-"

// randomServices is how many Services there are at most.
const randomServices = 30

func (n *node) oneName() string { return fmt.Sprintf("%s%02d", randomPrefix, n.r.IntN(randomServices)) }

func (n *node) writeService() string {
	name := n.oneName()
	n.write(name, randomManifest(n.r, name))
	return name
}

// mode changes how an endpoint of a Service is picked, while clients connect to it.
func (n *node) mode() string {
	what := ""
	n.write("modal", modal(func(s *corev1.Service) {
		randomMode(n.r, s)
		what = fmt.Sprint(s.Annotations, s.Spec.SessionAffinity)
	}))
	return what
}

func (n *node) removeService() string {
	name := n.oneName()
	if err := os.Remove(filepath.Join(n.manifests, name+".yaml")); err != nil && !os.IsNotExist(err) {
		n.must(err)
	}
	return name
}

// restart restarts the daemon in an orderly way, with other budgets.
func (n *node) restart() string {
	n.stop()
	n.drawBudgets()
	n.start()
	return strings.Join(n.budgets, " ")
}

func (n *node) killed() string {
	n.kill()
	n.drawBudgets()
	n.start()
	return strings.Join(n.budgets, " ")
}

// drawBudgets leaves room for the Services that nobody touches. The budgets of namespaces are none of them: who has room
// keeps it, so they depend on what was before, which diff does not know.
func (n *node) drawBudgets() {
	n.budgets = []string{
		fmt.Sprintf("--max-service-elements=%d", oneOf(n.r, 16, 40, 1000, 100_000)),
		fmt.Sprintf("--max-service-frontends=%d", oneOf(n.r, 24, 60, 10_000)),
	}
}

// reload changes settings that take effect without a restart. Node ports always answer at the primary addresses.
func (n *node) reload() string {
	n.nodePorts = oneOf(n.r,
		[]string{"primary"}, []string{"all"}, []string{"primary", "localhost"},
		[]string{text(lab.IPv4, "CLIENTS"), text(lab.IPv6, "CLIENTS")})
	n.masquAll = n.r.IntN(4) == 0
	n.configure()
	return fmt.Sprint(n.nodePorts, n.masquAll)
}

// jump sets the clock forward or back by up to a day. In the end it is right, apart from the time that passed.
func (n *node) jump() string {
	by := time.Duration(n.r.Int64N(int64(48*time.Hour))) - 24*time.Hour
	if n.r.IntN(3) == 0 {
		by = -n.ahead
	}
	n.setClock(by)
	return by.String()
}

func (n *node) setClock(by time.Duration) {
	n.Helper()
	t := unix.NsecToTimespec(time.Now().Add(by).UnixNano())
	n.must(unix.ClockSettime(unix.CLOCK_REALTIME, &t))
	n.ahead += by
}

// address gives the node addresses, or takes them away.
func (n *node) address() string {
	n.spare = !n.spare
	for _, f := range lab.Families() {
		a := address(f, "SPARE")
		p := netip.PrefixFrom(a, a.BitLen())
		if n.spare {
			n.must(n.world.Node.AddAddress(lab.OutsideLink, p))
		} else {
			n.must(n.world.Node.RemoveAddress(lab.OutsideLink, p))
		}
	}
	return fmt.Sprint(n.spare)
}
