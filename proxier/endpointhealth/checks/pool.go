package checks

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Pool is a Service whose endpoints are asked, as its latest plan has them.
type Pool struct {
	Name    state.Name
	Ejects  bool
	Check   *state.HealthCheck // nil: none
	Choices []plan.Choice
	Checks  []*Check // of the choices, in their order; nil: it is not checked
	Looks   []*Check // the same
}

// Find finds an endpoint; false: the plan has none.
func Find(choices []plan.Choice, protocol state.Protocol, at netip.AddrPort) (i int, found bool) {
	return slices.BinarySearchFunc(choices, at, func(c plan.Choice, a netip.AddrPort) int {
		return cmp.Or(c.At.Compare(a), cmp.Compare(c.Protocol, protocol))
	})
}

// Hold is why a bad endpoint gets connections all the same.
type Hold string

// The holds.
const (
	None         Hold = ""
	Asking       Hold = "witnesses are being asked"
	HostAlive    Hold = "its host answers, so it is overloaded or a firewall drops questions of this node"
	NeverReached Hold = "it never answered this node, so a network policy may keep the node away"
	Uplink       Hold = "this node has lost its network" // no witness answers
	Mass         Hold = "endpoints on many nodes fell at the same time"
	Limit        Hold = "no more of the pool may be ejected" // or all have failed
	Observed     Hold = "its Services only observe"
	Doubtful     Hold = "endpoints on other nodes gave a bad answer, too; their next answers decide"
	NobodyGood   Hold = "no endpoint is good"
)

// Health lists the endpoints that are not good, by whatever word. Before is what it was.
func (d *Detector) Health(p *Pool, before state.Health, now time.Time) (health state.Health) {
	if p.Ejects {
		health = d.failures(p.Name, before, now)
	}
	o := p.Others()
	for i, k := range p.Checks {
		if c := &p.Choices[i]; k != nil && k.Down && o.Hold(k, c.Local) == None {
			health = append(health, state.Failure{
				Protocol: c.Protocol, At: c.At, Since: k.Since, Sure: c.Local || o.pass || k.Fault.Definite(),
				Accepts: p.Check.Port == 0 && k.Fault.Connected(),
			})
		}
	}
	return state.MergeFailures(health)
}

// Others is what the endpoints of a Service on other nodes answer to its check. A network policy may keep this node away
// from them, and the network of this node may be lost. While one of them passes, neither is so.
type Others struct{ pass, reached bool }

// Others returns what they answer at present.
func (p *Pool) Others() (o Others) {
	for i, k := range p.Checks {
		if k != nil && !p.Choices[i].Local {
			o.pass = o.pass || k.Passed && !k.Down
			o.reached = o.reached || k.Reached
		}
	}
	return o
}

// Hold returns why an endpoint gets connections although it fails its check.
func (o Others) Hold(k *Check, local bool) Hold {
	if !k.Reached && !local && !o.reached {
		return NeverReached
	}
	return None
}

// Reaches reports whether no network policy keeps this node away from an endpoint under suspicion: it has answered before, or nothing
// depends on that. Or it refuses clients and this node, while another endpoint has answered: a program does not listen yet. Endpoints
// on this node show nothing about those on others, because no policy keeps a node away from its own.
func (p *Pool) Reaches(s *Suspect) bool {
	i, found := Find(p.Choices, state.TCP, s.At)
	if !found || p.Looks[i] == nil || p.Looks[i].Passed {
		return true
	}
	for j := 0; s.Reason == Refusing && s.Fault == probe.Refused && j < len(p.Looks); j++ {
		if o := p.Looks[j]; o != nil && o.Passed && (p.Choices[i].Local || !p.Choices[j].Local) {
			return true
		}
	}
	return false
}

// failures returns the endpoints of a Service that have failed and are not held. Silent ones are not in it while too
// many of the Service fell at once; while that is in doubt, only those that were in it before are in it.
func (d *Detector) failures(service state.Name, before state.Health, now time.Time) (list state.Health) {
	of := d.services[service]
	if of == nil {
		return nil
	}
	mass, maybe := of.mass()
	if mass && !of.fallen {
		d.Note(Note{Kind: FellAtOnce, At: now, Suspect: Suspect{Member: Member{Service: service}}})
	}
	of.fallen, of.doubtful = mass, maybe && !mass
	for at, s := range of.endpoints {
		if !s.Down || s.Hold != None {
			continue
		}
		f := state.Failure{Protocol: state.TCP, At: at, Since: s.Since, Sure: !s.fell}
		_, had := slices.BinarySearchFunc(before, f, state.Failure.Compare)
		if f.Sure || !mass && (!maybe || had) {
			list = append(list, f)
		}
	}
	slices.SortFunc(list, state.Failure.Compare)
	return list
}

