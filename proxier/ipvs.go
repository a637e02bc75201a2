package proxier

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Balancer is what the loop needs of the IPVS engine.
type Balancer interface {
	Set(name string, servers []ipvsctl.VirtualServer) error
	Delete(name string)
	Obstacle(servers []ipvsctl.VirtualServer) error
	Coming() []netip.Addr
	Add(now time.Time) (ipvsctl.Result, error)
	Remove(now time.Time) (ipvsctl.Result, error)
	Tick(now time.Time) (ipvsctl.Result, error)
	Intact() (bool, error)
}

// ipvs is what the loop remembers of IPVS. A service port that IPVS cannot serve is served by nft, and tried again later.
type ipvs struct {
	Balancer
	// names are the service ports that IPVS serves, or should and cannot, with their Services.
	names   map[string]state.Name
	refused map[string]setback  // by service port
	trying  map[string]setback  // once more, with the next Add: what it said the last time
	again   map[state.Name]bool // to be planned with the next pass
	retried time.Time
}

// setback is why IPVS does not serve a service port.
type setback struct {
	reason string
	// Of what the kernel refused: since when, how long it is not tried again, and what it was.
	since   time.Time
	rest    time.Duration
	servers []ipvsctl.VirtualServer
}

// How often what IPVS refused is tried again: a look whether another tool's virtual server has gone costs little, another
// attempt at what the kernel refused has both tables written as a whole. That one is made less and less often, because the
// kernel may refuse it for good (routes of IPv6 where a sysctl has disabled IPv6, say).
const (
	lookAgain = 10 * time.Second
	tryAgain  = time.Minute
	tryAtLast = time.Hour
)

func (s *setback) due(now time.Time) bool { return !now.Before(s.since.Add(s.rest)) }

func newIPVS(b Balancer) *ipvs {
	if b == nil {
		return nil
	}
	return &ipvs{Balancer: b, names: map[string]state.Name{}, refused: map[string]setback{}, trying: map[string]setback{}, again: map[state.Name]bool{}}
}

func (k portKey) String() string { return k.family.String() + " " + k.name }

// balance hands a port to IPVS and returns the method by which it is to be served: another one when IPVS cannot.
func (p *Proxier) balance(name state.Name, key portKey, port *plan.Port) method {
	m := p.Scheduling.choose(port.Balancing)
	if p.ipvs == nil {
		return m
	}
	if m.ipvs {
		p.ipvs.names[key.String()] = name
		servers := virtualServers(port, &m, &p.env)
		if reason, reschedules := p.ipvs.obstacle(key.String(), servers); reason != "" {
			m.ipvs = false
			m.note(reason + "; nft serves this port")
		} else if reschedules {
			m.ipvs = false // until the next pass: the kernel would refuse connections meanwhile
			p.ipvs.again[name] = true
		} else if err := p.ipvs.Set(key.String(), servers); err != nil {
			m.ipvs = false
			m.note(err.Error() + "; nft serves this port")
		}
	} else {
		delete(p.ipvs.names, key.String())
		delete(p.ipvs.refused, key.String())
	}
	if !m.ipvs {
		p.ipvs.Delete(key.String())
	}
	return m
}

// obstacle returns why IPVS must not get a port, and whether that is only until the next pass.
func (i *ipvs) obstacle(key string, servers []ipvsctl.VirtualServer) (reason string, reschedules bool) {
	if reason := i.resting(key, servers); reason != "" {
		return reason, false
	}
	err := i.Obstacle(servers)
	switch {
	case err == nil:
		return "", false
	case errors.Is(err, ipvsctl.ErrReschedules):
		return "", true
	case errors.Is(err, ipvsctl.ErrExcluded):
		return err.Error() + " (--ipvs-exclude-cidrs)", false
	}
	i.refused[key] = setback{reason: err.Error()}
	return i.refused[key].reason, false
}

// resting says why a port is not tried now. One that is not as it was when the kernel refused it starts over.
func (i *ipvs) resting(key string, servers []ipvsctl.VirtualServer) string {
	s, ok := i.refused[key]
	if !ok {
		return ""
	}
	if s.servers == nil { // planned for the first time since
		s.servers = servers
	}
	same := slices.EqualFunc(s.servers, servers, ipvsctl.VirtualServer.Equal)
	if !same {
		s.rest = min(s.rest, tryAgain)
	}
	i.refused[key] = s
	if !s.due(time.Now()) {
		return s.reason
	}
	delete(i.refused, key)
	if same {
		i.trying[key] = s
	}
	return ""
}

// refuse notes that the kernel does not take a port.
func (i *ipvs) refuse(key string, reason error) {
	last := i.trying[key]
	i.refused[key] = setback{
		reason: reason.Error(), since: time.Now(), rest: min(max(2*last.rest, tryAgain), tryAtLast), servers: last.servers,
	}
}

// forget gives up a port.
func (p *Proxier) forgetBalanced(key portKey) {
	if p.ipvs != nil {
		p.ipvs.Delete(key.String())
		delete(p.ipvs.names, key.String())
		delete(p.ipvs.refused, key.String())
	}
}

