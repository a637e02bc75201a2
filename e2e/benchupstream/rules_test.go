package benchupstream

import (
	"maps"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/measure"
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
