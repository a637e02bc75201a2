package program

import (
	"fmt"
	"slices"
	"strings"
)

// Listing prints what a transaction makes where nothing was before, as nft lists tables. "nft -f" reads it. The elements of
// a set are sorted.
func (t *Transaction) Listing() string {
	var b strings.Builder
	for _, f := range Families() {
		if t.Concerns(f) {
			fmt.Fprintf(&b, "table %s %s {\n\tcomment %q\n", f, TableName, LayoutComment)
			t.listSets(&b, f)
			t.listFlowtables(&b, f)
			t.listChains(&b, f)
			b.WriteString("}\n")
		}
	}
	return b.String()
}

func (t *Transaction) listSets(b *strings.Builder, f Family) {
	for _, o := range t.Before {
		if o.Kind != AddSet || o.Family != f {
			continue
		}
		fmt.Fprintf(b, "\t%s %s {\n\t\t%s\n", SetKeyword(o.Set.IsMap()), o.Name, strings.Join(o.Set.Declaration(), "\n\t\t"))
		if texts := ElementTexts(o.Set, t.Changes[f.Index()][o.ID].Add, t.Arena); len(texts) > 0 {
			slices.Sort(texts)
			fmt.Fprintf(b, "\t\telements = { %s }\n", strings.Join(texts, ",\n\t\t\t     "))
		}
		b.WriteString("\t}\n\n")
	}
}

func (t *Transaction) listFlowtables(b *strings.Builder, f Family) {
	for _, o := range t.Before {
		if o.Kind == AddFlowtable && o.Family == f {
			fmt.Fprintf(b, "\tflowtable %s {\n\t\t%s\n\t\t%s\n\t}\n\n", o.Name, flowtableHeader, flowtableFlags)
		}
	}
}

func (t *Transaction) listChains(b *strings.Builder, f Family) {
	rules := map[string]string{}
	for _, o := range t.Before {
		if o.Kind == AddRule && o.Family == f {
			rules[o.Name] += "\t\t" + o.Rule.String() + "\n"
		}
	}
	for _, o := range t.Before {
		if o.Kind != AddChain || o.Family != f {
			continue
		}
		header := ""
		if o.Chain.Base != nil {
			header = "\t\t" + o.Chain.Base.Header() + "\n"
		}
		fmt.Fprintf(b, "\tchain %s {\n%s%s\t}\n\n", o.Name, header, rules[o.Name])
	}
}
