package program

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// numbers makes an element whose key and data are numbers.
func numbers(w Writer, key, data uint32) Element {
	return w.Element("", func(b *Builder) { b.Word(key) }, func(b *Builder) { b.Word(data) })
}

// TestSort: the changes of one set come in the order of their keys, and others stay as they are.
func TestSort(t *testing.T) {
	tx := &Transaction{}
	w := tx.For(IPv6)
	element := func(key byte) Element { return w.Element("", func(b *Builder) { b.Arena = append(b.Arena, key) }, nil) }
	for _, key := range []byte{3, 1, 2} {
		w.Insert(ClusterIPs, element(key))
		w.Remove(ClusterIPs, element(key+10))
		w.Insert(Hairpin, element(key))
	}
	w.Sort(ClusterIPs)
	keys := func(list []Element) (keys []byte) {
		for _, e := range list {
			keys = append(keys, e.Key(tx.Arena)...)
		}
		return keys
	}
	c := &tx.Changes[IPv6.Index()]
	if got := [][]byte{keys(c[ClusterIPs].Add), keys(c[ClusterIPs].Delete), keys(c[Hairpin].Add)}; !reflect.DeepEqual(got, [][]byte{{1, 2, 3}, {11, 12, 13}, {3, 1, 2}}) {
		t.Errorf("sorted: %v", got)
	}
	if tx.Concerns(IPv4) || !tx.Concerns(IPv6) {
		t.Errorf("it concerns IPv4 %t, IPv6 %t", tx.Concerns(IPv4), tx.Concerns(IPv6))
	}
}

// TestConcerns: a transaction concerns the families that it changes, by elements or by operations.
func TestConcerns(t *testing.T) {
	for name, change := range map[string]func(*Transaction){
		"element added":    func(tx *Transaction) { tx.For(IPv4).Insert(ClusterIPs, Element{}) },
		"element deleted":  func(tx *Transaction) { tx.For(IPv4).Remove(Pools, Element{}) },
		"operation before": func(tx *Transaction) { tx.Do(Operation{Kind: AddTable, Family: IPv4}) },
		"operation after":  func(tx *Transaction) { tx.For(IPv4).DoAfterwards(Operation{Kind: DeleteChain}) },
	} {
		tx := &Transaction{}
		change(tx)
		if !tx.Concerns(IPv4) || tx.Concerns(IPv6) {
			t.Errorf("%s: it concerns IPv4 %t, IPv6 %t", name, tx.Concerns(IPv4), tx.Concerns(IPv6))
		}
		tx.Reset()
		if tx.Concerns(IPv4) {
			t.Errorf("%s: it concerns IPv4 after a reset", name)
		}
	}
}

// TestHead prints as many changes as are asked for, deletions of a set first, and without the stamp.
func TestHead(t *testing.T) {
	tx := &Transaction{}
	for _, f := range Families() {
		w := tx.For(f)
		w.Insert(Pools, numbers(w, 2, 3))
		w.Remove(Pools, numbers(w, 1, 0))
		w.Insert(Generation, numbers(w, 1, 1))
	}
	w6 := tx.For(IPv6)
	w6.Insert(ClusterIPs, w6.Element("", func(b *Builder) { b.Addr(netip.MustParseAddr("fd00::1")) }, nil))
	all := []string{
		"delete element ip verdict pools { 0:1 : none }", "add element ip verdict pools { 0:2 : 0:3 }",
		"delete element ip6 verdict pools { 0:1 : none }", "add element ip6 verdict pools { 0:2 : 0:3 }",
	}
	const address = "add element ip6 verdict cluster-ips { fd00::1 }"
	if text := tx.String(); !strings.Contains(text, address+"\n") {
		t.Errorf("printed as a whole:\n%s", text)
	}
	at := slices.Index(tx.Head(9)(), address)
	if at < 0 {
		t.Fatalf("%q has no %s", tx.Head(9)(), address)
	}
	all = slices.Insert(all, at, address)
	for most := range 6 {
		lines := tx.Head(most)
		if got, want := lines(), all[:min(most, len(all))]; !slices.Equal(got, want) {
			t.Errorf("at most %d: %q, want %q", most, got, want)
		}
	}
}

// TestHeadOfLargeTransaction: what prints the first changes keeps only them, whatever becomes of the transaction.
func TestHeadOfLargeTransaction(t *testing.T) {
	tx := &Transaction{}
	w := tx.For(IPv4)
	for n := range uint32(1000) {
		w.Insert(Pools, numbers(w, n, n))
	}
	lines := tx.Head(2)
	clear(tx.Arena)
	clear(tx.Changes[IPv4.Index()][Pools].Add)
	want := []string{"add element ip verdict pools { none : none }", "add element ip verdict pools { 0:1 : 0:1 }"}
	if got := lines(); !slices.Equal(got, want) {
		t.Errorf("printed later: %q, want %q", got, want)
	}
}

// TestScript: a transaction is printed in the order of its batch.
func TestScript(t *testing.T) {
	tx := &Transaction{}
	w := tx.For(IPv4)
	w.Do(Operation{Kind: AddChain, Name: "turn-3", Chain: &Chain{Name: "turn-3"}})
	w.DoAfterwards(Operation{Kind: DeleteChain, Name: "turn-2"})
	w.Insert(Pools, numbers(w, 2, 3))
	w.Remove(Pools, numbers(w, 1, 0))
	want := "add chain ip verdict turn-3\ndelete element ip verdict pools { 0:1 : none }\n" +
		"add element ip verdict pools { 0:2 : 0:3 }\ndelete chain ip verdict turn-2\n"
	if got := tx.String(); got != want {
		t.Errorf("printed:\n%swant:\n%s", got, want)
	}
}