// apply hands all changes to the kernel in the order in which no connection fails: what IPVS is to serve is complete
// before nft lets go of it, and what nft is to serve is there before IPVS lets go. An address that becomes local has its
// guard before.
func (p *Proxier) apply(r *PassReport) {
	if p.ipvs == nil {
		r.Result, r.Err = p.Ruleset.Apply()
		return
	}
	guarded, err := p.Ruleset.Guard(p.ipvs.Coming())
	if err != nil {
		r.Result, r.Err = nft.Result{Outcome: nft.Rejected}, err
		return
	}
	if guarded {
		p.addBalanced(r)
	}
	r.Result, r.Err = p.Ruleset.Apply()
	if r.Err == nil && !guarded && p.addBalanced(r) { // no table was there: nothing is moving away from nft
		r.Result, r.Err = p.Ruleset.Apply()
	}
	if r.Err != nil {
		return
	}
	if result, err := p.removeBalanced(); err != nil {
		r.Result, r.Err = result, err
	}
}

// addBalanced has IPVS serve what is new, and nft what IPVS could not; it says whether there is such a port. What nft serves
// has no guard: other ports of its address answer as on any other node.
func (p *Proxier) addBalanced(r *PassReport) (fellBack bool) {
	result, _ := p.ipvs.Add(time.Now())
	p.Ruleset.Unguard(result.Released())
	p.Ruleset.Unguard(result.NotLocal)
	r.Operations += len(result.Operations)
	queue := map[state.Name]bool{}
	for _, f := range result.Failures {
		name, ok := p.ipvs.names[f.Name]
		if !ok {
			continue // on its way out already
		}
		p.ipvs.refuse(f.Name, f.Err)
		queue[name] = true
	}
	clear(p.ipvs.trying)
	if len(queue) == 0 {
		return false
	}
	d := p.draft(slices.Collect(maps.Keys(queue)))
	p.take(&d)
	return true
}

// removeBalanced takes back what IPVS no longer serves; nft has it now, or nobody. Its error is unguard's.
func (p *Proxier) removeBalanced() (nft.Result, error) {
	result, err := p.ipvs.Remove(time.Now())
	if err != nil {
		p.Log.Error("virtual servers that are no longer wanted are not all gone; trying again", "every", tickPeriod, "error", err)
	}
	return p.unguard(result.Released())
}

// unguard lets others use addresses that are no longer local because of us. After an error the pass has to be repeated.
func (p *Proxier) unguard(addrs []netip.Addr) (nft.Result, error) {
	if len(addrs) == 0 {
		return nft.Result{}, nil
	}
	p.Ruleset.Unguard(addrs)
	result, err := p.Ruleset.Apply()
	if err != nil {
		err = fmt.Errorf("take the guards off addresses that are no longer local (%s and %d more): %w", addrs[0], len(addrs)-1, err)
	}
	return result, err
}

// tickPeriod is how often draining endpoints are looked at.
const tickPeriod = time.Second

// tick goes on with drains and removals, and tries again what IPVS refused.
func (p *Proxier) tick() {
	if p.ipvs == nil || p.failures > 0 {
		return
	}
	p.drain()
	if len(p.ipvs.refused) > 0 && time.Since(p.ipvs.retried) >= lookAgain {
		p.ipvs.retried = time.Now()
		p.ipvs.retry()
	}
	if len(p.ipvs.again) > 0 {
		_ = p.pass() // logged, and tried again
	}
}

// retry has those ports planned that are to be tried again.
func (i *ipvs) retry() {
	for key, s := range i.refused {
		if s.due(i.retried) {
			i.again[i.names[key]] = true
		}
	}
}

// drain ends drains that are over, outside of a pass.
func (p *Proxier) drain() {
	result, err := p.ipvs.Tick(time.Now())
	if err != nil {
		p.Log.Error("draining endpoints are not all gone; trying again", "every", tickPeriod, "error", err)
	}
	if _, err := p.unguard(result.Released()); err != nil {
		p.Log.Error("drains are over, but the tables do not show it; trying again with a pass", "error", err)
		p.failures++
	}
}

// requeue adds the Services that are to be planned again because of IPVS.
func (p *Proxier) requeue(queue []state.Name) []state.Name {
	if p.ipvs == nil || len(p.ipvs.again) == 0 {
		return queue
	}
	for _, name := range queue {
		delete(p.ipvs.again, name)
	}
	queue = slices.AppendSeq(queue, maps.Keys(p.ipvs.again))
	p.ipvs.again = map[state.Name]bool{}
	return queue
}

// moved has all Services planned whose virtual servers may stand at other addresses now.
func (i *ipvs) moved() {
	if i == nil {
		return
	}
	for _, name := range i.names {
		i.again[name] = true
	}
}

// intact says whether IPVS still has what it was given.
func (i *ipvs) intact() (bool, error) {
	if i == nil {
		return true, nil
	}
	intact, err := i.Intact()
	if err != nil {
		err = errors.Join(errors.New("look at virtual servers"), err)
	}
	return intact, err
}