// Withheld returns why a failed endpoint is not among the failures of its Service.
func (d *Detector) Withheld(s *Suspect) Hold {
	switch of := d.services[s.Service]; {
	case of.fallen:
		return Mass
	case of.doubtful:
		return Doubtful
	}
	return None
}

// massWindow is how close in time endpoints fail that fall at once: all are asked within it.
const massWindow = 10 * time.Second

// mass reports whether endpoints of a Service on two or more nodes, and on at least half of its nodes, failed at the
// same time. Then the cause is more likely between this node and the others than at each of them. Maybe reports whether this
// is so if the endpoints fail that have given one bad answer: the next answer decides, and until then no other endpoint is
// ejected.
func (of *suspects) mass() (sure, maybe bool) {
	fell, doubted := map[string]time.Time{}, map[string]time.Time{} // by node; the second one also has those of the first
	nodes := 0
	for _, s := range of.endpoints {
		failed := s.Down && s.fell
		if s.Word.Node == "" || !failed && (s.Down || s.Falls == 0 || s.Fault == probe.Refused) {
			continue
		}
		nodes = max(nodes, s.Nodes)
		if earliest(doubted, s.Word.Node, s.Since); failed {
			earliest(fell, s.Word.Node, s.Since)
		}
	}
	sure = isMass(fell, nodes)
	return sure, sure || isMass(doubted, nodes)
}

func earliest(times map[string]time.Time, node string, at time.Time) {
	if before, known := times[node]; !known || at.Before(before) {
		times[node] = at
	}
}

// isMass judges when endpoints of each node first failed. Nodes is how many the Service has.
func isMass(fell map[string]time.Time, nodes int) bool {
	if len(fell) < 2 || 2*len(fell) < nodes {
		return false
	}
	first := slices.SortedFunc(maps.Values(fell), time.Time.Compare)
	n := max(2, (nodes+1)/2)
	for i := range len(first) - n + 1 {
		if first[i+n-1].Sub(first[i]) <= massWindow {
			return true
		}
	}
	return false
}

// Kind is what happened to an endpoint, or to the network of this node.
type Kind string

// The kinds.
const (
	SuspicionBegan Kind = "asking an endpoint whether it answers"
	SuspicionEnded Kind = "the endpoint answers"
	Fell           Kind = "an endpoint does not answer" // the record says whether it is held, and why
	Recovered      Kind = "an endpoint answers again"
	NewWord        Kind = "the EndpointSlice of an endpoint that did not answer has changed; it gets connections again"
	EndpointGone   Kind = "an endpoint that did not answer is gone"
	FellAtOnce     Kind = "endpoints of a Service on many nodes fell at the same time; none of them is ejected"
	NetworkLost    Kind = "API servers and endpoints on other nodes do not answer: this node has lost its network; nothing is ejected"
	NetworkBack    Kind = "API servers or endpoints on other nodes answer again"
	StillReady     Kind = "the endpoint has not answered for a minute; " + OnlyHere
	CheckFails     Kind = "an endpoint fails its check"
	CheckPasses    Kind = "an endpoint passes its check again"
)

// OnlyHere is what StillReady means.
const OnlyHere = "its slice still calls it ready: perhaps only this node cannot reach it"

// Note is something that happened.
type Note struct {
	Kind Kind
	At   time.Time
	// Suspect is of the endpoint before it happened; after it, for SuspicionBegan, Fell and StillReady. FellAtOnce is about a
	// Service only; what happens to the network of this node, and to a check, about none.
	Suspect Suspect
	// A check has these.
	Question *probe.Question
	Why      string
	Services []state.Name // that ask for the check, sorted
}

func (d *Detector) note(kind Kind, s *Suspect, now time.Time) {
	d.Note(Note{Kind: kind, At: now, Suspect: *s})
}
