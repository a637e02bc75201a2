package nft

import (
	"bytes"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"
	"unsafe"
)

// The tests in this file fail when a struct gains a field that a comparison does not look at. For each field they change
// its value and require the comparison to see the difference, or a reason why it need not.

// ignored are fields that a comparison does not look at, each with the reason.
type ignored map[string]string

// checkFields changes each field of a value in turn, those of structs inside it too, and reports where differs does not
// see the change.
func checkFields[T any](t *testing.T, value T, reasons ignored, differs func(changed T) bool) {
	t.Helper()
	paths := fieldPaths(reflect.TypeFor[T](), "", nil)
	for path := range reasons {
		if !slices.ContainsFunc(paths, func(p fieldPath) bool { return p.name == path }) {
			t.Errorf("%T has no field %s that could be ignored", value, path)
		}
	}
	for _, p := range paths {
		changed := value
		field := p.in(reflect.ValueOf(&changed).Elem())
		if err := change(field); err != nil {
			t.Fatalf("field %s of %T: %v", p.name, value, err)
		}
		if seen := differs(changed); seen == (reasons[p.name] != "") {
			t.Errorf("%T: a change of the field %s is seen: %t; ignored because: %q", value, p.name, seen, reasons[p.name])
		}
	}
}

// fieldPath leads to a field of a struct or of a struct inside it.
type fieldPath struct {
	name  string
	index []int
}

// whole are structs that are changed as a whole: they hide their fields.
var whole = []reflect.Type{reflect.TypeFor[netip.Addr](), reflect.TypeFor[netip.AddrPort](), reflect.TypeFor[netip.Prefix]()}

func fieldPaths(typ reflect.Type, prefix string, index []int) (list []fieldPath) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		p := fieldPath{prefix + f.Name, append(slices.Clone(index), i)}
		if f.Type.Kind() == reflect.Struct && !slices.Contains(whole, f.Type) {
			list = append(list, fieldPaths(f.Type, p.name+".", p.index)...)
			continue
		}
		list = append(list, p)
	}
	return list
}

// in finds the field in a value and makes it writable even if it is not exported.
func (p fieldPath) in(v reflect.Value) reflect.Value {
	f := v.FieldByIndex(p.index)
	return reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem()
}

// change makes another value of any type that the fields have.
func change(v reflect.Value) error {
	switch old := v.Interface().(type) {
	case netip.Addr:
		v.Set(reflect.ValueOf(old.Next()))
		return nil
	case netip.AddrPort:
		v.Set(reflect.ValueOf(netip.AddrPortFrom(old.Addr(), old.Port()+1)))
		return nil
	case netip.Prefix:
		v.Set(reflect.ValueOf(netip.PrefixFrom(old.Addr(), old.Bits()-1)))
		return nil
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int32:
		v.SetInt(v.Int() + 1)
	case reflect.Int64:
		v.SetInt(v.Int() + int64(time.Second))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(v.Uint() + 1)
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Slice:
		v.Set(v.Slice(0, v.Len()-1)) // of nothing, nothing can be taken away: the test needs an example
	case reflect.Array:
		return change(v.Index(v.Len() - 1))
	case reflect.Pointer, reflect.Map:
		v.SetZero()
	default:
		return fmt.Errorf("no way to change a %s", v.Type())
	}
	return nil
}

// wholeFrontend has something in every field.
func wholeFrontend() Frontend {
	return Frontend{
		Addr: addr("192.0.2.10"), Port: 80, Pool: ClusterPool, Refusal: Drop, Masquerade: MasqueradeAlways, Firewalled: true,
		Sources: prefixes("198.51.100.0/24", "203.0.113.0/24"),
	}
}

// wholeEndpoints are two endpoints with something in every field.
func wholeEndpoints() []Endpoint {
	return []Endpoint{
		{Addr: netip.MustParseAddrPort("10.0.0.1:80"), Slots: 1},
		{Addr: netip.MustParseAddrPort("10.0.0.9:80"), Slots: 1, Local: true},
	}
}

func wholePort() Port {
	return Port{
		Family: IPv4, Name: "ns/svc:p", Protocol: tcp, Affinity: time.Hour, Cluster: wholeEndpoints(), Local: wholeEndpoints()[1:],
		Hairpin: addrs("10.0.0.7"), Frontends: []Frontend{wholeFrontend(), {Addr: addr("10.96.0.1"), Port: 443, ClusterIP: true, Pool: BySource}},
	}
}

