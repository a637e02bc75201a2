package nft

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Render prints both tables as they would be after an Apply over nothing, in the form in which nft lists them. It needs
// no kernel. Guarded addresses are those that IPVS serves.
func Render(ports []Port, g Globals, guarded ...netip.Addr) (string, error) {
	e := newEngine(nil)
	e.SetGlobals(g)
	for i := range ports {
		if err := e.Set(&ports[i]); err != nil {
			return "", err
		}
	}
	for _, tb := range e.tables {
		tb.guard(guarded)
	}
	return e.render(), nil
}

// render prints both tables as mirrored.
func (e *Engine) render() string {
	t := &Transaction{}
	var b strings.Builder
	for _, tb := range e.tables {
		tb.build(t, existing{})
		tb.writeShared(t)
	}
	for _, tb := range e.tables {
		tb.render(&b, t)
	}
	return b.String()
}

func (tb *table) render(b *strings.Builder, t *Transaction) {
	fmt.Fprintf(b, "table %s %s {\n\tcomment %q\n", tb.family, TableName, layoutComment)
	for id := range tb.defs {
		tb.renderSet(b, t, setID(id))
	}
	for _, o := range t.before {
		if o.kind == opAddChain && o.family == tb.family {
			renderChain(b, t, o)
		}
	}
	b.WriteString("}\n")
}

func (tb *table) renderSet(b *strings.Builder, t *Transaction, id setID) {
	d := &tb.defs[id]
	fmt.Fprintf(b, "\t%s %s {\n", setKeyword(d.isMap()), d.name)
	for _, line := range d.declaration() {
		fmt.Fprintf(b, "\t\t%s\n", line)
	}
	texts := t.elementTexts(tb.family, id, func(c elementChanges) []element { return c.add })
	slices.Sort(texts)
	if len(texts) > 0 {
		fmt.Fprintf(b, "\t\telements = { %s }\n", strings.Join(texts, ",\n\t\t\t     "))
	}
	b.WriteString("\t}\n\n")
}

func renderChain(b *strings.Builder, t *Transaction, chain operation) {
	fmt.Fprintf(b, "\tchain %s {\n", chain.name)
	if base := chain.chain.base; base != nil {
		fmt.Fprintf(b, "\t\t%s\n", base.header())
	}
	for _, o := range t.before {
		if o.kind == opAddRule && o.family == chain.family && o.name == chain.name {
			fmt.Fprintf(b, "\t\t%s\n", o.rule)
		}
	}
	b.WriteString("\t}\n\n")
}
