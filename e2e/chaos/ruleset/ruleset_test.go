//go:build !nokernel

package ruleset

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/netns"
	"github.com/verdict-proxy/verdict/e2e/objects"
	"github.com/verdict-proxy/verdict/e2e/program"
)

// binary is built once.
var binary string

func TestMain(m *testing.M) {
	os.Exit(netns.Enter(func() int { return program.Main(m, &binary) }))
}

// everyKind is the manifest of Services that put elements into every set.
func everyKind() string {
	var list []any
	for i, change := range []func(*corev1.Service){
		func(s *corev1.Service) {
			s.Spec.Ports[0].NodePort, s.Spec.ExternalIPs = 30080, lab.Both("EXT1")
			objects.AddIngress(s, lab.Both("LB1")...)
			s.Spec.LoadBalancerSourceRanges = []string{"192.168.7.0/24", "fd00:7::/64"}
		},
		func(s *corev1.Service) { objects.Stick(s, 600) },
		func(s *corev1.Service) { objects.Schedule(s, "mh") },
		func(s *corev1.Service) {
			s.Spec.ExternalTrafficPolicy, s.Spec.Ports[0].NodePort = corev1.ServiceExternalTrafficPolicyLocal, 30090
		},
		func(s *corev1.Service) { s.Annotations["verdict-proxy.github.io/outlier-detection"] = "eject,refusals" },
	} {
		s := objects.Service("default", fmt.Sprintf("service-%d", i), lab.Both(fmt.Sprintf("VIP%d", i+1))...)
		s.Spec.Ports = []corev1.ServicePort{objects.Port("http", corev1.ProtocolTCP, 80)}
		change(s)
		list = append(list, s)
		for _, f := range lab.Families() {
			sl := objects.Slice("default", s.Name, f, 0, objects.SlicePort("http", corev1.ProtocolTCP, 8080))
			objects.AddPods(sl, f, "a", "b", "c")
			list = append(list, sl)
		}
	}
	none := objects.Service("default", "no-endpoints", "10.96.9.9", "fd00:10:96::9:9")
	none.Spec.Ports = []corev1.ServicePort{objects.Port("http", corev1.ProtocolTCP, 80)}
	return objects.Manifest(append(list, none)...)
}

// render is what nft loads for these Services.
func render(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	lab.Must(t, os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(everyKind()), 0o644))
	out, err := exec.Command(binary, "render", "--manifests", dir, "--hostname-override", lab.NodeName,
		"--cluster-cidr", strings.Join(lab.Both("PODS"), ","), "--nodeport-addresses", "192.0.2.0/24,2001:db8::/64").Output()
	lab.Must(t, err)
	return string(out)
}

// TestForeignEdits: the comparison notices what another program changes in the kernel.
func TestForeignEdits(t *testing.T) {
	ns, text := netns.New(t), render(t)
	load := func(change string) []string {
		ns.Must(t, "flush ruleset\n"+text+"\n"+change+"\n", "nft", "-f", "-")
		return Canonical(ns.Must(t, "", "nft", "list", "ruleset"))
	}
	want := load("")
	if err := Difference(want, load("")); err != nil {
		t.Error(err)
	}
	for _, change := range []string{
		"add table ip verdict { flags dormant; }", "delete table ip6 verdict", "add chain ip verdict nat-prerouting { policy drop; }",
		"insert rule ip6 verdict services drop", "flush map ip verdict services", "flush chain ip verdict balance",
	} {
		if Difference(want, load(change)) == nil {
			t.Errorf("%q is not noticed", change)
		}
	}
}

// TestPlantedDifferences removes elements of each set and each rule, gives elements the data of others, adds rules and
// flags, and removes sets and chains. The comparison notices each of that.
func TestPlantedDifferences(t *testing.T) {
	ns := netns.New(t)
	ns.Must(t, render(t), "nft", "-f", "-")
	p := &planter{T: t, tables: parseTables(ns.Must(t, "", "nft", "list", "ruleset"))}
	p.want = canonical(p.tables)
	for _, table := range p.tables {
		for name, set := range table.sets {
			if isCompared(name) {
				p.elements(table.family+" "+name, set)
			}
			delete(table.sets, name)
			p.noticed(table.family + " set " + name + " removed")
			table.sets[name] = set
		}
		for name, rules := range table.chains {
			p.rules(table, name, rules)
		}
		table.other = append(table.other, "flags dormant")
		p.noticed(table.family + " dormant")
		table.other = table.other[:len(table.other)-1]
	}
	p.tables = p.tables[:1]
	p.noticed("a table removed")
	t.Logf("%d differences planted", p.planted)
}

