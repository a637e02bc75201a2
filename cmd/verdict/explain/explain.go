package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// explanationOf says what becomes of a connection.
func explanationOf(k kernel, q question) (*Explanation, error) {
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
	if l, ok := found(passage, program.Served); ok { // it has a pool
		x.belongs(l)
	}
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

// maxFlows is how many flows the text names.
const maxFlows = 3

// connection looks for flows that exist. If the question names the source port, the flow decides.
func (x *explainer) connection() (bool, error) {
	flows, err := x.Flows(conntrack.Query{
		Protocol: x.q.protocol, Src: x.q.src, SrcPort: x.q.srcPort, Dst: x.q.dst,
	})
	if err != nil {
		return false, err
	}
	if len(flows) == 0 {
		x.add("flow", "Connection tracking has no flow of this client to this destination.")
		return false, nil
	}
	var lines []string
	for i := range flows {
		lines = append(lines, flowText(&flows[i]))
	}
	// A SYN after the end of a TCP connection begins a new flow.
	if ended := flows[0].State == "TIME_WAIT" || flows[0].State == "CLOSE"; x.q.srcPort != 0 && !ended {
		x.existing(&flows[0])
		return true, nil
	}
	x.add("flow", fmt.Sprintf("Connection tracking has %s of this client to this destination. What follows is about a new flow.",
		state.Plural(len(flows), "flow")), upTo(lines, maxFlows)...)
	return false, nil
}

// existing says what a flow does with further packets.
func (x *explainer) existing(f *conntrack.FoundFlow) {
	x.Verdict.Existing = true
	if f.Translated {
		x.add("flow", fmt.Sprintf("This flow exists. Its packets go to %s, whatever the rules say.", f.ReplySrc), flowText(f))
		if f.FastPath {
			x.add(fastPath, "It is on the fast path: its packets skip the rules of this node.")
		}
		x.Verdict.Outcome, x.Verdict.Endpoints = Served, append(x.Verdict.Endpoints, f.ReplySrc)
		return
	}
	x.add("flow", "This flow exists and is not translated: it began when no rule translated its destination. "+
		"Its packets do not reach an endpoint until the flow has timed out.", flowText(f))
	x.Verdict.Outcome = Passed
}

func flowText(f *conntrack.FoundFlow) string {
	words := []string{"conntrack:", protocolName(f.Protocol)}
	if f.State != "" {
		words = append(words, f.State)
	}
	words = append(words, fmt.Sprintf("%s -> %s", f.Src, f.Dst))
	if f.Translated {
		words = append(words, "answers come from "+f.ReplySrc.String())
	}
	if f.ReplyDst != f.Src {
		words = append(words, "to "+f.ReplyDst.String())
	}
	if !f.Answered {
		words = append(words, "[UNREPLIED]")
	}
	if f.FastPath {
		return strings.Join(append(words, "[OFFLOAD]"), " ")
	}
	return strings.Join(append(words, "ends in "+f.Timeout.Truncate(time.Second).String()), " ")
}
