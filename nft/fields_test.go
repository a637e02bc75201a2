package nft

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/fields"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// The tests in this file fail when a struct gains a field that a comparison does not look at. For each field they
// change its value and require the comparison to see the difference, or a reason why it need not.

// wholeFrontend has something in every field.
func wholeFrontend() contents.Frontend {
	return contents.Frontend{
		Addr: addr("192.0.2.10"), Port: 80, Pool: program.ClusterPool, Refusal: program.Drop, Masquerade: contents.MasqueradeAlways, Firewalled: true,
	}
}

// TestFieldsOfPort changes what an engine was asked for: every field has a meaning in the kernel.
func TestFieldsOfPort(t *testing.T) {
	port := contents.Port{
		Family: program.IPv4, Name: "ns/svc:p", Protocol: tcp, Affinity: time.Hour,
		Cluster: []contents.Endpoint{
			{Addr: netip.MustParseAddrPort("10.0.0.1:80"), Slots: 1},
			{Addr: netip.MustParseAddrPort("10.0.0.9:80"), Slots: 1, Local: true},
		},
		Local:   []contents.Endpoint{{Addr: netip.MustParseAddrPort("10.0.0.9:80"), Slots: 1, Local: true}},
		Hairpin: addrs("10.0.0.7"),
		Frontends: []contents.Frontend{wholeFrontend(), {
			Addr: addr("10.96.0.1"), Port: 443, ClusterIP: true, Pool: program.BySource, Firewalled: true,
		}},
		Sources: prefixes("198.51.100.0/24", "203.0.113.0/24"),
		Answers: netip.MustParseAddrPort("192.0.2.10:80"),
	}
	reasons := fields.Ignored{
		"Family":           "it names the table, and 3 is no family",
		"Formerly":         "there is no such port",
		"Created":          "it decides between Services with the same endpoint; see TestAuthorsOfAnEndpoint",
		"Cluster[1].Local": "Local says it of the same endpoint", "Local[0].Local": "Cluster says it of the same endpoint",
	}
	for pool, n := range map[string]int{"Cluster": 2, "Local": 1} {
		for i := range n {
			reasons[fmt.Sprintf("%s[%d].Weight", pool, i)] = "nft has slots"
		}
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
func changesTables(t *testing.T, first, second contents.Port) bool {
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
	g := contents.Globals{
		PodInterface: "cni", PodCIDRs: prefixes("10.0.0.0/16"), NodePodCIDRs: prefixes("10.0.1.0/24"), ServiceCIDRs: prefixes("10.96.0.0/16"),
		NodePortAddresses: addrs("192.0.2.1", "127.0.0.1"),
	}
	fields.Check(t, g, nil, func(changed contents.Globals) bool {
		m := OpenMemory(Options{})
		m.SetGlobals(g)
		mustApply(t, m.Engine)
		m.SetGlobals(changed)
		return mustApply(t, m.Engine).Bytes > 0
	})
}

// TestFieldsOfFoundSet: a set of another shape does not stay, or it is tuned.
func TestFieldsOfFoundSet(t *testing.T) {
	defs := program.Program{Family: program.IPv4}.Sets()
	d, dynamic := defs[program.Services], defs[program.Affinity]
	stays := func(d program.Set, found program.SetShape) bool {
		return kernel.Existing{Sets: map[string]program.SetShape{d.Name: found}}.HasSet(&d)
	}
	fields.Check(t, d.Shape(), nil, func(changed program.SetShape) bool { return !stays(d, changed) })
	fields.Check(t, dynamic.Shape(), fields.Ignored{"UserData": "affinity is worth more than the way it is listed"}, func(changed program.SetShape) bool {
		return !stays(dynamic, changed) || kernel.Existing{Sets: map[string]program.SetShape{dynamic.Name: changed}}.Retuned(&dynamic)
	})
}

// TestFieldsOfSurvey changes what was found in the kernel: the table is no longer as the engine left it.
func TestFieldsOfSurvey(t *testing.T) {
	m := OpenMemory(Options{})
	kindsExample().install(t, m.Engine)
	survey := func() kernel.Existing {
		is, err := m.kernel.Survey(program.IPv4)
		if err != nil {
			t.Fatal(err)
		}
		return is
	}
	tb := m.tables[program.IPv4.Index()]
	if !tb.Intact(survey()) {
		t.Fatal("the table is not intact to begin with")
	}
	fields.CheckChanges(t, survey(), map[string]func(*kernel.Existing){
		"Table": func(was *kernel.Existing) { was.Table = false }, "SameLayout": func(was *kernel.Existing) { was.SameLayout = false },
		"Chains": func(was *kernel.Existing) { was.Chains = nil }, "Rules": func(was *kernel.Existing) { was.Rules = nil },
		"Sets": func(was *kernel.Existing) { was.Sets = nil }, "Flags": func(was *kernel.Existing) { was.Flags = program.OwnerFlag },
		"Named":    func(was *kernel.Existing) { was.Named = "x" },
		"Dropping": func(was *kernel.Existing) { was.Dropping = map[string]bool{"nat-output": true} },
		"Flowtables": func(was *kernel.Existing) {
			was.Flowtables = map[string]kernel.FoundFlowtable{program.FastPathTable: {Flowtable: program.OurFlowtable()}}
		},
		"Counts": func(was *kernel.Existing) { was.Counts = map[string]int{program.Services.Name(): 1} },
	}, fields.Ignored{
		"Counts": "the engine compares them with its own",
		"Named":  "of which table objects are read",
		"Table":  "without a table there is no layout", "Flags": "a table without an owner works as well",
	}, func(changed kernel.Existing) bool { return !tb.Intact(changed) })
	fields.Check(t, survey().Chains["nat-output"], nil, func(changed program.ChainShape) bool {
		is := survey()
		is.Chains["nat-output"] = changed
		return !tb.Intact(is)
	})
}