// planter plants differences.
type planter struct {
	*testing.T
	tables  []*listed
	want    []string
	planted int
}

func (p *planter) noticed(what string) {
	p.Helper()
	p.planted++
	if Difference(p.want, canonical(p.tables)) == nil {
		p.Errorf("not noticed: %s", what)
	}
}

func (p *planter) elements(name string, set *listedSet) {
	p.Helper()
	all := set.elements
	const enough = 6 // a hash table has thousands
	for i, e := range all[:min(len(all), enough)] {
		set.elements = slices.Delete(slices.Clone(all), i, i+1)
		p.noticed(fmt.Sprintf("%s without %v", name, e))
		if other := slices.IndexFunc(all, func(o listedElement) bool { return o.data != e.data }); other >= 0 {
			set.elements = slices.Clone(all)
			set.elements[i].data = all[other].data
			p.noticed(fmt.Sprintf("%s: %v with data %s", name, e, all[other].data))
		}
	}
	set.elements = all
}

func (p *planter) rules(table *listed, name string, rules []string) {
	p.Helper()
	what := table.family + " chain " + name
	if !slices.ContainsFunc(p.want, func(line string) bool { return strings.HasPrefix(line, what+" ") }) {
		if strings.HasPrefix(rules[0], "type ") {
			p.Errorf("the base chain %s is not compared", name)
		}
		return // of a class that no pool uses
	}
	for i := range rules {
		table.chains[name] = slices.Delete(slices.Clone(rules), i, i+1)
		p.noticed(what + " without " + rules[i])
	}
	table.chains[name] = append([]string{"drop"}, rules...)
	p.noticed(what + " with one more rule")
	delete(table.chains, name)
	p.noticed(what + " removed")
	table.chains[name] = rules
}

// TestOtherNumbers: two listings that differ only in the numbers that each process gives, in the order of elements, in
// counters and in entries of clients are equal. With an endpoint that moves to another pool, they are not.
func TestOtherNumbers(t *testing.T) {
	first := listing("0:2", "0:4", "packets 0 bytes 0", "10.0.0.1 . 8080", "10.0.0.2 . 8080", "")
	if err := Difference(Canonical(first), Canonical(listing("3:fff0", "0:2", "packets 7 bytes 9", "10.0.0.1 . 8080", "10.0.0.2 . 8080", "1:1"))); err != nil {
		t.Error(err)
	}
	if Difference(Canonical(first), Canonical(listing("0:2", "0:4", "packets 0 bytes 0", "10.0.0.2 . 8080", "10.0.0.1 . 8080", ""))) == nil {
		t.Error("an endpoint that moved to another pool was not noticed")
	}
}

// listing has two Services with the pools a and b, and one endpoint each.
func listing(a, b, counted, endA, endB, client string) string {
	if client != "" {
		client = "\t\telements = { " + client + " }\n"
	}
	return "table ip verdict {\n\tmap services {\n\t\ttype ipv4_addr . inet_proto . inet_service : classid\n" +
		"\t\telements = { 10.96.0.1 . tcp . 80 counter " + counted + " comment \"default/a:http\" : " + a +
		",\n\t\t\t     10.96.0.2 . tcp . 80 counter " + counted + " comment \"default/b:http\" : " + b + " }\n\t}\n" +
		"\tset affinity {\n\t\ttype classid\n" + client + "\t}\n" +
		"\tmap pools {\n\t\ttype classid : classid\n\t\telements = { " + b + " comment \"default/b:http\" : " + b + ", " + a + " comment \"default/a:http\" : " + a + " }\n\t}\n" +
		"\tmap endpoints {\n\t\ttype classid . integer : ipv4_addr . inet_service\n\t\telements = { " + a + " . 0 : " + endA + ", " + b + " . 0 : " + endB + " }\n\t}\n}\n"
}