func TestFieldsOfFrontend(t *testing.T) {
	checkFields(t, wholeFrontend(), nil, func(changed Frontend) bool { return !sameFrontend(wholeFrontend(), changed) })
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

// TestFieldsOfPort changes what an engine was asked for: every field has a meaning in the kernel.
func TestFieldsOfPort(t *testing.T) {
	port := wholePort()
	checkFields(t, port, ignored{"Family": "it names the table, and 3 is no family"}, func(changed Port) bool {
		return changesTables(t, port, changed)
	})
	with := func(fe Frontend, e Endpoint) Port {
		p := wholePort()
		p.Frontends[0], p.Cluster[0] = fe, e
		return p
	}
	checkFields(t, wholeFrontend(), nil, func(changed Frontend) bool {
		return changesTables(t, with(wholeFrontend(), wholeEndpoints()[0]), with(changed, wholeEndpoints()[0]))
	})
	checkFields(t, wholeEndpoints()[0], nil, func(changed Endpoint) bool {
		return changesTables(t, with(wholeFrontend(), wholeEndpoints()[0]), with(wholeFrontend(), changed))
	})
}

// TestFieldsOfGlobals changes what belongs to no service port.
func TestFieldsOfGlobals(t *testing.T) {
	g := Globals{
		PodInterface: "cni", PodCIDRs: prefixes("10.0.0.0/16", "10.1.0.0/16"), ServiceCIDRs: prefixes("10.96.0.0/16"),
		NodePortAddresses: addrs("192.0.2.1", "127.0.0.1"),
	}
	checkFields(t, g, nil, func(changed Globals) bool {
		m := OpenMemory(Options{})
		m.SetGlobals(g)
		mustApply(t, m.Engine)
		m.SetGlobals(changed)
		return mustApply(t, m.Engine).Bytes > 0
	})
	checkFields(t, program{family: IPv4}, ignored{"family": "one of two, and 3 is no family"}, func(changed program) bool {
		return !reflect.DeepEqual(ruleTexts(program{family: IPv4}.chains()), ruleTexts(changed.chains()))
	})
	globals := map[string]Globals{
		"masqueradeAll": {MasqueradeAll: true}, "podInterface": {PodInterface: "x"}, "podCIDRs": {PodCIDRs: prefixes("10.0.0.0/16")},
		"loopback": {NodePortAddresses: addrs("127.0.0.1")}, "ipvs": {IPVS: true},
	}
	for _, p := range fieldPaths(reflect.TypeFor[program](), "", nil) {
		g := globals[p.name] // the zero Globals for a field that the test does not know
		if is := g.program(IPv4); p.name != "family" && p.in(reflect.ValueOf(&is).Elem()).IsZero() {
			t.Errorf("the globals %+v do not set the field %s of program", g, p.name)
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
	arena := bytes.Repeat([]byte{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3}, 2)
	e := element{key: 4, keyEnd: 4, data: 4, label: "ns/svc:p"}
	differs := func(changed placed) bool {
		tx := &Transaction{builder: builder{arena: arena}}
		diffElements(tx, IPv4, []placed{{idServices, e}}, []placed{changed})
		return !tx.Empty()
	}
	checkFields(t, placed{idServices, e}, ignored{
		"element.intervalEnd": "only ranges of a single key have ends; updateRanges compares them as prefixes",
	}, differs)
	moved := e
	moved.offset = 16
	if differs(placed{idServices, moved}) {
		t.Error("elements of the same bytes at two places of the arena count as different")
	}
}

// TestFieldsOfSet: what cannot be changed about a set is in its shape, and a set of another shape does not stay.
func TestFieldsOfSet(t *testing.T) {
	d := setDef{
		name: "x", key: []dataType{typeClassID, typeIPv4}, data: []dataType{typeClassID, typeIPv4}, size: 9,
		typeof: &typeofDef{key: []typeofExpr{typeofPriority(), program{family: IPv4}.typeofSaddr()}, data: []typeofExpr{typeofPriority(), program{family: IPv4}.typeofSaddr()}},
	}
	checkFields(t, d, ignored{
		"name": "sets are found by name", "size": "a map that an earlier process left keeps its size (Options.AffinitySize)",
	}, func(changed setDef) bool { return changed.shape() != d.shape() })
	checkFields(t, *d.typeof, ignored{"text": "it says the same as key and data; TestGolden compares"}, func(changed typeofDef) bool {
		other := d
		other.typeof = &changed
		return other.shape() != d.shape()
	})
	checkFields(t, d.shape(), nil, func(changed setShape) bool {
		return !existing{sets: map[string]setShape{d.name: changed}}.hasSet(&d)
	})
	dynamic := d
	dynamic.dynamic = true
	checkFields(t, dynamic.shape(), ignored{"userData": "affinity is worth more than the way it is listed"}, func(changed setShape) bool {
		return !existing{sets: map[string]setShape{d.name: changed}}.hasSet(&dynamic)
	})
}

func TestFieldsOfChain(t *testing.T) {
	c := chainDef{name: "x", base: natPrerouting(), rules: []rule{{drop()}}}
	checkFields(t, c, ignored{
		"name": "chains are found by name", "rules": "rules are always written anew; intact counts them",
	}, func(changed chainDef) bool { return changed.shape() != c.shape() })
	checkFields(t, *c.base, ignored{
		"hookName": "says the same as hook", "text": "says the same as priority",
	}, func(changed baseDef) bool { return chainDef{base: &changed}.shape() != c.shape() })
}

// TestFieldsOfSurvey changes what was found in the kernel: the table is no longer as the engine left it.
func TestFieldsOfSurvey(t *testing.T) {
	m := OpenMemory(Options{})
	kindsExample().install(t, m.Engine)
	is, err := m.kernel.survey(IPv4)
	if err != nil {
		t.Fatal(err)
	}
	tb := m.tables[IPv4.index()]
	if !tb.intact(is) {
		t.Fatal("the table is not intact to begin with")
	}
	checkFields(t, is, ignored{"table": "without a table there is no layout"}, func(changed existing) bool { return !tb.intact(changed) })
	checkFields(t, is.chains["nat-output"], nil, func(changed chainShape) bool {
		is, err := m.kernel.survey(IPv4)
		if err != nil {
			t.Fatal(err)
		}
		is.chains["nat-output"] = changed
		return !tb.intact(is)
	})
}

// TestFieldsOfClass: classes that differ have chains of different names.
func TestFieldsOfClass(t *testing.T) {
	c := class{draw: draw{Random, 3}, affinity: time.Hour}
	checkFields(t, c, nil, func(changed class) bool { return changed.chain() != c.chain() })
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
