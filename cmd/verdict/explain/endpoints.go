package explain

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// explainer collects the steps of one connection. Each of its parts answers one question.
type explainer struct {
	*path     // which way does the packet take, and which rule acts?
	owner     // whose frontend is the destination?
	strangers // what do other tables do?
	choice    // which endpoint gets the connection, and why not others?
}

func newExplainer(k kernel, q question) *explainer {
	p := &path{kernel: k, q: q, Explanation: &Explanation{
		Source: q.src, SourcePort: q.srcPort, Destination: q.dst, Protocol: protocolName(q.protocol),
	}}
	return &explainer{path: p, owner: owner{path: p}, strangers: strangers{path: p}, choice: choice{path: p}}
}

// translated says which endpoint gets the packet.
func (x *explainer) translated(p *inspect.Pick) error {
	x.pool(p)
	x.affinity(p)
	x.candidates(p)
	x.leftOut(p)
	ends := []netip.AddrPort{p.Chosen}
	if !p.Chosen.IsValid() {
		ends = nil
		for _, c := range p.Candidates {
			ends = append(ends, c.Addr)
		}
	}
	if len(ends) == 0 {
		x.end(Passed, "the pool has just lost its endpoints")
		return nil
	}
	x.Verdict.Outcome, x.Verdict.Endpoints = Served, ends
	x.Verdict.NoneGood = !slices.ContainsFunc(ends, func(e netip.AddrPort) bool { known := x.known(e); return known == nil || !known.Bad })
	way, err := x.Route(ends[0].Addr())
	if err != nil {
		return err
	}
	hooks := x.hooksAfter(way)
	if x.unforwarded(way) {
		return nil
	}
	if stopped, err := x.stoppedByPolicy(hooks, ends[0]); stopped || err != nil {
		return err
	}
	if x.stoppedByOthers(append(hooks, "postrouting")) {
		return nil
	}
	if err := x.fastPath(hooks, way); err != nil {
		return err
	}
	return x.masquerading(ends, false)
}

func (x *choice) pool(p *inspect.Pick) {
	how := map[program.Method]string{
		program.Random: "at random, by weight", program.InTurn: "in turn", program.SourceHash: "by a hash of the client's address",
		program.SourcePortHash: "by a hash of the client's address and port",
	}[p.Method]
	which := ""
	if p.Local {
		which = " Traffic policy Local: only endpoints on this node are used for this client."
	}
	x.add("pool", fmt.Sprintf("An endpoint of pool %s is picked %s.%s", p.Pool, how, which),
		fmt.Sprintf("%s verdict dispatch: goto %s", x.q.family(), p.Chain))
}

func (x *choice) affinity(p *inspect.Pick) {
	switch {
	case p.Affinity == 0:
		return
	case p.Entry == nil:
		x.add("affinity", fmt.Sprintf("Session affinity (%s): the client has no entry, so it gets one with this connection.",
			p.Affinity))
	case p.Stale:
		x.add("affinity", "The client's entry leads to an endpoint that is gone. "+
			"The entry is removed, and the client gets another endpoint.",
			x.element(*p.Entry))
	default:
		x.add("affinity", fmt.Sprintf("The client stays with %s. Its entry ends %s after its latest connection (%s left).",
			p.Chosen, p.Affinity, p.Entry.Expires.Round(time.Second)), x.element(*p.Entry))
	}
}

func (x *choice) candidates(p *inspect.Pick) {
	total := 0
	for _, c := range p.Candidates {
		total += c.Slots
	}
	var lines []string
	for _, c := range p.Candidates {
		words := []string{c.Addr.String()}
		if c.Slots > 0 {
			words = append(words, fmt.Sprintf("weight %d of %d", c.Slots, total))
		}
		known := x.known(c.Addr)
		if c.OnNode && (known == nil || known.Node != "") { // the rules treat an endpoint whose replies return here alike
			words = append(words, "on this node")
		}
		if known != nil && known.Remark != "" {
			words = append(words, known.Remark)
		}
		line := strings.Join(words, ", ")
		if c.Element != "" {
			line += "  " + x.element(inspect.Look{Set: program.Endpoints, Element: c.Element})
		}
		lines = append(lines, line)
	}
	text := fmt.Sprintf("%s can get it.", state.Plural(len(p.Candidates), "endpoint"))
	if p.Chosen.IsValid() {
		text = fmt.Sprintf("%s gets it: that is certain for this client.", p.Chosen)
		for _, l := range p.Because {
			lines = append(lines, x.element(l))
		}
	}
	x.add("endpoints", text, upTo(lines, maxListed)...)
}

// masquerading says which source the endpoint sees. It can depend on the endpoint only if the client is one itself.
func (x *explainer) masquerading(ends []netip.AddrPort, balanced bool) error {
	itself := slices.IndexFunc(ends, func(e netip.AddrPort) bool { return e.Addr() == x.packet.Src })
	other := slices.IndexFunc(ends, func(e netip.AddrPort) bool { return e.Addr() != x.packet.Src })
	var kinds []string
	for _, i := range []int{other, itself} {
		if i < 0 {
			continue
		}
		p := x.toEndpoint(ends[i])
		p.Balanced = balanced
		passage, err := x.walk("postrouting", "nat", p)
		if err != nil {
			return err
		}
		if x.droppedByPolicy(passage) {
			return nil
		}
		kinds = append(kinds, x.masqueraded(passage, ends[i]))
	}
	if x.Verdict.SourceSeen = kinds[0]; len(kinds) > 1 && kinds[0] != kinds[1] {
		x.Verdict.SourceSeen = "both"
	}
	return nil
}

