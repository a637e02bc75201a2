package nft

import (
	"bytes"
	"maps"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/fields"
)

// The tests in this file fail when a struct gains a field that a comparison does not look at. For each field they
// change its value and require the comparison to see the difference, or a reason why it need not.

// ignored are fields that a comparison does not look at, each with the reason.
type ignored map[string]string

// checkFields changes each field of a value in turn. It reports where differs does not see a change, and where it sees
// one that it is said to ignore.
func checkFields[T any](t *testing.T, value T, reasons ignored, differs func(changed T) bool) {
	t.Helper()
	unused := maps.Clone(reasons)
	for path, changed := range fields.Each(value) {
		field, _, _ := strings.Cut(path, "[")
		delete(unused, field)
		if seen := differs(changed); seen == (reasons[field] != "") {
			t.Errorf("%T: a change of %s is seen: %t; ignored because: %q", value, path, seen, reasons[field])
		}
	}
	for field := range unused {
		t.Errorf("%T has no field %s that could be ignored", value, field)
	}
}

// checkChanges is checkFields for a struct with parts that only the test knows how to change. Every field has a change.
func checkChanges[T any](t *testing.T, value T, changes map[string]func(*T), reasons ignored, differs func(changed T) bool) {
	t.Helper()
	typ := reflect.TypeFor[T]()
	for i := range typ.NumField() {
		name := typ.Field(i).Name
		if changes[name] == nil {
			t.Errorf("%s: the test does not know how to change the field %s", typ, name)
			continue
		}
		changed := value
		changes[name](&changed)
		if seen := differs(changed); seen == (reasons[name] != "") {
			t.Errorf("%s: a change of %s is seen: %t; ignored because: %q", typ, name, seen, reasons[name])
		}
	}
}

// wholeFrontend has something in every field.
func wholeFrontend() Frontend {
	return Frontend{
		Addr: addr("192.0.2.10"), Port: 80, Pool: ClusterPool, Refusal: Drop, Masquerade: MasqueradeAlways, Firewalled: true,
	}
}

// TestFieldsOfPort changes what an engine was asked for: every field has a meaning in the kernel.
func TestFieldsOfPort(t *testing.T) {
	port := Port{
		Family: IPv4, Name: "ns/svc:p", Protocol: tcp, Affinity: time.Hour,
		Cluster: []Endpoint{
			{Addr: netip.MustParseAddrPort("10.0.0.1:80"), Slots: 1},
			{Addr: netip.MustParseAddrPort("10.0.0.9:80"), Slots: 1, Local: true},
		},
		Local:   []Endpoint{{Addr: netip.MustParseAddrPort("10.0.0.9:80"), Slots: 1, Local: true}},
		Hairpin: addrs("10.0.0.7"),
		Frontends: []Frontend{wholeFrontend(), {
			Addr: addr("10.96.0.1"), Port: 443, ClusterIP: true, Pool: BySource, Firewalled: true,
		}},
		Sources: prefixes("198.51.100.0/24", "203.0.113.0/24"),
	}
	reasons := ignored{
		"Family":           "it names the table, and 3 is no family",
		"Cluster[1].Local": "Local says it of the same endpoint", "Local[0].Local": "Cluster says it of the same endpoint",
	}
	for path, changed := range fields.Each(port) {
		if changed.Affinity != port.Affinity {
			changed.Affinity = port.Affinity + time.Second // whole seconds, as the comment of the field demands
		}
		if seen := changesTables(t, port, changed); seen == (reasons[path] != "") {
			t.Errorf("a change of %s is seen: %t; ignored because: %q", path, seen, reasons[path])
		}
	}
}

// changesTables reports whether an engine that has the first port makes changes for the second one.
func changesTables(t *testing.T, first, second Port) bool {
	t.Helper()
	m := OpenMemory(Options{})
	mustSet(t, m.Engine, first)
	mustApply(t, m.Engine)
	if first.Name != second.Name {
		m.Delete(first.Family, first.Name) // two ports cannot have the same frontends
	}
	mustSet(t, m.Engine, second)
	return mustApply(t, m.Engine).Bytes > 0
}

// TestFieldsOfGlobals changes what belongs to no service port.
func TestFieldsOfGlobals(t *testing.T) {
	g := Globals{
		PodInterface: "cni", PodCIDRs: prefixes("10.0.0.0/16"), ServiceCIDRs: prefixes("10.96.0.0/16"),
		NodePortAddresses: addrs("192.0.2.1", "127.0.0.1"),
	}
	checkFields(t, g, nil, func(changed Globals) bool {
		m := OpenMemory(Options{})
		m.SetGlobals(g)
		mustApply(t, m.Engine)
		m.SetGlobals(changed)
		return mustApply(t, m.Engine).Bytes > 0
	})
}

