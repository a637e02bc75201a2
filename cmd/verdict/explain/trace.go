package explain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/nft/inspect"
	nftkernel "github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
)

// TracedPacket is what happened to one packet. The fields are the JSON form.
type TracedPacket struct {
	Number  int      `json:"number"`
	Source  string   `json:"source"`
	Lines   []string `json:"rules"`
	Verdict Verdict  `json:"verdict"`
}

// tracing follows the packets of one flow for a bounded time.
type tracing struct {
	time    time.Duration
	packets int
	// started is called when the kernel traces.
	started func()
}

// quiet is how long a packet that is on its way may say nothing.
const quiet = 150 * time.Millisecond

// source is what events come from: a trace in the kernel.
type events interface {
	Next(ctx context.Context, wait time.Duration) ([]inspect.TraceEvent, error)
}

func (t *tracing) run(ctx context.Context, q question, each func(*TracedPacket) error) (err error) {
	trace, err := inspect.OpenTrace(nftkernel.Options{}, program.Flow{
		Src: q.src, Dst: q.dst.Addr(), Protocol: q.protocol, SrcPort: q.srcPort, DstPort: q.dst.Port(),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, trace.Close()) }()
	if t.started != nil {
		t.started()
	}
	return t.follow(ctx, trace, q, each)
}

// follow collects the events of each packet, and hands over the packets in the order in which they came.
func (t *tracing) follow(ctx context.Context, from events, q question, each func(*TracedPacket) error) error {
	deadline := time.Now().Add(t.time)
	for done := 0; done < t.packets && ctx.Err() == nil && time.Now().Before(deadline); {
		seen, err := collect(ctx, from, deadline)
		if err != nil {
			return err
		}
		for _, id := range seen.order[:min(len(seen.order), t.packets-done)] {
			done++
			p, err := traced(done, q, seen.events[id])
			if err == nil {
				err = each(p)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// collected are the events of packets, by the number that the kernel gave to each.
type collected struct {
	order  []uint32
	events map[uint32][]inspect.TraceEvent
}

// collect waits for a packet, and then until no packet says anything for a moment.
func collect(ctx context.Context, from events, deadline time.Time) (collected, error) {
	c := collected{events: map[uint32][]inspect.TraceEvent{}}
	for wait := time.Until(deadline); wait > 0; wait = min(quiet, time.Until(deadline)) {
		list, err := from.Next(ctx, wait)
		if err != nil || len(list) == 0 {
			return c, err
		}
		for _, e := range list {
			if c.events[e.ID] == nil {
				c.order = append(c.order, e.ID)
			}
			c.events[e.ID] = append(c.events[e.ID], e)
		}
	}
	return c, nil
}

// traced says what the events of a packet mean. Only the first packet of a flow sees the chains that translate: of others,
// connection tracking knows what the endpoint sees.
func traced(number int, q question, list []inspect.TraceEvent) (*TracedPacket, error) {
	p := &TracedPacket{Number: number, Source: q.client(), Verdict: Verdict{Outcome: Passed}}
	first, masqueraded, translated := false, false, false
	for _, e := range list {
		if e.Src.IsValid() && e.FromTraceRule {
			p.Source, q.srcPort = e.Src.String(), e.Src.Port()
		}
		if e.FromTraceRule {
			continue
		}
		first = first || e.Table == program.TableName && strings.HasPrefix(e.Chain, "nat-")
		masqueraded, translated = masqueraded || e.Masquerades, translated || e.Translates && e.Verdict == "accept"
		p.note(e)
		p.see(q, e)
	}
	if p.Verdict.Outcome == Served {
		if err := p.sees(q, first, masqueraded); err != nil {
			return nil, err
		}
	}
	if p.Verdict.Outcome == Passed && translated {
		p.Verdict = Verdict{Outcome: Dropped, By: "routing, as no chain sees it after its translation"}
	}
	p.Verdict.say()
	return p, nil
}

// sees says what the endpoint sees. It looks for the flow of a packet that is not the first one.
func (p *TracedPacket) sees(q question, first, masqueraded bool) error {
	if !first {
		flows, err := conntrack.Find(conntrack.Options{}, conntrack.Query{Protocol: q.protocol, Src: q.src, SrcPort: q.srcPort, Dst: q.dst})
		if err != nil {
			return err
		}
		p.Verdict.Existing = len(flows) > 0
		masqueraded = masqueraded || p.Verdict.Existing && flows[0].ReplyDst.Addr() != q.src
	}
	p.Verdict.SourceSeen = "client"
	if masqueraded {
		p.Verdict.SourceSeen = "node"
	}
	return nil
}

// note adds a line for a rule that did something.
func (p *TracedPacket) note(e inspect.TraceEvent) {
	boring := []string{"continue", "return", "break"}
	if slices.Contains(boring, e.Verdict) && !e.Translates && !e.Masquerades && !strings.Contains(e.Rule, "meta priority set") ||
		e.Rule == "policy" && e.Verdict == "accept" || e.Rule == "end of chain" {
		return
	}
	p.Lines = append(p.Lines, fmt.Sprintf("%s %s %s: %s -> %s", e.Family, e.Table, e.Chain, e.Rule, e.Verdict))
}

// see takes what an event says about the fate of the packet.
func (p *TracedPacket) see(q question, e inspect.TraceEvent) {
	switch {
	case e.Verdict == "drop":
		p.Verdict = Verdict{Outcome: Dropped, By: fmt.Sprintf("%s %s %s: %s", e.Family, e.Table, e.Chain, e.Rule)}
		if e.Rejects {
			p.Verdict.Outcome = Refused
		}
	case e.Dst.IsValid() && e.Dst != q.dst && p.Verdict.Outcome == Passed:
		p.Verdict.Outcome, p.Verdict.Endpoints = Served, []netip.AddrPort{e.Dst}
	}
}

func (p *TracedPacket) writeText(out io.Writer) error {
	fmt.Fprintf(out, "\n%-*s packet %d, from %s\n", topicWidth, "trace", p.Number, p.Source)
	for _, line := range p.Lines {
		fmt.Fprintf(out, "%*s   %s\n", topicWidth, "", line)
	}
	_, err := fmt.Fprintf(out, "%-*s %s\n", topicWidth, "verdict", p.Verdict.Text)
	return err
}