// masqueraded adds the step for one endpoint.
func (x *explainer) masqueraded(p inspect.Passage, end netip.AddrPort) string {
	if p.Fate != inspect.Masqueraded {
		x.add("masquerade", fmt.Sprintf("No rule masquerades it: %s sees %s.", end, x.packet.Src))
		return "client"
	}
	why := "the client is not a pod, so the answer must come back through this node"
	switch set, all := masqueradedBy(p); {
	case all:
		why = "all traffic to cluster IPs is masqueraded (--masquerade-all)"
	case set == program.Hairpin:
		why = "the client reaches itself, and would not recognize the answer otherwise"
	case set == program.PodCIDRs:
		why = "the client may be a pod of another node, and no endpoint is on this one: the answer must come back through this node"
	case set == program.IPVSAddresses:
		why = "this node itself sends it to an address that is local for IPVS"
	case set.Says() == program.MasqueradedAlways:
		why = "the traffic policy is Cluster: the answer must come back through this node"
	case set.Says() == program.MasqueradedNode:
		why = "this node itself sends it"
	}
	x.add("masquerade", fmt.Sprintf("%s sees an address of this node, because %s.", end, why), x.rules(p)...)
	return "node"
}

// masqueradedBy is the set that decided, unless all traffic to cluster IPs is masqueraded.
func masqueradedBy(p inspect.Passage) (set program.SetID, all bool) {
	for _, s := range p.Steps {
		switch {
		case s.Action == "" && s.Chain == "nat-postrouting":
			continue
		case s.Chain == "to-cluster-ip" && strings.HasPrefix(s.Rule, "masquerade"):
			return set, true
		}
		for _, look := range s.Looks {
			if look.Found && look.Set != program.NodePortAddresses {
				set = look.Set
			}
		}
	}
	return set, false
}

// choice explains which endpoints can get the connection.
type choice struct {
	*path
	// told is what the daemon says about the endpoints of the Service.
	told    []socket.Endpoint
	toldErr error
	asked   bool
}

// leftOut names endpoints of the Service that do not take the connection, and why. The daemon knows the reasons; the
// kernel only knows which endpoints the policy Local leaves out.
func (x *choice) leftOut(p *inspect.Pick) {
	reasons, err := x.reasons(p)
	switch {
	case errors.Is(err, socket.ErrNotRunning):
		x.Notes = append(x.Notes, "no daemon answers, so it is not known which other endpoints there are: "+err.Error())
	case err != nil:
		x.Notes = append(x.Notes, "it is not known which other endpoints there are: "+err.Error())
	}
	if err != nil {
		for _, e := range p.LeftOut {
			reasons = append(reasons, e.String()+": on another node")
		}
	}
	if len(reasons) == 0 {
		return
	}
	x.add("left out", fmt.Sprintf("%s of the Service cannot get it.", state.Plural(len(reasons), "endpoint")), upTo(reasons, maxListed)...)
}

// askDaemon asks the daemon about the endpoints of the Service, once. Names that the kernel has cut short are not asked
// about.
func (x *choice) askDaemon() ([]socket.Endpoint, error) {
	service, _, ok := strings.Cut(x.Service, ":")
	if ok && !strings.HasSuffix(x.Service, "...") && !x.asked {
		x.asked = true
		x.told, x.toldErr = x.LeftOut(service)
	}
	return x.told, x.toldErr
}

// known is what the daemon knows of an endpoint; nil: nothing.
func (x *choice) known(at netip.AddrPort) *socket.Endpoint {
	list, _ := x.askDaemon() // without the daemon, nothing is known
	for i := range list {
		if e := &list[i]; e.Port == x.Service && e.Addr == at.String() {
			return e
		}
	}
	return nil
}

// reasons lists endpoints with the reason why they are left out.
func (x *choice) reasons(p *inspect.Pick) (out []string, err error) {
	list, err := x.askDaemon()
	if err != nil {
		return nil, err
	}
	// Of a large hash table, only the chosen endpoint is known.
	listed := len(p.Candidates) == 0 || p.Candidates[0].Slots > 0
	for _, e := range list {
		at, err := netip.ParseAddrPort(e.Addr)
		why := e.OutOfCluster
		if p.Local {
			why = e.OutOfLocal
		}
		takes := slices.ContainsFunc(p.Candidates, func(c inspect.Candidate) bool { return c.Addr == at })
		switch {
		case err != nil || e.Port != x.Service || program.FamilyOf(at.Addr()) != x.q.family() || takes:
		case e.NoNew && e.Remark != "": // it says since when
			out = append(out, e.Addr+": "+e.Remark)
		case why == "" && !listed:
		case why == "":
			out = append(out, e.Addr+": the daemon wants it, and the kernel does not have it (yet)")
		default:
			out = append(out, e.Addr+": "+why)
		}
	}
	return out, nil
}
