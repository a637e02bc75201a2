package main

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// listing is what the plugin needs of the JSON form of "verdict list".
type listing struct {
	Frontends []frontend `json:"frontends"`
}

type frontend struct {
	Service   string     `json:"service"`
	Protocol  string     `json:"protocol"`
	Family    string     `json:"family"`
	Address   netip.Addr `json:"address"`
	Port      uint16     `json:"port"`
	LastPort  uint16     `json:"lastPort"`
	Engine    string     `json:"engine"`
	Scheduler string     `json:"scheduler"`
	Local     bool       `json:"local"`
	Inside    bool       `json:"podsAndNodeOnly"`
	Refusal   string     `json:"refusal"`
	Endpoints []endpoint `json:"endpoints"`
}

type endpoint struct {
	Address netip.Addr `json:"address"`
	Port    uint16     `json:"port"`
	Weight  int        `json:"weight"`
	Bad     bool       `json:"bad"`
	Outlier string     `json:"outlier"`
}

func (e *endpoint) at() string { return netip.AddrPortFrom(e.Address, e.Port).String() }

// name is where clients connect, and the Service.
func (fe *frontend) name() string {
	at := fmt.Sprintf("*:%d (%s)", fe.Port, fe.Family)
	if fe.Address.IsValid() {
		at = netip.AddrPortFrom(fe.Address, fe.Port).String()
	}
	if fe.LastPort != 0 {
		at += fmt.Sprintf("-%d", fe.LastPort)
	}
	if fe.Inside {
		at += " for pods and the node"
	}
	return fmt.Sprintf("%s %s  %s", fe.Protocol, at, fe.Service)
}

// text is what becomes of a connection, without what is counted.
func (fe *frontend) text() string {
	text := []string{fe.Engine, fe.Scheduler}
	if fe.Local {
		text = append(text, "local")
	}
	if fe.Refusal != "" {
		text = append(text, fe.Refusal)
	}
	for i := range fe.Endpoints {
		e := &fe.Endpoints[i]
		at := e.at()
		if e.Weight != 1 {
			at += fmt.Sprintf(" (weight %d)", e.Weight)
		}
		if e.Bad {
			at += " (bad)"
		}
		text = append(text, at)
	}
	return strings.Join(slices.DeleteFunc(text, func(s string) bool { return s == "" }), " ")
}

const listHelp = `Print the frontends of all nodes, one line each, and below it what the nodes say where they do not say the same.
Arguments and flags behind "--" are those of "verdict list".

Endpoints of a Service with policy Local or with topology hints differ from node to node on purpose.`

func (f *fleet) newList() *cobra.Command {
	return &cobra.Command{Use: "list [-- ARGUMENT...]", Short: "List the frontends of all nodes, and where nodes differ", Long: listHelp,
		RunE: func(cmd *cobra.Command, args []string) error {
			answers, err := f.ask(cmd.Context(), func(daemon) []string { return append([]string{"list", "-o", "json"}, args...) })
			if err != nil {
				return err
			}
			rows, nodes := table{}, []string(nil)
			for i := range answers {
				var l listing
				if !decode(&answers[i], &l) {
					continue
				}
				nodes = append(nodes, answers[i].node)
				for j := range l.Frontends {
					rows.add(l.Frontends[j].name(), answers[i].node, l.Frontends[j].text())
				}
			}
			return f.judge(answers, rows.print(f, nodes))
		}}
}

// load is a row of "verdict top".
type load struct {
	Service  string  `json:"service"`
	Endpoint string  `json:"endpoint"`
	Rate     float64 `json:"connectionsPerSecond"`
	Refused  float64 `json:"refusedPerSecond"`
	Total    uint64  `json:"connectionsTotal"`
	nodes    int     // with new connections
}

type loads struct {
	Daemon []string `json:"daemon"`
	Rows   []load   `json:"rows"`
}

func (f *fleet) newTop() *cobra.Command {
	return &cobra.Command{Use: "top [-- ARGUMENT...]", Short: "Show connections per second of each Service, of all nodes together",
		RunE: func(cmd *cobra.Command, args []string) error {
			answers, err := f.ask(cmd.Context(), func(daemon) []string { return append([]string{"top", "--once", "-o", "json"}, args...) })
			if err != nil {
				return err
			}
			sums := map[[2]string]*load{}
			for i := range answers {
				var l loads
				if !decode(&answers[i], &l) {
					continue
				}
				for _, row := range l.Rows {
					key := [2]string{row.Service, row.Endpoint}
					s := sums[key]
					if s == nil {
						s = &load{Service: row.Service, Endpoint: row.Endpoint}
						sums[key] = s
					}
					s.Rate, s.Refused, s.Total = s.Rate+row.Rate, s.Refused+row.Refused, s.Total+row.Total
					if row.Rate > 0 {
						s.nodes++
					}
				}
			}
			f.printLoads(sums)
			return f.judge(answers, false)
		}}
}

func (f *fleet) printLoads(sums map[[2]string]*load) {
	var rows []*load
	for _, s := range sums {
		rows = append(rows, s)
	}
	slices.SortFunc(rows, func(a, b *load) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(a.Service, b.Service), cmp.Compare(a.Endpoint, b.Endpoint))
	})
	w := tabwriter.NewWriter(f.out, 0, 0, 1, ' ', 0)
	fmt.Fprintf(w, "Service\tEndpoint\tNodes\t%10s\t%10s\t%12s\n", "Conn/s", "Refused/s", "Total")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%5d\t%10.1f\t%10.1f\t%12d\n", r.Service, r.Endpoint, r.nodes, r.Rate, r.Refused, r.Total)
	}
	_ = w.Flush() // as the other writes to standard output
}
