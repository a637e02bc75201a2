package list

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/verdict-proxy/verdict/cmd/verdict/snapshot"
	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// write writes the text.
func (o *options) write(out io.Writer, what any) error {
	w := bufio.NewWriter(out)
	switch what := what.(type) {
	case *answer:
		what.writeText(w)
	case *snapshot.Table:
		writeNodePorts(w, what)
		switch counters := o.output.Is(wide); {
		case o.terse && !counters && o.rate == 0:
			writeTerse(w, what.Frontends)
		case o.terse:
			writeWide(w, what.Frontends, counters)
		default:
			writeFull(w, what.Frontends, counters)
		}
		if n := socket.Stranded(what.Open); n > 0 {
			fmt.Fprintf(w, "Through this node, clients outside have %s to endpoints on other nodes\n", state.Plural(n, "open connection"))
		}
		if what.FastPath.On() && len(what.Open) > 0 {
			fmt.Fprintf(w, "On the fast path: %s", state.Plural(socket.OnFastPath(what.Open), "open connection"))
			if what.FastPath.BridgesStay {
				fmt.Fprint(w, "; ", kernel.WhyBridgesStay)
			}
			fmt.Fprintln(w)
		}
	}
	return w.Flush()
}

// writeNodePorts lists the addresses for which the star stands, if a frontend has a star.
func writeNodePorts(w io.Writer, t *snapshot.Table) {
	for i := range t.Frontends {
		if t.Frontends[i].Address.IsValid() {
			continue
		}
		fmt.Fprint(w, "Node ports (*) are on")
		for _, a := range t.NodePortAddresses {
			text := a.String()
			if a.Is6() {
				text = "[" + text + "]"
			}
			fmt.Fprint(w, " "+text)
		}
		if len(t.NodePortAddresses) == 0 {
			fmt.Fprint(w, " no address")
		}
		fmt.Fprintln(w)
		return
	}
}

// The headings are those of ipvsadm.
const (
	headFrontend = "LocalAddress:Port"
	headEndpoint = "RemoteAddress:Port"
)

func writeFull(w io.Writer, list []snapshot.Frontend, wide bool) {
	ends := len(headEndpoint)
	for i := range list {
		fe := &list[i]
		ends = max(ends, len(fe.At()))
		for j := range fe.Endpoints {
			ends = max(ends, len(fe.Endpoints[j].At()))
		}
	}
	line := func(mark, at, second, third, fourth, rest string) {
		text := fmt.Sprintf("%-4s %-*s %-10s %-10s %-10s %s", mark, ends, at, second, third, fourth, rest)
		fmt.Fprintln(w, strings.TrimRight(text, " "))
	}
	line("Prot", headFrontend, "Scheduler", "Engine", "Service", "Flags")
	line("  ->", headEndpoint, "Weight", "ActiveConn", "InActConn", "")
	for i := range list {
		fe := &list[i]
		line(fe.Protocol, fe.At(), cmp.Or(fe.Scheduler, "-"), fe.Engine, cmp.Or(fe.Service, "-"), marks(fe, wide))
		for j := range fe.Endpoints {
			e := &fe.Endpoints[j]
			line("  ->", e.At(), strconv.Itoa(e.Weight), number(e.Active), number(e.Inactive), remark(e))
		}
	}
}

// writeTerse writes a line of 80 columns for each frontend. Names of Services are cut, and what is no trouble is left to -o wide.
func writeTerse(w io.Writer, list []snapshot.Frontend) {
	rows := [][]string{{"Prot", headFrontend, "Good", "Active", "", "Service"}}
	for i := range list {
		fe := &list[i]
		active, _ := totals(fe)
		rows = append(rows, []string{fe.Protocol, fe.At(), good(fe), number(active), troubles(fe), cmp.Or(fe.Service, "-")})
	}
	columns(w, 80, rows)
}

// writeWide writes a line for each frontend with all that there is.
func writeWide(w io.Writer, list []snapshot.Frontend, counters bool) {
	rows := [][]string{{"Prot", headFrontend, "Scheduler", "Engine", "Endpoints", "ActiveConn", "InActConn", "Service", "Flags"}}
	for i := range list {
		fe := &list[i]
		active, inactive := totals(fe)
		rows = append(rows, []string{fe.Protocol, fe.At(), cmp.Or(fe.Scheduler, "-"), fe.Engine, good(fe), number(active), number(inactive),
			cmp.Or(fe.Service, "-"), marks(fe, counters)})
	}
	columns(w, 0, rows)
}

// columns cuts lines that are longer than most; 0: none.
func columns(w io.Writer, most int, rows [][]string) {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 1, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	_ = table.Flush() // a Builder returns no error
	for line := range strings.Lines(text.String()) {
		if line = strings.TrimRight(line, " \n"); most > 0 && len(line) > most {
			line = line[:most-1] + "~"
		}
		fmt.Fprintln(w, line)
	}
}

func good(fe *snapshot.Frontend) string { return fmt.Sprintf("%d/%d", fe.Good(), len(fe.Endpoints)) }

// number returns "-" for an unknown number.
func number(n *int) string {
	if n == nil {
		return "-"
	}
	return strconv.Itoa(*n)
}

// totals returns the connections of all endpoints, or nil if they are unknown.
func totals(fe *snapshot.Frontend) (active, inactive *int) {
	active, inactive = new(int), new(int)
	for i := range fe.Endpoints {
		e := &fe.Endpoints[i]
		if e.Active == nil {
			return nil, nil
		}
		*active += *e.Active
		*inactive += *e.Inactive
	}
	return active, inactive
}

func marks(fe *snapshot.Frontend, wide bool) string {
	var words words
	add := words.add
	add(fe.AffinitySeconds > 0, fmt.Sprintf("persistent %d", fe.AffinitySeconds))
	add(fe.SchedulerFlags != "", "("+fe.SchedulerFlags+")")
	add(fe.Local, "local")
	add(fe.InsideOnly, "pods-and-node-only")
	add(fe.Refusal != "" || fe.Missing, troubles(fe))
	add(fe.SourceRanges, "source-ranges")
	add(fe.NodePort && fe.Address.IsValid(), "node-port")
	add(fe.OnRules != "", "on-the-rules ("+fe.OnRules+")")
	add(wide, fmt.Sprintf("connections=%d refused=%d", fe.Connections, fe.Refused))
	if fe.Rate != nil {
		add(true, fmt.Sprintf("%.1f/s", *fe.Rate))
		add(*fe.RefusedRate > 0, fmt.Sprintf("refused %.1f/s", *fe.RefusedRate))
	}
	return strings.Join(words, " ")
}

// troubles says which clients find no endpoint.
func troubles(fe *snapshot.Frontend) string {
	var words words
	words.add(fe.Refusal != "" && !fe.OutsideOnly, fe.Refusal)
	words.add(fe.OutsideOnly, fe.Refusal+"-outside")
	words.add(fe.Missing, "no-virtual-server")
	return strings.Join(words, " ")
}

// remark returns the weight for pods and the node, if they have another pool, and what is wrong with the endpoint.
func remark(e *snapshot.Endpoint) string {
	var words words
	if e.InsideWeight != nil {
		words.add(true, fmt.Sprintf("(pods, node: %d)", *e.InsideWeight))
	}
	words.add(e.Options != "", "("+e.Options+")")
	words.add(e.Outlier != "", e.Outlier)
	words.add(e.Leaving(), "leaving: only open connections")
	return strings.Join(words, " ")
}

type words []string

// add adds a word if it is true.
func (w *words) add(is bool, word string) {
	if is {
		*w = append(*w, word)
	}
}
