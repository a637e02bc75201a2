package oracle_test

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/oracle"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// situation is what a row of the table in proxier/README.md is about: the words of its columns, in their order.
type situation [columns]string

const (
	to = iota
	policy
	endpoints
	from
	columns
)

// words are all that may be in a column.
var words = situationWords{
	to: {
		"a cluster IP", "an external IP", "a load balancer IP", "a node port", "a load balancer IP whose source ranges leave the client out",
		"a load balancer IP whose source ranges nobody can read", "another port of a cluster IP", "another port of an external IP",
		"another port of a load balancer IP", "another port of a load balancer IP in the ranges of Services", "another port of the node",
		"an address in the ranges of Services that no Service has",
		"a cluster IP by another table", "an address in the ranges of Services that no Service has by another table",
		"an external IP by another table", "a load balancer IP by another table", "an endpoint by another table",
	},
	policy:    {"Cluster", "Local"},
	endpoints: {"here and elsewhere", "only here", "only elsewhere", "none", "only terminating ones"},
	from:      {"a pod here", "a pod elsewhere", "an endpoint here", "this node", "outside"},
}

type situationWords [columns][]string

// each calls a function for each situation.
func (w situationWords) each(do func(situation)) {
	for _, a := range w[to] {
		for _, b := range w[policy] {
			for _, c := range w[endpoints] {
				for _, d := range w[from] {
					if d != "an endpoint here" || c != "none" && c != "only elsewhere" {
						do(situation{a, b, c, d})
					}
				}
			}
		}
	}
}

const table = "| to | traffic policy | endpoints | from | what happens | the endpoint sees |\n|---|---|---|---|---|---|\n"

