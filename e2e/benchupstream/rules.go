package main

import (
	"strings"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// ruleCounts counts what a proxy has in the kernel, except for elements.
type ruleCounts struct {
	Chains int `json:"chains"`
	Rules  int `json:"rules"`
	Sets   int `json:"sets_and_maps"`
}

// countRules counts the rules of a node. It does not read the elements of sets, which takes the kernel very long.
func countRules(node *lab.Namespace, legacy bool) (ruleCounts, error) {
	if legacy {
		text, err := node.Command("iptables-legacy-save")
		return countLegacy(text), err
	}
	text, err := node.Command("nft", "--terse", "list", "ruleset")
	return countNFT(text), err
}

func countLegacy(text string) (c ruleCounts) {
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, ":"):
			c.Chains++
		case strings.HasPrefix(line, "-A"):
			c.Rules++
		}
	}
	return c
}

// countNFT counts by the indentation of nft's output: objects are indented once, their contents twice. The comment and
// the hook of a chain are not rules.
func countNFT(text string) (c ruleCounts) {
	inChain := false
	for line := range strings.Lines(text) {
		body := strings.TrimLeft(line, "\t")
		switch depth := len(line) - len(body); {
		case depth == 1:
			inChain = strings.HasPrefix(body, "chain ")
			if inChain {
				c.Chains++
			} else if strings.HasPrefix(body, "set ") || strings.HasPrefix(body, "map ") {
				c.Sets++
			}
		case depth == 2 && inChain && !strings.HasPrefix(body, "type ") && !strings.HasPrefix(body, "comment "):
			c.Rules++
		}
	}
	return c
}