// TestHooks: each base chain is at the hook whose name is printed (linux/netfilter.h).
func TestHooks(t *testing.T) {
	hooks := map[string]uint32{"prerouting": 0, "input": 1, "forward": 2, "output": 3, "postrouting": 4}
	bases := 0
	for _, c := range append(Program{Family: IPv4, Loopback: true}.Chains(), LoopbackGuard()) {
		if c.Base == nil {
			continue
		}
		bases++
		if hook, known := hooks[c.Base.HookName]; !known || c.Base.Hook != hook {
			t.Errorf("%s: hook %d is printed as %s", c.Name, c.Base.Hook, c.Base.HookName)
		}
	}
	if bases < 7 {
		t.Errorf("%d base chains", bases)
	}
}

// TestSplit: what is done to base chains comes after everything else.
func TestSplit(t *testing.T) {
	base := Chain{Name: "base", Base: natOutput()}
	plain := Chain{Name: "plain"}
	tx := &Transaction{Before: []Operation{
		{Kind: AddTable}, {Kind: AddChain, Name: "base", Chain: &base}, {Kind: AddChain, Name: "plain", Chain: &plain},
		{Kind: AddRule, Name: "base"}, {Kind: AddRule, Name: "plain"}, {Kind: FlushRules, Name: "base"},
	}}
	kinds := func(list []Operation) (text string) {
		for _, o := range list {
			text += fmt.Sprint(o.Kind, o.Name, " ")
		}
		return text
	}
	unhooked, hooked := tx.Split()
	wantHooked := kinds([]Operation{{Kind: AddChain, Name: "base"}, {Kind: AddRule, Name: "base"}})
	wantUnhooked := kinds([]Operation{{Kind: AddTable}, {Kind: AddChain, Name: "plain"}, {Kind: AddRule, Name: "plain"}, {Kind: FlushRules, Name: "base"}})
	if kinds(hooked) != wantHooked || kinds(unhooked) != wantUnhooked {
		t.Errorf("hooked %s, unhooked %s", kinds(hooked), kinds(unhooked))
	}
}

// TestOperationText: each operation prints as what nft reads.
func TestOperationText(t *testing.T) {
	for want, o := range map[string]Operation{
		"flush table ip6 verdict":               {Kind: FlushRules, Family: IPv6},
		"flush chain ip verdict serve":          {Kind: FlushRules, Family: IPv4, Name: "serve"},
		"delete chain ip verdict serve":         {Kind: DeleteChain, Family: IPv4, Name: "serve"},
		"delete flowtable ip verdict fast-path": {Kind: DeleteFlowtable, Family: IPv4, Name: FastPathTable},
		"add flowtable ip verdict fast-path { hook ingress priority filter; counter; }":            {Kind: AddFlowtable, Family: IPv4, Name: FastPathTable},
		"add flowtable ip verdict fast-path { hook ingress priority filter; devices = { eth0 }; }": {Kind: AddFlowtable, Family: IPv4, Name: FastPathTable, Devices: []string{"eth0"}},
		"delete table ip verdict":        {Kind: DeleteTable, Family: IPv4},
		"delete table ip other":          {Kind: DeleteTable, Family: IPv4, Table: "other"},
		"flush map ip verdict services":  {Kind: FlushSet, Family: IPv4, Name: "services", Mapping: true},
		"flush set ip verdict hairpin":   {Kind: FlushSet, Family: IPv4, Name: "hairpin"},
		"delete map ip verdict services": {Kind: DeleteSet, Family: IPv4, Name: "services", Mapping: true},
		"add chain ip verdict serve":     {Kind: AddChain, Family: IPv4, Name: "serve", Chain: &Chain{Name: "serve"}},
	} {
		if got := o.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestLongestLabel: a name that fits is not shortened, and one that is longer by a letter is.
func TestLongestLabel(t *testing.T) {
	for n, whole := range map[int]bool{maxLabel: true, maxLabel + 1: false} {
		name := "ns/" + strings.Repeat("s", n-len("ns/:p")) + ":p"
		if label := Label(name); (label == name) != whole {
			t.Errorf("%d letters: %s", n, label)
		}
	}
}

// TestIsCounted: the kernel's count says nothing about sets of ranges, and about those into which rules write.
func TestIsCounted(t *testing.T) {
	defs := Program{Family: IPv4}.Sets()
	for id, want := range map[SetID]bool{Services: true, ClusterIPs: true, PodCIDRs: false, Affinity: false, Unanswered: false} {
		if got := defs[id].IsCounted(); got != want {
			t.Errorf("%s: %t", defs[id].Name, got)
		}
	}
}

// TestChainNamed: a trace shows the rules of each chain by its name.
func TestChainNamed(t *testing.T) {
	p := Program{Family: IPv6, IPVS: true}
	list := p.Chains()
	for _, m := range Methods() {
		d := Draw{m, 3}
		list = append(list, p.TokenChain(d), p.ClassChain(Class{Draw: d}), p.ClassChain(Class{Draw: d, Affinity: time.Hour}))
		if m.Hashes() {
			list = append(list, p.TableChain(d))
		}
	}
	text := func(c Chain) (lines []string) {
		for _, r := range c.Rules {
			lines = append(lines, r.String())
		}
		return lines
	}
	for _, c := range list {
		if got := p.ChainNamed(c.Name); got.Name != c.Name || !slices.Equal(text(got), text(c)) {
			t.Errorf("%s: found %s with %q", c.Name, got.Name, text(got))
		}
	}
	for _, name := range []string{"", "other", TokenPrefix, TokenPrefix + "other", TablePrefix + "3"} {
		if got := p.ChainNamed(name); len(got.Rules) != 0 {
			t.Errorf("%q: found %q", name, text(got))
		}
	}
}
