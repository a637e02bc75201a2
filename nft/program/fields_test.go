package program

import (
	"reflect"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/fields"
	"github.com/verdict-proxy/verdict/nft/rule"
)

// The tests in this file fail when a struct gains a field that a comparison does not look at. For each field they
// change its value and require the comparison to see the difference, or a reason why it need not.

// TestFieldsOfProgram: every field makes other rules, BridgesStay those of the fast path.
func TestFieldsOfProgram(t *testing.T) {
	plain := Program{Family: IPv4, FastPath: 20}
	fields.Check(t, plain, fields.Ignored{"Family": "one of two, and 3 is no family"}, func(changed Program) bool {
		return !reflect.DeepEqual(ruleTexts(plain.Chains()), ruleTexts(changed.Chains()))
	})
}

func ruleTexts(chains []Chain) map[string][]string {
	out := map[string][]string{}
	for _, c := range chains {
		out[c.Name] = []string{} // without rules it is a chain all the same
		for _, r := range c.Rules {
			out[c.Name] = append(out[c.Name], r.String())
		}
	}
	return out
}

// TestFieldsOfSet: what cannot be changed about a set is in its shape.
func TestFieldsOfSet(t *testing.T) {
	daddr := typeofDaddr(IPv4)
	d := Set{
		Name: "x", Key: []Type{TypeClassID, typeIPv4}, Data: []Type{TypeClassID, typeIPv4}, Size: 9,
		typeof: &Typeof{key: []typeofExpr{typeofPriority(), daddr}, data: []typeofExpr{typeofPriority(), daddr}},
	}
	fields.CheckChanges(t, d, map[string]func(*Set){
		"Name": func(d *Set) { d.Name = "y" }, "Size": func(d *Set) { d.Size++ }, "Says": func(d *Set) { d.Says++ },
		"Key":     func(d *Set) { d.Key = []Type{TypeClassID, typeIPv6} },
		"Data":    func(d *Set) { d.Data = nil },
		"typeof":  func(d *Set) { d.typeof = nil },
		"Counter": func(d *Set) { d.Counter = true }, "Interval": func(d *Set) { d.Interval = true },
		"Rate":    func(d *Set) { d.Rate++ },
		"Dynamic": func(d *Set) { d.Dynamic = true }, "Ports": func(d *Set) { d.Ports = true },
	}, fields.Ignored{
		"Name": "sets are found by name", "Says": "the kernel does not have it",
	}, func(changed Set) bool { return changed.Shape() != d.Shape() })
	fields.Check(t, *d.typeof, fields.Ignored{"text": "it says the same as key and data; TestGolden compares"}, func(changed Typeof) bool {
		other := d
		other.typeof = &changed
		return other.Shape() != d.Shape()
	})
}

func TestFieldsOfChain(t *testing.T) {
	c := Chain{Name: "x", Base: natPrerouting(), Rules: []rule.Rule{{rule.Statement{Text: "drop"}}}}
	fields.CheckChanges(t, c, map[string]func(*Chain){
		"Name": func(c *Chain) { c.Name = "y" }, "Base": func(c *Chain) { c.Base = nil }, "Rules": func(c *Chain) { c.Rules = nil },
	}, fields.Ignored{
		"Name": "chains are found by name", "Rules": "they are compared by their digest",
	}, func(changed Chain) bool { return changed.Shape() != c.Shape() })
	fields.Check(t, *c.Base, fields.Ignored{
		"HookName": "says the same as hook", "text": "says the same as priority",
	}, func(changed Base) bool { return Chain{Base: &changed}.Shape() != c.Shape() })
}

// TestFieldsOfClass: classes that differ have chains of different names.
func TestFieldsOfClass(t *testing.T) {
	c := Class{Draw: Draw{Random, 3}, Affinity: time.Hour}
	fields.Check(t, c, nil, func(changed Class) bool {
		changed.Affinity += (changed.Affinity - c.Affinity) * (time.Second - 1) // whole seconds
		return changed.ChainName() != c.ChainName()
	})
	fields.Check(t, c.Draw, nil, func(changed Draw) bool {
		return CompareDraws(c.Draw, changed) != 0 && changed.TokenChainName() != c.TokenChainName()
	})
}
