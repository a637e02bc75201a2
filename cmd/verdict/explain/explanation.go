package explain

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// Explanation is what the command says about one connection. The fields of this type and of those below are the JSON
// form.
type Explanation struct {
	Source      netip.Addr     `json:"source"`
	SourcePort  uint16         `json:"sourcePort,omitempty"`
	Destination netip.AddrPort `json:"destination"`
	Protocol    string         `json:"protocol"`
	Service     string         `json:"service,omitempty"` // namespace/name:port
	Steps       []Step         `json:"steps"`
	Verdict     Verdict        `json:"verdict"`

	// Notes say what is not known. The command prints them to standard error.
	Notes []string `json:"notes,omitempty"`
}

// Step is one thing that matters for the connection.
type Step struct {
	Topic    string   `json:"topic"`
	Text     string   `json:"text"`
	Evidence []string `json:"evidence,omitempty"` // elements, rules, virtual servers, flows
}

// Outcome is what becomes of a connection.
type Outcome string

// The outcomes.
const (
	Served  Outcome = "served"  // an endpoint gets it
	Refused Outcome = "refused" // the client gets a TCP reset or an ICMP error
	Dropped Outcome = "dropped" // the client gets no answer
	Passed  Outcome = "passed"  // Verdict leaves it alone; routing decides
)

// Verdict is the last line.
type Verdict struct {
	Outcome   Outcome          `json:"outcome"`
	Endpoints []netip.AddrPort `json:"endpoints,omitempty"` // one of them gets the connection
	// SourceSeen is what the endpoint sees: "client" or "node". "both": it depends on the endpoint.
	SourceSeen string `json:"sourceSeen,omitempty"`
	// NoneGood: all of them fail their checks, or do not answer.
	NoneGood bool `json:"noneGood,omitempty"`
	// Existing: the flow exists, and its entry decides.
	Existing bool   `json:"existing,omitempty"`
	By       string `json:"by,omitempty"` // what refuses or drops it
	// Unless are chains of other tables that can stop or translate the connection. Their conditions are not evaluated.
	Unless []string `json:"unless,omitempty"`
	Text   string   `json:"text"`
}

func (e *Explanation) add(topic, text string, evidence ...string) {
	evidence = slices.DeleteFunc(evidence, func(s string) bool { return s == "" })
	e.Steps = append(e.Steps, Step{Topic: topic, Text: text, Evidence: evidence})
}

// maxNamed is how many endpoints the last line names.
const maxNamed = 4

// say writes the text of the verdict.
func (v *Verdict) say() {
	switch v.Outcome {
	case Served:
		v.Text = "goes to " + oneOf(v.Endpoints) + seen[v.SourceSeen]
	case Refused, Dropped:
		v.Text = string(v.Outcome)
	case Passed:
		v.Text = "not translated and not stopped by Verdict; routing decides"
	}
	if v.By != "" {
		v.Text += ": " + v.By
	}
	if v.NoneGood {
		v.Text += "; but none of them is good"
	}
	if v.Existing {
		v.Text += ", because the flow exists; the rules see only the first packet of a flow"
	}
	if len(v.Unless) > 0 {
		v.Text += "; unless another table stops or translates it: " + strings.Join(v.Unless, ", ")
	}
}

// seen is what the text says of SourceSeen.
var seen = map[string]string{
	"client": ", which sees the client's own address", "node": ", which sees an address of this node (masquerading)",
	"both": ", which sees the client's own address, or an address of this node if the client reaches itself",
}

func oneOf(list []netip.AddrPort) string {
	var names []string
	for _, e := range list[:min(len(list), maxNamed)] {
		names = append(names, e.String())
	}
	if more := len(list) - len(names); more > 0 {
		names = append(names, state.Plural(more, "other"))
	}
	if len(names) == 1 {
		return names[0]
	}
	return "one of " + strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// topicWidth is the width of the first column.
const topicWidth = 13

func (e *Explanation) writeText(out io.Writer) error {
	w := bufio.NewWriter(out)
	for _, s := range e.Steps {
		fmt.Fprintf(w, "%-*s %s\n", topicWidth, s.Topic, s.Text)
		for _, line := range s.Evidence {
			fmt.Fprintf(w, "%*s   %s\n", topicWidth, "", line)
		}
	}
	fmt.Fprintf(w, "%-*s %s\n", topicWidth, "verdict", e.Verdict.Text)
	return w.Flush()
}

// maxListed is how many endpoints the text lists.
const maxListed = 10

// upTo joins the first lines, and says how many there are besides.
func upTo(lines []string, most int) []string {
	if len(lines) <= most {
		return lines
	}
	return append(lines[:most:most], fmt.Sprintf("... and %d more", len(lines)-most))
}
