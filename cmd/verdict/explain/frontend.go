package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/verdict-proxy/verdict/nft/inspect"
	nftkernel "github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// owner finds the Service port that has the destination as a frontend.
type owner struct {
	*path
	nodePort bool // it is one
}

// belongs notes a frontend and the Service port that it belongs to.
func (x *owner) belongs(l inspect.Look) {
	x.Service = l.Label
	kind, evidence := "a frontend", []string{x.element(l)}
	if x.nodePort = l.Set.HasNodePorts(); x.nodePort {
		kind = "a node port"
		evidence = append(evidence, x.element(inspect.Look{Set: program.NodePortAddresses, Element: x.packet.Dst.String()}))
	}
	x.add("frontend", fmt.Sprintf("%s is %s of %s.", x.at(), kind, l.Label), evidence...)
	service, _, _ := strings.Cut(l.Label, ":")
	problems, _ := x.Problems(service) // without the daemon, nobody knows
	var lines []string
	for _, p := range problems {
		lines = append(lines, p.Field+": "+p.Reason)
	}
	if len(lines) > 0 {
		x.add("problems", "The daemon has reported something about the Service.", upTo(lines, maxListed)...)
	}
}

// sourceRanges says whether the client is in the ranges of the frontend, if it has any.
func (x *owner) sourceRanges(p inspect.Passage) {
	limited := false
	for _, s := range p.Steps {
		if strings.HasPrefix(s.Chain, "source-ranges") || s.Chain == "limited" {
			limited = true
		}
	}
	if !limited {
		return
	}
	if l, ok := found(p, program.Limited); ok && x.Service == "" {
		x.belongs(l)
	}
	if l, ok := foundIn(p, program.AllowedSources); ok {
		x.add("source ranges", fmt.Sprintf("%s is in a source range of the frontend.", x.packet.Src), x.element(l))
		return
	}
	x.add("source ranges", fmt.Sprintf("%s is in none of the source ranges of the frontend, so it is dropped.", x.packet.Src), x.rules(p)...)
}

// noFrontend says what is close to a destination that is no frontend.
func (x *owner) noFrontend() error {
	if x.missing {
		return nil
	}
	related, err := x.Related(x.packet)
	if err != nil {
		return err
	}
	text, atNode := x.at()+" is no frontend of a Service.", hasNodePorts(related)
	l, ok := hit(related, x.isNodePort)
	if ok && !atNode {
		x.add("frontend", fmt.Sprintf("%s %d/%s is a node port of %s, but node ports do not answer at %s (--nodeport-addresses).", text,
			x.packet.DstPort, protocolName(x.packet.Protocol), l.Label, x.packet.Dst), x.element(l))
		return nil
	}
	l, ok = hit(related, func(l inspect.Look) bool { return l.Set.Says().Counted() && (!l.Set.HasNodePorts() || atNode) })
	if ok {
		protocol, _, _ := strings.Cut(strings.TrimPrefix(l.Key, x.packet.Dst.String()+" . "), " ")
		x.add("frontend", fmt.Sprintf("%s The same port with %s is a frontend of %s.", text, protocol, l.Label), x.element(l))
		return nil
	}
	kinds := map[program.SetID]string{program.ClusterIPs: "the cluster IP", program.ExternalIPs: "an external or load balancer IP"}
	l, ok = hit(related, func(l inspect.Look) bool { return kinds[l.Set] != "" })
	if !ok {
		x.add("frontend", text)
		return nil
	}
	x.add("frontend", fmt.Sprintf("%s %s is %s of a Service that does not have this port.", text, x.packet.Dst, kinds[l.Set]), x.element(l))
	return nil
}

// fastPath is the topic.
const fastPath = "fast path"

// fastPath says whether the packets of a connection that is served will skip the rules. It says nothing if --fast-path is off.
func (x *owner) fastPath(hooks []string, way route) error {
	after, by, device, err := x.Offered(x.packet, x.nodePort, way.link)
	if err != nil {
		return err
	}
	service, _, _ := strings.Cut(x.Service, ":")
	known, err := x.FastPath(service)
	why := known.Reasons()(x.Service, x.q.family().Version())
	switch {
	case after == 0 && known.After == 0:
		return nil
	case why != "":
	case !slices.Contains(hooks, "forward"):
		why = "this node itself is one of its ends, and only packets that it forwards can skip them"
	case x.stays || way.stays:
		why = "it comes or leaves by a bridge, and " + nftkernel.WhyBridgesStay
	case by.Found && device != "":
		why = "the fast path does not have its device " + device + ", or not yet (--fast-path-devices)"
	case by.Found:
		x.add(fastPath, fmt.Sprintf("After %d packets, packets of the connection skip the rules of this node.", after), x.element(by))
		return nil
	case err != nil:
		why = "the tables do not offer it to the fast path; the daemon knows why, and does not answer"
	default:
		why = "the tables do not offer it to the fast path yet"
	}
	x.add(fastPath, "The connection stays on the rules: "+why+".")
	return nil
}

// hasNodePorts reports whether node ports answer at the destination.
func hasNodePorts(related []inspect.Look) bool {
	return slices.ContainsFunc(related, func(l inspect.Look) bool { return l.Set == program.NodePortAddresses })
}

// isNodePort reports whether an element is a node port with the protocol of the packet.
func (x *owner) isNodePort(l inspect.Look) bool {
	return l.Set.HasNodePorts() && strings.HasPrefix(l.Key, protocolName(x.packet.Protocol)+" ")
}

// nodePortByIPVS finds a node port that IPVS serves. The filter chains do not look it up, because nothing refuses it.
func (x *owner) nodePortByIPVS() (l inspect.Look, ok bool, err error) {
	if x.missing {
		return l, false, nil
	}
	related, err := x.Related(x.packet)
	if err != nil || !hasNodePorts(related) {
		return l, false, err
	}
	l, ok = hit(related, func(l inspect.Look) bool { return l.Set.Says() == program.Balanced && x.isNodePort(l) })
	return l, ok, nil
}
