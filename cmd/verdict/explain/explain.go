package explain

import (
	"fmt"

	"github.com/verdict-proxy/verdict/nft/inspect"
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
	return &explainer{path: p, owner: owner{p}, strangers: strangers{path: p}, choice: choice{path: p}}
}

// explain says what becomes of a connection.
func explain(k kernel, q question) (*Explanation, error) {
	x := newExplainer(k, q)
	for _, step := range []func() (done bool, err error){
		x.origin, x.connection, x.readOthers, x.beforeTranslation, x.translation,
	} {
		done, err := step()
		if err != nil {
			return nil, fmt.Errorf("explain %s: %w", &q, err)
		}
		if done {
			break
		}
	}
	x.Verdict.say()
	return x.Explanation, nil
}

func (x *explainer) translation() (bool, error) {
	hook := x.firstHook()
	guard, err := x.walk(hook, "filter", x.packet)
	if err != nil {
		return false, err
	}
	if hook == "prerouting" && x.droppedByPolicy(guard) {
		return true, nil
	}
	if hook == "prerouting" && guard.Fate == inspect.Dropped {
		x.add("loopback", "Packets from other hosts to a loopback address are dropped.", x.rules(guard)...)
		x.end(Dropped, "the loopback guard")
		return true, nil
	}
	passage, err := x.walk(hook, "nat", x.packet)
	if err != nil {
		return false, err
	}
	if x.droppedByPolicy(passage) {
		return true, nil
	}
	x.frontend(passage)
	x.sourceRanges(passage)
	switch passage.Fate {
	case inspect.Dropped:
		x.end(Dropped, "the client is outside of the source ranges (loadBalancerSourceRanges)")
		return true, nil
	case inspect.Translated:
		return true, x.translated(passage.Pick)
	}
	return true, x.untranslated()
}