// TestTable: for each situation, the first row of the table in proxier/README.md that fits says what the model says, and each row
// is the first one for a situation. A column without a word fits all.
func TestTable(t *testing.T) {
	text, err := os.ReadFile("../../proxier/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), table)
	rest, _, _ = strings.Cut(rest, "\n\n")
	if !found {
		t.Fatalf("proxier/README.md has no table\n%s", table)
	}
	var rows [][]string
	for line := range strings.Lines(rest + "\n") {
		row := strings.Split(strings.Trim(line, "\n"), "|")[1:]
		for i := range row {
			row[i] = strings.TrimSpace(row[i])
			for word := range strings.SplitSeq(row[i], ", ") {
				if i < columns && word != "" && !slices.Contains(words[i], word) {
					t.Fatalf("nobody knows what %q means in %s", word, line)
				}
			}
		}
		rows = append(rows, row)
	}
	fits := func(row []string, s situation) bool {
		for i, word := range s {
			if row[i] != "" && !slices.Contains(strings.Split(row[i], ", "), word) {
				return false
			}
		}
		return true
	}
	used := make([]bool, len(rows))
	words.each(func(s situation) {
		i := slices.IndexFunc(rows, func(row []string) bool { return fits(row, s) })
		if i < 0 {
			t.Errorf("no row for %q", s)
			return
		}
		used[i] = true
		for _, v4 := range []bool{true, false} {
			for _, protocol := range []state.Protocol{state.TCP, state.UDP, state.SCTP} {
				c, p := s.build(v4, protocol)
				if happens, sees := inWords(c, c.Ask(p)); !slices.Contains(happens, rows[i][columns]) || sees != rows[i][columns+1] {
					t.Errorf("%q, %s, IPv4 %t: row %q; the model: %q, %q", s, protocol, v4, rows[i], happens, sees)
				}
			}
		}
	})
	for i, row := range rows {
		if !used[i] {
			t.Errorf("row %q says nothing that the rows before it do not say", row)
		}
	}
}

// build makes a cluster in which a situation is so, and its packet.
func (s situation) build(v4 bool, protocol state.Protocol) (*oracle.Cluster, oracle.Packet) {
	addr := func(four, six string) netip.Addr {
		return netip.MustParseAddr(map[bool]string{true: four, false: six}[v4])
	}
	node := addr("192.0.2.1", "2001:db8::1")
	svc := &state.Service{
		Name: state.Name{Namespace: "shop", Name: "web"}, ClusterIPs: []netip.Addr{addr("10.96.0.10", "fd00:96::10")},
		ExternalIPs: []netip.Addr{addr("203.0.113.1", "2001:db8:203::1")}, LoadBalancerIPs: []netip.Addr{addr("203.0.113.2", "2001:db8:203::2")},
		Ports:         []state.ServicePort{{Name: "p", Protocol: protocol, Port: 80, NodePort: 30080}},
		InternalLocal: s[policy] == "Local", ExternalLocal: s[policy] == "Local",
		NoSource: strings.Contains(s[to], "nobody can read"),
	}
	if strings.Contains(s[to], "leave the client out") {
		svc.SourceRanges = []netip.Prefix{netip.PrefixFrom(addr("198.51.100.99", "2001:db8:1::99"), node.BitLen())}
	}
	here := []netip.Addr{addr("10.0.1.1", "fd00:10::1"), addr("10.0.1.2", "fd00:10::2")}
	slice := &state.Slice{Name: state.Name{Namespace: "shop", Name: "web-1"}, Service: svc.Name, Weight: 1, Family: state.FamilyOf(node),
		Ports: []state.SlicePort{{Name: "p", Protocol: protocol, Port: 8080}}}
	ready := s[endpoints] != "only terminating ones"
	add := func(node string, list ...netip.Addr) {
		for _, a := range list {
			slice.Endpoints = append(slice.Endpoints, state.Endpoint{Addr: a, Node: node, Ready: ready, Serving: true, Terminating: !ready})
		}
	}
	if s[endpoints] != "none" && s[endpoints] != "only elsewhere" {
		add("here", here...)
	}
	if s[endpoints] != "none" && s[endpoints] != "only here" {
		add("there", addr("10.0.2.1", "fd00:10::2:1"))
	}
	// Another Service shows that the podCIDRs of the Node are true.
	other := &state.Service{Name: state.Name{Namespace: "shop", Name: "other"}, ClusterIPs: []netip.Addr{addr("10.96.0.20", "fd00:96::20")}}
	proof := &state.Slice{Service: other.Name, Family: slice.Family, Ports: slice.Ports, Endpoints: []state.Endpoint{{Addr: addr("10.0.1.8", "fd00:10::8"), Node: "here"}}}
	c := &oracle.Cluster{
		Node: "here", NodeAddrs: []netip.Addr{node}, PodRanges: []netip.Prefix{netip.PrefixFrom(addr("10.0.0.0", "fd00:10::"), node.BitLen()/2)},
		ServiceCIDRs: []netip.Prefix{netip.PrefixFrom(addr("10.96.0.0", "fd00:96::"), node.BitLen()*3/4)}, Services: []*state.Service{svc, other}, Slices: []*state.Slice{slice, proof},
		PodCIDRs: []netip.Prefix{netip.PrefixFrom(addr("10.0.1.0", "fd00:10::"), node.BitLen()*3/4+map[bool]int{true: 0, false: 16}[v4])},
	}
	if strings.Contains(s[to], "load balancer IP in the ranges") {
		c.LoadBalancerCIDRs = []netip.Prefix{netip.PrefixFrom(svc.LoadBalancerIPs[0], node.BitLen())}
	}
	p := oracle.Packet{Protocol: protocol, Src: map[string]netip.Addr{
		"a pod here": addr("10.0.1.9", "fd00:10::9"), "a pod elsewhere": addr("10.0.200.1", "fd00:10::c8:1"), "an endpoint here": here[0], "this node": node, "outside": addr("198.51.100.1", "2001:db8:1::1"),
	}[s[from]]}
	for word, at := range map[string]netip.AddrPort{
		"cluster IP": netip.AddrPortFrom(svc.ClusterIPs[0], 80), "external IP": netip.AddrPortFrom(svc.ExternalIPs[0], 80),
		"load balancer IP": netip.AddrPortFrom(svc.LoadBalancerIPs[0], 80), "node": netip.AddrPortFrom(node, 30080),
		"no Service has": netip.AddrPortFrom(addr("10.96.0.99", "fd00:96::99"), 80), "an endpoint by": netip.AddrPortFrom(here[1], 8080),
	} {
		if strings.Contains(s[to], word) {
			p.Dst = at
		}
	}
	if strings.Contains(s[to], "another port") {
		p.Dst = netip.AddrPortFrom(p.Dst.Addr(), 81)
	}
	if strings.Contains(s[to], "by another table") {
		c.Translates = map[netip.Addr]netip.Addr{addr("198.51.100.50", "2001:db8:1::50"): p.Dst.Addr()}
		p.Dst = netip.AddrPortFrom(addr("198.51.100.50", "2001:db8:1::50"), p.Dst.Port())
	}
	return c, p
}

// inWords says in the words of the table what a proxy has to do. If all endpoints are here, it can be said in two ways.
func inWords(c *oracle.Cluster, a oracle.Answer) (happens []string, sees string) {
	switch a.Fate {
	case oracle.Refused, oracle.Dropped:
		return []string{string(a.Fate)}, ""
	case oracle.Passed:
		return []string{"left alone"}, ""
	}
	var all, local []netip.AddrPort
	for _, e := range c.Slices[0].Endpoints {
		at := netip.AddrPortFrom(e.Addr, 8080)
		if all = append(all, at); e.Node == c.Node {
			local = append(local, at)
		}
	}
	if slices.Equal(a.Endpoints, all) {
		happens = append(happens, "goes to any endpoint")
	}
	if slices.Equal(a.Endpoints, local) {
		happens = append(happens, "goes to an endpoint here")
	}
	return happens, map[string]string{"client": "the client", "node": "the node", "both": "the client, or the node if it is the client itself"}[a.Source]
}
