package explain

import (
	"fmt"
	"strings"

	"github.com/verdict-proxy/verdict/nft"
)

// Sets in which a frontend can be, by their names in the tables.

func withPool() []string { return []string{"services", "nodeports"} }

func refusing() []string { return append(nodePortRefusals(), "no-endpoints", "no-local-endpoints") }

func nodePortRefusals() []string {
	return []string{"no-endpoints-nodeports", "no-local-endpoints-nodeports"}
}

func nodePorts() []string { return append(nodePortRefusals(), "nodeports", "ipvs-nodeports") }

func addressed() []string {
	return []string{"services", "no-endpoints", "no-local-endpoints", "ipvs-frontends"}
}

func byIPVS() []string { return []string{"ipvs-frontends", "ipvs-nodeports"} }

// frontend says whose frontend the destination is, if it has a pool.
func (x *explainer) frontend(p nft.Passage) {
	if l, ok := found(p, withPool()...); ok {
		x.belongs(l)
	}
}

// belongs notes a frontend and the Service port that it belongs to.
func (x *explainer) belongs(l nft.Look) {
	x.Service = l.Label
	kind, evidence := "a frontend", []string{x.element(l)}
	if strings.HasSuffix(l.Set, "nodeports") {
		kind = "a node port"
		evidence = append(evidence, fmt.Sprintf("%s verdict nodeport-addresses { %s }", x.q.family(), x.packet.Dst))
	}
	x.add("frontend", fmt.Sprintf("%s is %s of %s.", x.at(), kind, l.Label), evidence...)
}

// sourceRanges says whether the client is in the ranges of the frontend, if it has any.
func (x *explainer) sourceRanges(p nft.Passage) {
	limited := false
	for _, s := range p.Steps {
		if strings.HasPrefix(s.Chain, "source-ranges") || s.Chain == "limited" {
			limited = true
		}
	}
	if !limited {
		return
	}
	if l, ok := found(p, "firewalled"); ok && x.Service == "" {
		x.belongs(l)
	}
	if l, ok := found(p, "allowed-sources"); ok {
		x.add("source ranges", fmt.Sprintf("%s is in a source range of the frontend.", x.packet.Src), x.element(l))
		return
	}
	x.add("source ranges", fmt.Sprintf("%s is in none of the source ranges of the frontend, so it is dropped.", x.packet.Src), x.rules(p)...)
}

// noFrontend says what is close to a destination that is no frontend.
func (x *explainer) noFrontend() error {
	if x.missing {
		return nil
	}
	related, err := x.Related(x.packet)
	if err != nil {
		return err
	}
	text, evidence := x.at()+" is no frontend of a Service.", []string(nil)
	for _, r := range []func([]nft.Look) (string, nft.Look, bool){x.otherAddress, x.otherProtocol, x.otherPort} {
		if why, l, ok := r(related); ok {
			text += " " + why
			evidence = append(evidence, x.element(l))
			break
		}
	}
	x.add("frontend", text, evidence...)
	return nil
}

func has(list []nft.Look, sets ...string) (nft.Look, bool) {
	return found(nft.Passage{Steps: []nft.Step{{Looks: list}}}, sets...)
}

// otherAddress is for a node port at an address on which node ports do not answer.
func (x *explainer) otherAddress(related []nft.Look) (string, nft.Look, bool) {
	for _, l := range related {
		_, answers := has(related, "nodeport-addresses")
		if _, ok := has([]nft.Look{l}, nodePorts()...); ok && !answers && strings.HasPrefix(l.Key, protocolName(x.packet.Protocol)+" ") {
			return fmt.Sprintf("%d/%s is a node port of %s, but node ports do not answer at %s (--nodeport-addresses).",
				x.packet.DstPort, protocolName(x.packet.Protocol), l.Label, x.packet.Dst), l, true
		}
	}
	return "", nft.Look{}, false
}

// otherProtocol is for a frontend with another protocol.
func (x *explainer) otherProtocol(related []nft.Look) (string, nft.Look, bool) {
	_, answers := has(related, "nodeport-addresses")
	for _, l := range related {
		_, isNodePort := has([]nft.Look{l}, nodePorts()...)
		_, isAddress := has([]nft.Look{l}, addressed()...)
		if isAddress || isNodePort && answers {
			protocol := strings.Fields(strings.TrimPrefix(l.Key, x.packet.Dst.String()+" . "))[0]
			return fmt.Sprintf("The same port with %s is a frontend of %s.", protocol, l.Label), l, true
		}
	}
	return "", nft.Look{}, false
}

// otherPort is for another port of a cluster IP.
func (x *explainer) otherPort(related []nft.Look) (string, nft.Look, bool) {
	l, ok := has(related, "cluster-ips")
	return fmt.Sprintf("%s is the cluster IP of a Service that does not have this port.", x.packet.Dst), l, ok
}
