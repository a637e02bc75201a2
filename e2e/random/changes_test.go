//go:build e2e || ipvs

package random

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/objects"
)

// change is a kind of change.
type change struct {
	name   string
	weight int
	make   func(*node) string // makes it, and says what
}

func (n *node) changes() []change {
	list := []change{
		{"write", 40, (*node).writeService},
		{"remove", 10, (*node).removeService},
		{"mode", 15, (*node).mode},
		{"restart", 2, (*node).restart},
		{"kill", 2, (*node).killed},
		{"reload", 4, (*node).reload},
		{"address", 3, (*node).address},
		{"damage", 2, (*node).damage},
	}
	if *clock {
		list = append(list, change{"clock", 30, (*node).jump})
	}
	if n.backend != "" {
		list = append(list, change{"virtual server", 10, (*node).editVirtual})
	}
	return list
}

// draw draws a kind of change by its weight.
func (n *node) draw() change {
	list, sum := n.changes(), 0
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

// mode changes how an endpoint of a Service is picked, and the name of its port, while clients connect to it.
func (n *node) mode() string {
	what := ""
	n.write("modal", modal(func(s *corev1.Service) {
		objects.RandomMode(n.r, s)
		s.Spec.Ports[0].Name = objects.OneOf(n.r, "http", "web")
		what = fmt.Sprint(s.Annotations, s.Spec.SessionAffinity, s.Spec.Ports[0].Name)
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

// damage kills the daemon, damages manifests or takes them away, also those of the Services that nobody touches, and starts
// it again: what the files had stays. Then the files are as they were.
func (n *node) damage() string {
	n.Helper()
	files, err := filepath.Glob(filepath.Join(n.manifests, "*.yaml"))
	n.must(err)
	// Half of a file can hold a Service whose port has a new name. Its endpoints in the kernel must have the new name, too.
	n.equal("what was before the damage")
	n.kill()
	// One file cannot be read until all others are as they were. Without it, what no file defines is removed.
	n.r.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
	what := ""
	for i, file := range files {
		how := n.r.IntN(8) // nothing, removed, or cut
		if i > 0 && how < 2 {
			continue
		}
		text, err := os.ReadFile(file)
		n.must(err)
		what += " " + filepath.Base(file)
		defer func() { n.write(strings.TrimSuffix(filepath.Base(file), ".yaml"), string(text)) }()
		switch {
		case i == 0:
			n.must(os.WriteFile(file, text[:len("---\n{")+n.r.IntN(bytes.IndexByte(text, '}'))], 0o644))
		case how < 4:
			n.must(os.Remove(file))
		default:
			n.must(os.WriteFile(file, text[:n.r.IntN(len(text)/2)], 0o644))
		}
	}
	n.start()
	for late := time.Now().Add(patience); !strings.Contains(n.daemon.Log(1000), `msg="tables written"`); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(late) {
			n.Fatalf("after damage of%s, no tables are written:\n%s\n%s", what, n.daemon.Log(20), n.history)
		}
	}
	return what
}

// drawBudgets leaves room for the Services that nobody touches. The budgets of namespaces are none of them: who has room
// keeps it, so they depend on what was before, which diff does not know.
func (n *node) drawBudgets() {
	n.budgets = []string{
		fmt.Sprintf("--max-service-elements=%d", objects.OneOf(n.r, 16, 40, 1000, 100_000)),
		fmt.Sprintf("--max-service-frontends=%d", objects.OneOf(n.r, 24, 60, 10_000)),
	}
}

// reload changes settings that take effect without a restart. Node ports always answer at the primary addresses.
func (n *node) reload() string {
	n.nodePorts = objects.OneOf(n.r,
		[]string{"primary"}, []string{"all"}, []string{"primary", "localhost"},
		[]string{lab.MustText(lab.IPv4, "CLIENTS"), lab.MustText(lab.IPv6, "CLIENTS")})
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
		a := lab.Address(f, "SPARE")
		p := netip.PrefixFrom(a, a.BitLen())
		if n.spare {
			n.must(n.world.Node.AddAddress(lab.OutsideLink, p))
		} else {
			n.must(n.world.Node.RemoveAddress(lab.OutsideLink, p))
		}
	}
	return fmt.Sprint(n.spare)
}

// editVirtual deletes a virtual server of a random Service, or a real server, or gives it another weight.
func (n *node) editVirtual() string {
	n.Helper()
	var lines [][]string
	for line := range strings.Lines(n.world.Node.Must(n, "", "ipvsadm", "-Sn")) {
		words := strings.Fields(line) // -A -t ADDRESS:PORT ..., or -a -t ADDRESS:PORT -r ADDRESS:PORT -m -w WEIGHT
		if strings.HasPrefix(words[2], "10.96.1.") || strings.HasPrefix(words[2], "[fd00:10:96::1:") {
			lines = append(lines, words)
		}
	}
	if len(lines) == 0 {
		return "none"
	}
	words := objects.OneOf(n.r, lines...)
	edit := []string{"-D", words[1], words[2]}
	if words[0] == "-a" {
		edit = []string{"-d", words[1], words[2], words[3], words[4]}
		if n.r.IntN(2) == 0 {
			edit = []string{"-e", words[1], words[2], words[3], words[4], "-m", "-w", "9"}
		}
	}
	if _, err := n.world.Node.Command("ipvsadm", edit...); err != nil {
		return "none: Verdict was faster"
	}
	return strings.Join(edit, " ")
}