// TestFieldsOfProgram: every field makes other rules, and the globals set every field. An option sets the share of the
// affinity map, and source ranges set the groups of lengths (TestSourceRangeGroups).
func TestFieldsOfProgram(t *testing.T) {
	plain := program{family: IPv4}
	reached := map[string]Globals{
		"masqueradeAll": {MasqueradeAll: true}, "podInterface": {PodInterface: "x"}, "podCIDRs": {PodCIDRs: prefixes("10.0.0.0/16")},
		"loopback": {NodePortAddresses: addrs("127.0.0.1")}, "ipvs": {IPVS: true},
		"unanswered": {Unanswered: true}, "refusing": {Refusing: true},
	}
	if e := newEngine(nil, Options{AffinityShare: 9}); e.tables[0].program() != (program{family: IPv4, affinityShare: 9}) {
		t.Errorf("the option makes the program %+v", e.tables[0].program())
	}
	checkFields(t, plain, ignored{"family": "one of two, and 3 is no family"}, func(changed program) bool {
		return !reflect.DeepEqual(ruleTexts(plain.chains()), ruleTexts(changed.chains()))
	})
	for path, changed := range fields.Each(plain) {
		g := reached[path] // the zero Globals for a field that the test does not know
		if is := g.program(IPv4); path != "family" && path != "affinityShare" && path != "lengths" && is != changed {
			t.Errorf("the globals %+v make the program %+v, and nothing sets %s", g, is, path)
		}
	}
}

func ruleTexts(chains []chainDef) map[string][]string {
	out := map[string][]string{}
	for _, c := range chains {
		out[c.name] = []string{} // without rules it is a chain all the same
		for _, r := range c.rules {
			out[c.name] = append(out[c.name], r.String())
		}
	}
	return out
}

// TestFieldsOfElement changes an element of a frontend or of a source range, the only ones that are compared.
func TestFieldsOfElement(t *testing.T) {
	arena := bytes.Repeat([]byte{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2}, 2)
	e := element{key: 4, data: 4, label: "ns/svc:p"}
	differs := func(changed placed) bool {
		tx := &Transaction{builder: builder{arena: arena}}
		diffElements(tx, IPv4, []placed{{idServices, e}}, []placed{changed})
		return !tx.Empty()
	}
	checkFields(t, placed{idServices, e}, ignored{
		"element.intervalEnd": "only ranges of a single key have ends; updateRanges compares them as prefixes",
	}, differs)
	moved := e
	moved.offset = 12
	if differs(placed{idServices, moved}) {
		t.Error("elements of the same bytes at two places of the arena count as different")
	}
}

// TestFieldsOfSet: what cannot be changed about a set is in its shape, and a set of another shape does not stay.
func TestFieldsOfSet(t *testing.T) {
	daddr := program{family: IPv4}.typeofDaddr()
	d := setDef{
		name: "x", key: []dataType{typeClassID, typeIPv4}, data: []dataType{typeClassID, typeIPv4}, size: 9,
		typeof: &typeofDef{key: []typeofExpr{typeofPriority(), daddr}, data: []typeofExpr{typeofPriority(), daddr}},
	}
	checkChanges(t, d, map[string]func(*setDef){
		"name": func(d *setDef) { d.name = "y" }, "size": func(d *setDef) { d.size++ },
		"key":     func(d *setDef) { d.key = []dataType{typeClassID, typeIPv6} },
		"data":    func(d *setDef) { d.data = nil },
		"typeof":  func(d *setDef) { d.typeof = nil },
		"counter": func(d *setDef) { d.counter = true }, "interval": func(d *setDef) { d.interval = true },
		"dynamic": func(d *setDef) { d.dynamic = true },
	}, ignored{
		"name": "sets are found by name",
	}, func(changed setDef) bool { return changed.shape() != d.shape() })
	checkFields(t, *d.typeof, ignored{"text": "it says the same as key and data; TestGolden compares"}, func(changed typeofDef) bool {
		other := d
		other.typeof = &changed
		return other.shape() != d.shape()
	})
	stays := func(d setDef, found setShape) bool {
		return existing{sets: map[string]setShape{d.name: found}}.hasSet(&d)
	}
	checkFields(t, d.shape(), nil, func(changed setShape) bool { return !stays(d, changed) })
	dynamic := d
	dynamic.dynamic = true
	checkFields(t, dynamic.shape(), ignored{"userData": "affinity is worth more than the way it is listed"}, func(changed setShape) bool {
		return !stays(dynamic, changed) || existing{sets: map[string]setShape{d.name: changed}}.retuned(&dynamic)
	})
}

