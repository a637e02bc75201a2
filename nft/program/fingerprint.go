package program

import (
	"fmt"
	"hash/fnv"
	"io"
	"strings"
)

// Fingerprint names the rules and sets of a program, and its options.
func (p Program) Fingerprint(defs []Set) string {
	h := fnv.New64a()
	p.Lengths = GroupOf(8) // one stands for all
	chains := p.Chains()
	for _, m := range Methods() {
		d := Draw{m, ExactDraws + 1}
		chains = append(chains, p.TokenChain(d), p.TokenChain(Draw{m, 1}))
		for _, c := range []Class{{Draw: d}, {Draw: d, Affinity: 1e9}, {Draw: d, Affinity: 1e9, local: true}, {Draw: Draw{m, 1}}, {Draw: d, SamePort: true}} {
			chains = append(chains, p.ClassChain(c))
		}
	}
	for _, d := range defs {
		d.Size = 0 // a set keeps the size with which it was made
		fmt.Fprintln(h, d.Name, d.Declaration())
	}
	for _, c := range chains {
		fmt.Fprintln(h, c.Name, c.Shape())
		for _, r := range c.Rules {
			_, _ = io.WriteString(h, r.String()+"\n") // cannot fail
		}
	}
	return strings.TrimSpace(fmt.Sprintf("program %016x %s", h.Sum64(), p.options()))
}

// ChainNamed is the chain of that name; without rules: the program has none.
func (p Program) ChainNamed(name string) Chain {
	for _, c := range p.Chains() {
		if c.Name == name {
			return c
		}
	}
	prefix, rest, _ := strings.Cut(name, "-")
	switch c, ok := ParseClass(rest); {
	case ok && prefix+"-" == TokenPrefix:
		return p.TokenChain(c.Draw)
	case ok && prefix+"-" == TablePrefix:
		return p.TableChain(c.Draw)
	}
	if c, ok := ParseClass(name); ok {
		return p.ClassChain(c)
	}
	return Chain{}
}
