package runner

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/scenario"
)

// explained is what "verdict explain" says about a probe, as far as it matters here.
type explained struct {
	Outcome    string   `json:"outcome"`
	Endpoints  []string `json:"endpoints"`
	SourceSeen string   `json:"sourceSeen"`
	Text       string   `json:"text"`
}

// explains checks that "verdict explain" says of a probe what the probe expects. Only Verdict has the command.
func (c *clients) explains(p *scenario.Probe) error {
	if c.proxy.program.Kind != Verdict || p.Ref != "" {
		return nil
	}
	to, from := c.address(p.To), p.From
	if from != lab.Node {
		from = lab.Address(lab.FamilyOf(to.Addr()), strings.ToUpper(from)).String() // pods, x, y and remote have names of their own
	}
	out, err := c.world.Node.Command(c.proxy.program.Binary, "explain", "--json", from, fmt.Sprintf("%s/%s", to, p.Protocol))
	if err != nil {
		return err
	}
	var answer struct{ Verdict explained }
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		return err
	}
	if v := answer.Verdict; !v.agrees(p) {
		return fmt.Errorf("verdict explain says: %s (source seen: %s)", v.Text, v.SourceSeen)
	}
	return nil
}

// agrees reports whether an explanation leads to what a probe expects.
func (v *explained) agrees(p *scenario.Probe) bool {
	want, known := map[lab.Outcome]string{
		lab.Answered: "served", lab.Refused: "refused", lab.Dropped: "dropped", lab.Unreachable: "passed",
	}[p.Outcome]
	// Packets that pass may be for the node itself. It refuses them where no program listens, and answers elsewhere.
	byNode := p.Outcome == lab.Refused || p.Outcome == lab.Answered && slices.Equal(p.Backends, []string{"host"})
	ok := v.Outcome == want || !known || byNode && v.Outcome == "passed"
	if ok && v.Outcome == "served" {
		ok = sameBackends(v.Endpoints, &p.Expect) && (p.Source == "" || p.Source[0] == '$' ||
			v.SourceSeen == p.Source || v.SourceSeen == "both")
	}
	return ok
}

// sameBackends compares endpoints with the pods that must answer.
func sameBackends(endpoints []string, e *scenario.Expect) bool {
	var names []string
	for _, text := range endpoints {
		if at, err := netip.ParseAddrPort(text); err == nil {
			names = append(names, endpointName(at))
		}
	}
	unexpected := func(name string) bool { return !slices.Contains(e.Backends, name) }
	switch {
	case len(names) == 0, slices.ContainsFunc(names, unexpected):
		return false
	}
	// One endpoint is certain with affinity or hashing; otherwise every expected one must be among them.
	return e.OneOf || len(names) == 1 || len(names) == len(e.Backends)
}
