//go:build ipvs

package takeover

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/measure"
)

const (
	fastPathRounds  = 3
	clockRounds     = 9
	clientAlone     = "(the client's side alone)"
	upstreamRules   = "kube-proxy, nftables"
	withoutFastPath = "Verdict, --fast-path=off"
	withAccounting  = "the same, with net.netfilter.nf_conntrack_acct=1"
	besideFlowtable = "the same, and an empty flowtable with the devices of these packets"
	withFastPath    = "Verdict, --fast-path=services"
)

// BenchmarkFastPath measures what the fast path gives to long connections, and what it costs short ones, beside the same node without
// it and with kube-proxy, in turn. Under QEMU's -icount a figure is the least number of instructions of all rounds. Without it, the
// clock counts, and a figure is the median of all bursts of all rounds.
func BenchmarkFastPath(b *testing.B) {
	for b.Loop() {
		n := newBed(b)
		long, short, bursts := figures{}, figures{}, figures{}
		round, rounds := func(rules string) { n.round(b, rules, long, short) }, fastPathRounds
		if os.Getenv("ICOUNT") == "" {
			round, rounds = func(rules string) { n.clock(b, rules, bursts) }, clockRounds
		}
		for range rounds {
			n.account(b, false) // the rule of the fast path leaves it on
			upstream := n.kubeProxy(b, &mode{proxyMode: "nftables"})
			round(upstreamRules)
			stop(b, upstream)
			verdict := n.verdict(b, &mode{flags: [][]string{{"--fast-path=off"}}}, 0)
			round(withoutFastPath)
			n.account(b, true)
			round(withAccounting)
			n.Node.Must(b, "table inet empty { flowtable f { hook ingress priority 0; devices = { br-pods, "+lab.InnerLink+", "+lab.OutsideLink+" }; }; }", "nft", "-f", "-")
			round(besideFlowtable)
			n.Node.Must(b, "", "nft", "delete", "table", "inet", "empty")
			stop(b, verdict)
			verdict = n.start(b, "verdict", []string{"PATH=" + os.Getenv("PATH")}, []string{programs.verdict, "run", "--fast-path=services"}, "tables written")
			lab.Eventually(b, "the fast path has devices", n.hasDevices)
			round(withFastPath)
			stop(b, verdict)
			n.Node.Must(b, "", programs.verdict, "cleanup") // or its rules would serve beside kube-proxy
		}
		if len(bursts) > 0 {
			fmt.Print(bursts.speed())
			continue
		}
		fmt.Print(long.table("a packet of a long connection, instructions"), "\n", short.table("a connection of 8 packets, instructions"))
		if os.Getenv("PLOT") != "" { // the guest cannot write into files of the host
			fmt.Print(long.plot())
		}
	}
}

func (b *bed) hasDevices() error {
	text, err := b.Node.Command("nft", "list", "set", "ip", "verdict", "fast-path-devices")
	if err == nil && !strings.Contains(text, lab.OutsideLink) {
		err = fmt.Errorf("the devices are %q", text)
	}
	return err
}

// account has connection tracking count the packets of the connections that begin from now on, or not.
func (b *bed) account(t testing.TB, on bool) {
	t.Helper()
	b.Node.Must(t, "", "sysctl", "-qw", "net.netfilter.nf_conntrack_acct="+map[bool]string{false: "0", true: "1"}[on])
}

// round measures all paths once: "client" is what the client's side costs alone, since the node drops the packets as they come in.
func (b *bed) round(t testing.TB, rules string, long, short figures) {
	t.Helper()
	for _, p := range paths() {
		flow := b.flow(t, p, p.frontend(), 30)
		whole := b.packets(t, flow, b.At(t, "a"), quiet)
		client := b.packets(t, flow, b.Node, p.atIngress())
		lab.Must(t, flow.Close())
		long.note(rules, p, whole-client)
		short.note(rules, p, b.connection(t, p))
	}
}

// atIngress are rules of a node that drop a client's packets as they come in.
func (p path) atIngress() string {
	return `table inet quiet { chain in { type filter hook ingress devices = { ` + p.device() + ` } priority -500; udp dport { 80, 30080 } drop; }; }`
}