func TestFieldsOfChain(t *testing.T) {
	c := chainDef{name: "x", base: natPrerouting(), rules: []rule{{drop()}}}
	checkChanges(t, c, map[string]func(*chainDef){
		"name": func(c *chainDef) { c.name = "y" }, "base": func(c *chainDef) { c.base = nil }, "rules": func(c *chainDef) { c.rules = nil },
	}, ignored{
		"name": "chains are found by name", "rules": "they are compared by their digest",
	}, func(changed chainDef) bool { return changed.shape() != c.shape() })
	checkFields(t, *c.base, ignored{
		"hookName": "says the same as hook", "text": "says the same as priority",
	}, func(changed baseDef) bool { return chainDef{base: &changed}.shape() != c.shape() })
}

// TestFieldsOfSurvey changes what was found in the kernel: the table is no longer as the engine left it.
func TestFieldsOfSurvey(t *testing.T) {
	m := OpenMemory(Options{})
	kindsExample().install(t, m.Engine)
	survey := func() existing {
		is, err := m.kernel.survey(IPv4)
		if err != nil {
			t.Fatal(err)
		}
		return is
	}
	tb := m.tables[IPv4.index()]
	if !tb.intact(survey()) {
		t.Fatal("the table is not intact to begin with")
	}
	checkChanges(t, survey(), map[string]func(*existing){
		"table": func(was *existing) { was.table = false }, "sameLayout": func(was *existing) { was.sameLayout = false },
		"chains": func(was *existing) { was.chains = nil }, "rules": func(was *existing) { was.rules = nil },
		"sets": func(was *existing) { was.sets = nil }, "flags": func(was *existing) { was.flags = tableOwner },
		"named":    func(was *existing) { was.named = "x" },
		"dropping": func(was *existing) { was.dropping = map[string]bool{"nat-output": true} },
		"counts":   func(was *existing) { was.counts = map[string]int{mapServices: 1} },
	}, ignored{
		"counts": "the engine compares them with its own",
		"named":  "of which table objects are read",
		"table":  "without a table there is no layout", "flags": "a table without an owner works as well",
	}, func(changed existing) bool { return !tb.intact(changed) })
	checkFields(t, survey().chains["nat-output"], nil, func(changed chainShape) bool {
		is := survey()
		is.chains["nat-output"] = changed
		return !tb.intact(is)
	})
}

// TestFieldsOfClass: classes that differ have chains of different names.
func TestFieldsOfClass(t *testing.T) {
	c := class{draw: draw{Random, 3}, affinity: time.Hour}
	checkFields(t, c, nil, func(changed class) bool {
		changed.affinity += (changed.affinity - c.affinity) * (time.Second - 1) // whole seconds
		return changed.chain() != c.chain()
	})
	checkFields(t, c.draw, nil, func(changed draw) bool {
		return compareDraws(c.draw, changed) != 0 && changed.tokenChain() != c.tokenChain()
	})
}

func TestFieldsOfMember(t *testing.T) {
	m := newMember(netip.MustParseAddrPort("10.0.0.1:80"), 3)
	checkFields(t, m, ignored{"slot": "an endpoint with several slots is one endpoint"}, func(changed member) bool { return !m.same(&changed) })
	checkFields(t, m, ignored{"family": "the members of a pool are of one family"}, func(changed member) bool {
		return compareMembers(m, changed) != 0
	})
}

// TestFieldsOfOrdinal changes the token of an endpoint.
func TestFieldsOfOrdinal(t *testing.T) {
	o := ordinal{addr: netip.MustParseAddrPort("10.0.0.1:80"), n: 3, inPools: [2]bool{true, false}}
	checkFields(t, o, ignored{"n": "assignOrdinals lets an endpoint keep its number"}, func(changed ordinal) bool {
		tx := &Transaction{}
		newTable(IPv4).writeTokens(tx, &port{ordinals: []ordinal{changed}}, []ordinal{o})
		return !tx.Empty()
	})
}
