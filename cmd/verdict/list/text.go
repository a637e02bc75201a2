package list

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

func (t *table) write(out io.Writer, o options) error {
	switch {
	case o.output == outputYAML:
		return t.writeYAML(out)
	case o.json:
		return t.writeJSON(out)
	}
	for i := range t.Frontends {
		t.Frontends[i].wide = o.output == outputWide
	}
	w := bufio.NewWriter(out)
	t.writeNodePorts(w)
	if o.terse {
		t.writeTerse(w)
	} else {
		t.writeFull(w)
	}
	return w.Flush()
}

// writeJSON writes an empty list as [], and not as null, so that scripts need no special case.
func (t *table) writeJSON(out io.Writer) error {
	if t.NodePortAddresses == nil {
		t.NodePortAddresses = []netip.Addr{}
	}
	if t.Frontends == nil {
		t.Frontends = []frontend{}
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(t)
}

// writeYAML writes the JSON form as YAML.
func (t *table) writeYAML(out io.Writer) error {
	var text bytes.Buffer
	if err := t.writeJSON(&text); err != nil {
		return err
	}
	converted, err := yaml.JSONToYAML(text.Bytes())
	if err != nil {
		return err
	}
	_, err = out.Write(converted)
	return err
}

// writeNodePorts lists the addresses for which the star stands, if a frontend has a star.
func (t *table) writeNodePorts(w io.Writer) {
	for i := range t.Frontends {
		if atAll(t.Frontends[i]) == 0 {
			continue
		}
		fmt.Fprint(w, "Node ports (*) are on")
		for _, a := range t.NodePortAddresses {
			fmt.Fprint(w, " "+addressText(a))
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

func (t *table) writeFull(w io.Writer) {
	ends := len(headEndpoint)
	for i := range t.Frontends {
		fe := &t.Frontends[i]
		ends = max(ends, len(fe.at()))
		for j := range fe.Endpoints {
			ends = max(ends, len(fe.Endpoints[j].at()))
		}
	}
	line := func(mark, at, second, third, fourth, rest string) {
		text := fmt.Sprintf("%-4s %-*s %-10s %-10s %-10s %s", mark, ends, at, second, third, fourth, rest)
		fmt.Fprintln(w, strings.TrimRight(text, " "))
	}
	line("Prot", headFrontend, "Scheduler", "Engine", "Service", "Flags")
	line("  ->", headEndpoint, "Weight", "ActiveConn", "InActConn", "")
	for i := range t.Frontends {
		fe := &t.Frontends[i]
		line(fe.Protocol, fe.at(), fe.scheduler(), fe.Engine, fe.service(), fe.flags())
		for j := range fe.Endpoints {
			e := &fe.Endpoints[j]
			line("  ->", e.at(), strconv.Itoa(e.Weight), number(e.Active), number(e.Inactive), e.remark())
		}
	}
}

func (t *table) writeTerse(w io.Writer) {
	ends, services := len(headFrontend), len("Service")
	for i := range t.Frontends {
		fe := &t.Frontends[i]
		ends, services = max(ends, len(fe.at())), max(services, len(fe.service()))
	}
	line := func(protocol, at, scheduler, engine, count, active, inactive, service, flags string) {
		text := fmt.Sprintf("%-4s %-*s %-9s %-6s %-9s %-10s %-9s %-*s %s",
			protocol, ends, at, scheduler, engine, count, active, inactive, services, service, flags)
		fmt.Fprintln(w, strings.TrimRight(text, " "))
	}
	line("Prot", headFrontend, "Scheduler", "Engine", "Endpoints", "ActiveConn", "InActConn", "Service", "Flags")
	for i := range t.Frontends {
		fe := &t.Frontends[i]
		active, inactive := fe.sum()
		line(fe.Protocol, fe.at(), fe.scheduler(), fe.Engine, strconv.Itoa(len(fe.Endpoints)), number(active), number(inactive),
			fe.service(), fe.flags())
	}
}

// at returns address and port. A star stands for all node port addresses.
func (fe *frontend) at() string {
	switch {
	case fe.Address.IsValid():
		return netip.AddrPortFrom(fe.Address, fe.Port).String()
	case fe.Family == "IPv6":
		return fmt.Sprintf("[*]:%d", fe.Port)
	}
	return fmt.Sprintf("*:%d", fe.Port)
}

func (e *endpoint) at() string { return netip.AddrPortFrom(e.Address, e.Port).String() }

func addressText(a netip.Addr) string {
	if a.Is6() {
		return "[" + a.String() + "]"
	}
	return a.String()
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (fe *frontend) service() string   { return dash(fe.Service) }
func (fe *frontend) scheduler() string { return dash(fe.Scheduler) }

// number returns "-" for an unknown number.
func number(n *int) string {
	if n == nil {
		return "-"
	}
	return strconv.Itoa(*n)
}

// sum returns the connections of all endpoints, or nil if they are unknown.
func (fe *frontend) sum() (active, inactive *int) {
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

func (fe *frontend) flags() string {
	var words []string
	add := func(is bool, word string) {
		if is {
			words = append(words, word)
		}
	}
	add(fe.AffinitySeconds > 0, fmt.Sprintf("persistent %d", fe.AffinitySeconds))
	add(fe.SchedulerFlags != "", "("+fe.SchedulerFlags+")")
	add(fe.Local, "local")
	add(fe.InsideOnly, "pods-and-node-only")
	refusal := fe.Refusal
	if fe.OutsideOnly {
		refusal += "-outside"
	}
	add(refusal != "", refusal)
	add(fe.SourceRanges, "source-ranges")
	add(fe.NodePort && fe.Address.IsValid(), "node-port")
	add(fe.Missing, "no-virtual-server")
	add(fe.wide, fmt.Sprintf("connections=%d refused=%d", fe.Connections, fe.Refused))
	if fe.Rate != nil {
		add(true, fmt.Sprintf("%.1f/s", *fe.Rate))
		add(*fe.RefusedRate > 0, fmt.Sprintf("refused %.1f/s", *fe.RefusedRate))
	}
	return strings.Join(words, " ")
}

// remark returns the weight for pods and the node, if they have another pool, and what is wrong with the endpoint.
func (e *endpoint) remark() string {
	var words []string
	if e.InsideWeight != nil {
		words = append(words, fmt.Sprintf("(pods, node: %d)", *e.InsideWeight))
	}
	if e.Outlier != "" {
		words = append(words, e.Outlier)
	}
	return strings.Join(words, " ")
}
