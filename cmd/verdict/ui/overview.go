package ui

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// overview is what the first lines of the page show.
type overview struct {
	socket.Status
	Line     string    `json:"line"` // the status in one line
	Node     string    `json:"node"`
	Now      time.Time `json:"now"`
	Services int       `json:"services"`
	// ProblemCount and OutlierCount count what the concerns have: problems of objects, and bad endpoints.
	ProblemCount int       `json:"problemCount"`
	OutlierCount int       `json:"outlierCount"`
	Concerns     []concern `json:"concerns"` // the first ones
	ConcernCount int       `json:"concernCount"`
	Rates        rates     `json:"rates"`
	// Stranded are open connections of clients outside to endpoints on other nodes.
	Stranded int `json:"strandedConnections"`
	// OnFastPath are open connections on the fast path; nil: none take it. Idle: although they should.
	OnFastPath *int   `json:"fastPathConnections,omitempty"`
	Idle       string `json:"fastPathIdle,omitempty"`
}

// rates add up all Services.
type rates struct {
	Connections float64 `json:"connectionsPerSecond"`
	Refused     float64 `json:"refusedPerSecond"`
	Seconds     float64 `json:"seconds"` // over which they were measured; 0: not yet
	Error       string  `json:"error,omitempty"`
}

// maxShown is how many concerns, and problems of one Service, the page shows; maxReasons is how many reasons of a concern.
const (
	maxShown   = 20
	maxReasons = 2
)

func (p *page) overview(url.Values) (any, error) {
	return p.recent.get("overview", func() (any, error) {
		out := overview{Status: p.Daemon.Status(), Node: p.Daemon.NodeName, Now: time.Now()}
		out.Line = out.Status.Line()
		out.Services = len(p.Daemon.Store.ServiceNames())
		concerns := p.concerns()
		for _, c := range concerns {
			out.ProblemCount, out.OutlierCount = out.ProblemCount+c.Count-c.bad, out.OutlierCount+c.bad
			out.Concerns = append(out.Concerns, *c)
		}
		slices.SortFunc(out.Concerns, func(a, b concern) int { return cmp.Or(b.Urgency-a.Urgency, cmp.Compare(a.Object, b.Object)) })
		out.ConcernCount, out.Concerns = len(concerns), out.Concerns[:min(len(concerns), maxShown)]
		reading, err := p.meter.Read()
		if err != nil {
			out.Rates.Error = err.Error()
		}
		out.Rates.Seconds = reading.Seconds
		for i := range reading.Loads {
			out.Rates.Connections += reading.Loads[i].Rate
			out.Rates.Refused += reading.Loads[i].Refused
		}
		open, err := p.Daemon.Passing(socket.PassingPeriod)
		fast := p.Daemon.FastPath("")
		if n := socket.OnFastPath(open); fast.On() {
			out.OnFastPath = &n
		}
		out.Idle = fast.Idle()
		if out.Stranded = socket.Stranded(open); err != nil && out.Rates.Error == "" {
			out.Rates.Error = err.Error()
		}
		return out, nil
	})
}

// concern is what needs attention of one Service, or of another object.
type concern struct {
	Object  string   `json:"object"`            // namespace/name of a Service; another object has its kind before
	Service bool     `json:"service,omitempty"` // the daemon has this Service
	Urgency int      `json:"urgency"`
	Count   int      `json:"count"`   // problems and bad endpoints
	Reasons []string `json:"reasons"` // the first ones

	bad int // endpoints
}

// Urgencies, the least first.
const (
	partLost = iota // a part of an object is not honored
	badEndpoint
	noGoodEndpoint
)

// problems returns the problems of all objects, by the name of the object as in a concern. Those of an endpoint slice are those of its
// Service.
func (p *page) problems() map[string][]socket.Problem {
	const slice = "EndpointSlice"
	list, names, out := p.Daemon.Problems(""), map[string]string{}, map[string][]socket.Problem{}
	if slices.ContainsFunc(list, func(p socket.Problem) bool { return p.Kind == slice }) {
		for _, s := range p.Daemon.Store.Slices() {
			names[slice+" "+s.String()] = s.Service.String()
		}
	}
	for _, problem := range list {
		name := problem.Object
		if problem.Kind != "Service" {
			name = problem.Kind + " " + name
		}
		name = cmp.Or(names[name], name)
		out[name] = append(out[name], problem)
	}
	return out
}

// concerns returns all concerns by object.
func (p *page) concerns() map[string]*concern {
	out := map[string]*concern{}
	add := func(name, reason string, urgency int) *concern {
		c := out[name]
		if c == nil {
			namespace, rest, _ := strings.Cut(name, "/")
			svc, _ := p.Daemon.Store.Service(state.Name{Namespace: namespace, Name: rest})
			c = &concern{Object: name, Service: svc != nil}
			out[name] = c
		}
		c.Urgency = max(c.Urgency, urgency)
		if c.Count++; len(c.Reasons) < maxReasons {
			c.Reasons = append(c.Reasons, reason)
		}
		return c
	}
	for name, list := range p.problems() {
		for _, problem := range list {
			if problem.Field == state.FieldEndpoints {
				add(name, problem.Reason, noGoodEndpoint)
			} else {
				add(name, problem.Field+": "+problem.Reason, partLost)
			}
		}
	}
	for _, o := range p.Daemon.Outlying() {
		for _, service := range o.Services {
			if o.Bad {
				add(service, o.Addr+" "+o.Text, badEndpoint).bad++
			}
		}
	}
	return out
}

func (p *page) passes(url.Values) (any, error) {
	return p.recent.get("passes", func() (any, error) { return p.Daemon.Passes(), nil })
}

// changes are the first changes of a pass.
func (p *page) changes(q url.Values) (any, error) {
	number, err := strconv.ParseUint(q.Get("pass"), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%w: pass %q must be a number", socket.ErrQuestion, q.Get("pass"))
	}
	return p.recent.get("changes "+q.Get("pass"), func() (any, error) {
		lines, ok := p.Daemon.Journal.Changes(number)
		if !ok {
			return nil, fmt.Errorf("%w: pass %d is too long ago", socket.ErrUnknown, number)
		}
		return map[string]any{"pass": number, "changes": lines}, nil
	})
}
