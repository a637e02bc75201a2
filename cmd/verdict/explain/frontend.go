package explain

import (
	"fmt"
	"strings"

	"github.com/verdict-proxy/verdict/nft/inspect"
)

// refusing are the sets of frontends that are refused, by their names in the tables.
func refusing() []string {
	return []string{
		"no-endpoints", "no-local-endpoints", "no-endpoints-nodeports", "no-local-endpoints-nodeports",
		"range-no-endpoints", "range-no-local-endpoints",
	}
}

func isNodePort(l inspect.Look) bool { return strings.HasSuffix(l.Set, "nodeports") }

// owner finds the Service port that has the destination as a frontend.
type owner struct{ *path }

// belongs notes a frontend and the Service port that it belongs to.
func (x *owner) belongs(l inspect.Look) {
	x.Service = l.Label
	kind, evidence := "a frontend", []string{x.element(l)}
	if isNodePort(l) {
		kind = "a node port"
		evidence = append(evidence, fmt.Sprintf("%s verdict nodeport-addresses { %s }", x.q.family(), x.packet.Dst))
	}
	x.add("frontend", fmt.Sprintf("%s is %s of %s.", x.at(), kind, l.Label), evidence...)
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
	if l, ok := found(p, "firewalled", "range-firewalled"); ok && x.Service == "" {
		x.belongs(l)
	}
	if l, ok := found(p, "allowed-sources"); ok {
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
	text, evidence := x.at()+" is no frontend of a Service.", []string(nil)
	for _, r := range []func([]inspect.Look) (string, inspect.Look, bool){x.otherAddress, x.otherProtocol, x.otherPort} {
		if why, l, ok := r(related); ok {
			text += " " + why
			evidence = append(evidence, x.element(l))
			break
		}
	}
	x.add("frontend", text, evidence...)
	return nil
}

func hit(list []inspect.Look, sets ...string) (inspect.Look, bool) {
	return found(inspect.Passage{Steps: []inspect.Step{{Looks: list}}}, sets...)
}

// otherAddress is for a node port at an address on which node ports do not answer.
func (x *owner) otherAddress(related []inspect.Look) (string, inspect.Look, bool) {
	_, answers := hit(related, "nodeport-addresses")
	for _, l := range related {
		if isNodePort(l) && !answers && strings.HasPrefix(l.Key, protocolName(x.packet.Protocol)+" ") {
			return fmt.Sprintf("%d/%s is a node port of %s, but node ports do not answer at %s (--nodeport-addresses).",
				x.packet.DstPort, protocolName(x.packet.Protocol), l.Label, x.packet.Dst), l, true
		}
	}
	return "", inspect.Look{}, false
}

// otherProtocol is for a frontend with another protocol.
func (x *owner) otherProtocol(related []inspect.Look) (string, inspect.Look, bool) {
	_, answers := hit(related, "nodeport-addresses")
	for _, l := range related {
		if inspect.HasFrontends(l.Set) && (answers || !isNodePort(l)) {
			protocol := strings.Fields(strings.TrimPrefix(l.Key, x.packet.Dst.String()+" . "))[0]
			return fmt.Sprintf("The same port with %s is a frontend of %s.", protocol, l.Label), l, true
		}
	}
	return "", inspect.Look{}, false
}

// otherPort is for another port of a cluster IP.
func (x *owner) otherPort(related []inspect.Look) (string, inspect.Look, bool) {
	l, ok := hit(related, "cluster-ips")
	return fmt.Sprintf("%s is the cluster IP of a Service that does not have this port.", x.packet.Dst), l, ok
}

// nodePortByIPVS finds a node port that IPVS serves. The filter chains do not look it up, because nothing refuses it.
func (x *owner) nodePortByIPVS() (l inspect.Look, ok bool, err error) {
	if x.missing {
		return l, false, nil
	}
	related, err := x.Related(x.packet)
	if err != nil {
		return l, false, err
	}
	if _, answers := hit(related, "nodeport-addresses"); !answers {
		return l, false, nil
	}
	for _, l := range related {
		if l.Set == "ipvs-nodeports" && strings.HasPrefix(l.Key, protocolName(x.packet.Protocol)+" ") {
			return l, true, nil
		}
	}
	return l, false, nil
}
