package benchupstream

import (
	"fmt"
	"maps"
	"strings"
	"syscall"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/measure"
	"github.com/verdict-proxy/verdict/e2e/netns"
)

// countRules counts the chains, rules and sets of a node. It does not read the elements of sets, which takes the kernel very
// long.
func countRules(b testing.TB, node *lab.Namespace, legacy bool, f measure.Figures) {
	b.Helper()
	count, command := countNFT, []string{"nft", "--terse", "list", "ruleset"}
	if legacy {
		count, command = countLegacy, []string{"iptables-legacy-save"}
	}
	text, err := node.Command(command[0], command[1:]...)
	lab.Must(b, err)
	maps.Copy(f, count(text))
}

func countLegacy(text string) measure.Figures {
	c := measure.Figures{"chains": 0, "rules": 0, "sets": 0}
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, ":"):
			c["chains"]++
		case strings.HasPrefix(line, "-A"):
			c["rules"]++
		}
	}
	return c
}

// countNFT counts by the indentation of nft's output: objects are indented once, their contents twice. The comment and
// the hook of a chain are not rules.
func countNFT(text string) measure.Figures {
	c := measure.Figures{"chains": 0, "rules": 0, "sets": 0}
	inChain := false
	for line := range strings.Lines(text) {
		body := strings.TrimLeft(line, "\t")
		switch depth := len(line) - len(body); {
		case depth == 1:
			inChain = strings.HasPrefix(body, "chain ")
			if inChain {
				c["chains"]++
			} else if strings.HasPrefix(body, "set ") || strings.HasPrefix(body, "map ") {
				c["sets"]++
			}
		case depth == 2 && inChain && !strings.HasPrefix(body, "type ") && !strings.HasPrefix(body, "comment "):
			c["rules"]++
		}
	}
	return c
}

// BenchmarkTransaction shows why the first sync of kube-proxy nftables takes so much longer with more Services, and differs
// between machines. It has the program nft load chains in one transaction: with a map of its own in the rule of each, as those
// of kube-proxy, and without. The kernel looks for each such map in the list of all maps of the transaction.
func BenchmarkTransaction(b *testing.B) {
	for _, chains := range []int{1000, 2000, 4000, 8000} {
		for maps, rule := range map[string]string{"own": "numgen random mod 2 map { 0 : 10.128.0.1 . 80, 1 : 10.128.0.2 . 80 }", "none": "10.128.0.1:80"} {
			b.Run(fmt.Sprintf("chains=%d/maps=%s", chains, maps), func(b *testing.B) {
				var script strings.Builder
				script.WriteString("add table ip t\nadd chain ip t nat { type nat hook prerouting priority 0 ; }\n")
				for i := range chains {
					fmt.Fprintf(&script, "add chain ip t service-%06d\nadd rule ip t service-%06d meta l4proto tcp dnat ip to %s\n", i, i, rule)
				}
				node := &lab.Namespace{Namespace: netns.New(b)}
				var before, after syscall.Rusage
				for b.Loop() {
					lab.Must(b, syscall.Getrusage(syscall.RUSAGE_CHILDREN, &before), node.Load(script.String()),
						syscall.Getrusage(syscall.RUSAGE_CHILDREN, &after))
				}
				b.ReportMetric(float64(after.Utime.Nano()-before.Utime.Nano()), "nft-cpu-ns")
				b.ReportMetric(float64(after.Stime.Nano()-before.Stime.Nano()), "kernel-cpu-ns")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