// clock measures by the clock what client and node need together for a packet, and what the client needs alone, in picoseconds.
func (b *bed) clock(t testing.TB, rules string, bursts figures) {
	t.Helper()
	for _, p := range paths() {
		flow := b.flow(t, p, p.frontend(), 30)
		for _, took := range b.bursts(t, flow, b.At(t, "a"), quiet) {
			bursts.note(rules, p, int(took)*1000/packetsOfBurst)
		}
		for _, took := range b.bursts(t, flow, b.Node, p.atIngress()) {
			bursts.note(clientAlone, p, int(took)*1000/packetsOfBurst)
		}
		lab.Must(t, flow.Close())
	}
}

// speed is a table of packets a second, by the medians of all bursts. Its last row compares the node alone.
func (f figures) speed() string {
	table := &measure.Table{Head: []string{"packets of a long connection a second"}}
	ratio := []string{"off / services, without the client's side"}
	median := func(rules string, p path) float64 {
		list := slices.Sorted(slices.Values(f[rules][p.String()]))
		return float64(list[len(list)/2])
	}
	for _, p := range paths() {
		table.Head = append(table.Head, p.String())
		client := median(clientAlone, p)
		ratio = append(ratio, fmt.Sprintf("%.2f", (median(withoutFastPath, p)-client)/(median(withFastPath, p)-client)))
	}
	for _, rules := range []string{clientAlone, upstreamRules, withoutFastPath, withAccounting, besideFlowtable, withFastPath} {
		row := []string{rules}
		for _, p := range paths() {
			row = append(row, measure.Count(int(1e12/median(rules, p))))
		}
		table.Add(row...)
	}
	table.Add(ratio...)
	return table.String()
}

// device is the one by which a client's packets reach the node.
func (p path) device() string {
	if p.place == lab.Outside {
		return lab.OutsideLink
	}
	return "br-pods"
}

// connection is what a TCP connection to pod a costs that asks once and ends: 8 packets and acknowledgments.
func (b *bed) connection(t testing.TB, p path) int {
	t.Helper()
	const connections = 200
	var took []time.Duration
	for len(took) < connections {
		began := time.Now()
		conn, err := b.At(t, p.place).DialContext(t.Context(), "tcp", p.frontend().String())
		lab.Must(t, err, conn.SetDeadline(time.Now().Add(patience)), conn.(*net.TCPConn).CloseWrite())
		text, err := io.ReadAll(conn)
		spent := time.Since(began)
		var a lab.Answer
		lab.Must(t, err, json.Unmarshal(text, &a), conn.Close())
		if a.Pod == "a" {
			took = append(took, spent)
		}
	}
	slices.Sort(took)
	return int(took[connections/2])
}

// figures are all that was measured of each path, by rules.
type figures map[string]map[string][]int

func (f figures) note(rules string, p path, figure int) {
	if f[rules] == nil {
		f[rules] = map[string][]int{}
	}
	f[rules][p.String()] = append(f[rules][p.String()], figure)
}

func (f figures) least(rules string, p path) int { return slices.Min(f[rules][p.String()]) }

// table has a column for each path, and a last row that compares the fast path with the same node without it.
func (f figures) table(what string) string {
	table := &measure.Table{Head: []string{what}}
	ratio := []string{"off / services"}
	for _, p := range paths() {
		table.Head = append(table.Head, p.String())
		ratio = append(ratio, fmt.Sprintf("%.2f", float64(f.least(withoutFastPath, p))/float64(f.least(withFastPath, p))))
	}
	for _, rules := range []string{upstreamRules, withoutFastPath, withAccounting, besideFlowtable, withFastPath} {
		row := []string{rules}
		for _, p := range paths() {
			row = append(row, measure.Count(f.least(rules, p)))
		}
		table.Add(row...)
	}
	table.Add(ratio...)
	return table.String()
}

// plot draws the long connections.
func (f figures) plot() string {
	plot := &measure.Plot{Title: "A packet of a long connection, on the node alone", Subtitle: "Debian kernel 6.12, emulated", Y: "instructions"}
	for _, p := range paths() {
		plot.Groups = append(plot.Groups, p.String())
	}
	for _, rules := range slices.Sorted(maps.Keys(f)) {
		line := measure.Line{Name: rules}
		for i, p := range paths() {
			line.Points = append(line.Points, measure.Point{X: float64(i), Y: float64(f.least(rules, p))})
		}
		plot.Lines = append(plot.Lines, line)
	}
	return plot.SVG()
}
