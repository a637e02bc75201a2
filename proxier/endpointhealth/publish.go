package endpointhealth

import (
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// publishPace times the number of endpoints of a Service is the least time between two changes of its health, and all Services
// of a namespace share it beyond paceBurst. While a very large Service is planned and written, others wait, so it pays more:
// one with 50,000 endpoints that flap is planned every twenty seconds.
const (
	publishPace = 80 * time.Microsecond
	veryLarge   = 10_000
	paceBurst   = 8 * time.Second
)

func paceOf(endpoints int) time.Duration {
	return time.Duration(endpoints) * publishPace * time.Duration(max(endpoints, veryLarge)) / veryLarge
}

// publish writes the health of Services that may have changed into the store.
func (m *Monitor) publish(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range takeNames(&m.detector.changed) {
		m.behind[name] = true
	}
	for _, name := range takeNames(&m.checker.changed) {
		m.behind[name] = true
	}
	for _, name := range takeNames(&m.checker.fed) {
		m.Store.PlanAgain(name) // the plan has it join the checks
	}
	if len(m.queue) > 0 && !now.Before(m.nextLate) { // first, so that they do not wait for others that flap all the time
		m.nextLate = now.Add(checkPause)
		queue := m.queue
		m.queue = nil
		for _, name := range queue {
			delete(m.late, name)
			m.publishOne(name, now)
		}
	}
	for _, name := range takeNames(&m.behind) {
		m.publishOne(name, now)
	}
}

// publishOne writes the health of one Service into the store, or defers it.
func (m *Monitor) publishOne(name state.Name, now time.Time) {
	is := m.services[name]
	if is == nil {
		if m.recalled[name] == nil {
			m.Store.SetHealth(name, nil)
		}
		return
	}
	if now.Before(is.next) || !m.paces.left(name.Namespace, now) {
		if !m.late[name] {
			m.late[name] = true
			m.queue = append(m.queue, name)
		}
		return
	}
	pace := paceOf(len(is.choices))
	is.next = now.Add(pace)
	health := m.healthOf(name, is, now)
	if !slices.Equal(health, is.published) {
		is.published, m.unsaved = health, true
		m.paces.take(name.Namespace, pace, now)
	}
	m.Store.SetHealth(name, health)
}

// healthOf lists the endpoints of a Service that are not good, by whatever word.
func (m *Monitor) healthOf(name state.Name, is *watched, now time.Time) (health state.Health) {
	if is.ejects {
		health = m.detector.failures(name, now)
	}
	checks, o := m.checksOf(name, is)
	for i, k := range checks {
		if c := &is.choices[i]; k != nil && k.down && o.hold(k, c.Local) == None {
			health = append(health, state.Failure{
				Protocol: c.Protocol, At: c.At, Since: k.since, Sure: c.Local || o.pass || k.fault.definite(),
			})
		}
	}
	return merged(health)
}

// merged sorts failures, and joins those of one endpoint.
func merged(list state.Health) (out state.Health) {
	slices.SortFunc(list, state.Failure.Compare)
	for _, f := range list {
		if last := len(out) - 1; last >= 0 && out[last].Compare(f) == 0 {
			if out[last].Sure = out[last].Sure || f.Sure; f.Since.Before(out[last].Since) {
				out[last].Since = f.Since
			}
			continue
		}
		out = append(out, f)
	}
	return out
}

// others is what the endpoints of a Service on other nodes answer to its check. A network policy may keep this node away
// from them, and the network of this node may be lost. While one of them passes, neither is so.
type others struct{ pass, reached bool }

// checksOf returns the checks of the endpoints of a Service, in their order; nil: it is not checked.
func (m *Monitor) checksOf(name state.Name, is *watched) (list []*check, o others) {
	if is.check == nil {
		return nil, o
	}
	list = make([]*check, len(is.choices))
	for i := range is.choices {
		c := &is.choices[i]
		t, checked := targetOf(is.check, c.Protocol, c.At)
		if !checked {
			continue
		}
		if list[i] = m.checker.of(name, is.check, t); list[i] != nil && !c.Local {
			o.pass = o.pass || list[i].passed && !list[i].down
			o.reached = o.reached || list[i].reached
		}
	}
	return list, o
}

// hold returns why an endpoint gets connections although it fails its check.
func (o others) hold(k *check, local bool) Hold {
	if !k.reached && !local && !o.reached {
		return NeverReached
	}
	return None
}
