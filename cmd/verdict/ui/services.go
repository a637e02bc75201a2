package ui

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/verdict-proxy/verdict/cmd/verdict/explain"
	"github.com/verdict-proxy/verdict/cmd/verdict/snapshot"
	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// service is one Service.
type service struct {
	Service string `json:"service"`
	// Kernel has the frontends, pools and endpoints that the kernel has, in the form of "verdict list --json".
	Kernel any `json:"kernel"`
	// More counts frontends that are not shown.
	More int `json:"moreFrontends,omitempty"`
	// Unsure: the kernel may have other frontends, because a change waits or the latest pass failed.
	Unsure    bool              `json:"unsure,omitempty"`
	Endpoints []socket.Endpoint `json:"endpoints"` // that its objects name
	// MoreEndpoints counts endpoints that are not shown.
	MoreEndpoints int              `json:"moreEndpoints,omitempty"`
	Problems      []socket.Problem `json:"problems"`
	Loads         []snapshot.Load  `json:"loads"`
	Seconds       float64          `json:"seconds"`
	// FastPath counts the connections on the fast path by service port; nil: none take it.
	FastPath map[string]int `json:"fastPathConnections,omitempty"`
}

// The page shows so many frontends and endpoints of a Service.
const (
	maxFrontends = 24
	maxEndpoints = 200
)

func (p *page) service(q url.Values) (any, error) {
	name := q.Get("name")
	return p.recent.get("service "+name, func() (any, error) {
		return p.reading.do(func() (any, error) { return p.readService(name) })
	})
}

func (p *page) readService(name string) (any, error) {
	frontends, err := p.Daemon.Frontends(name)
	if err != nil {
		return nil, err
	}
	out := service{Service: name, Unsure: frontends.Unsure, Problems: p.problems()[name]}
	some := frontends.List[:min(len(frontends.List), maxFrontends)]
	out.More = len(frontends.List) - len(some)
	if out.Kernel, err = snapshot.ReadPlaces(snapshot.Query{Uncounted: true}, some); err != nil {
		return nil, err
	}
	if out.Endpoints, err = p.Daemon.Endpoints(name); err != nil {
		return nil, err
	}
	bad := slices.DeleteFunc(slices.Clone(out.Endpoints), func(e socket.Endpoint) bool { return !e.Bad })
	good := slices.DeleteFunc(out.Endpoints, func(e socket.Endpoint) bool { return e.Bad })
	out.Endpoints = slices.Concat(bad, good)
	out.MoreEndpoints = max(0, len(out.Endpoints)-maxEndpoints)
	out.Endpoints = out.Endpoints[:min(len(out.Endpoints), maxEndpoints)]
	out.Problems = out.Problems[:min(len(out.Problems), maxShown)]
	reading, _ := p.meter.Read() // the overview shows the error
	out.Seconds, out.Loads = reading.Seconds, []snapshot.Load{}
	for i := range reading.Loads {
		if strings.HasPrefix(reading.Loads[i].Service, name+":") {
			out.Loads = append(out.Loads, reading.Loads[i])
		}
	}
	if f := p.Daemon.FastPath(name); f.On() {
		out.FastPath = map[string]int{}
		open, _ := p.Daemon.Passing(socket.PassingPeriod) // the overview shows the error
		for i := range out.Loads {
			of := out.Loads[i].Service
			out.FastPath[of] = socket.OnFastPath(slices.DeleteFunc(slices.Clone(open), func(p socket.Passing) bool { return p.Service != of }))
		}
	}
	return out, nil
}

// explain explains a connection, or all frontends of a Service. It is not cached: somebody looks at a change.
func (p *page) explain(q url.Values) (any, error) {
	return p.reading.do(func() (any, error) { return explain.Answer(q.Get("source"), q.Get("destination")) })
}

// row is one Service in the list.
type row struct {
	Service  string  `json:"service"`
	Rate     float64 `json:"connectionsPerSecond"`
	Refused  float64 `json:"refusedPerSecond"`
	Total    uint64  `json:"connectionsTotal"`
	Problems int     `json:"problems"` // of the Service, and its bad endpoints

	// The rest is filled in for rows that are shown.
	Addresses []string `json:"addresses,omitempty"`
	Ports     []string `json:"ports,omitempty"`
	Endpoints int      `json:"endpoints"`
	Good      int      `json:"good"` // endpoints that are ready and not bad
	Bad       int      `json:"bad"`

	name    state.Name
	urgency int
}

// shown is one page of the list.
type shown struct {
	Total   int     `json:"total"`   // Services
	Matches int     `json:"matches"` // that the search found
	Page    int     `json:"page"`    // counts from 0
	Pages   int     `json:"pages"`
	Seconds float64 `json:"seconds"` // over which the rates were measured; 0: not yet
	Rows    []row   `json:"rows"`
}

// perPage is the number of rows of a page.
const perPage = 25

// maxWords is how many words a search may have.
const maxWords = 8

// services searches and sorts the Services of the daemon, and shows one page of them. Each answer copies the rows of all Services.
func (p *page) services(q url.Values) (any, error) {
	if len(strings.Fields(q.Get("q"))) > maxWords {
		return nil, fmt.Errorf("%w: a search has %d words at most", socket.ErrQuestion, maxWords)
	}
	return p.reading.do(func() (any, error) { return p.list(q) })
}

func (p *page) list(q url.Values) (any, error) {
	number, err := strconv.Atoi(cmp.Or(q.Get("page"), "0"))
	if err != nil || number < 0 {
		return nil, fmt.Errorf("%w: page %q must be a number", socket.ErrQuestion, q.Get("page"))
	}
	by, ok := orders()[cmp.Or(q.Get("sort"), "problems")]
	if !ok {
		return nil, fmt.Errorf("%w: sort %q must be name, rate, refused, total or problems", socket.ErrQuestion, q.Get("sort"))
	}
	reading, _ := p.meter.Read() // the overview shows the error
	all, err := p.recent.get("rows", func() (any, error) { return p.rows(&reading), nil })
	if err != nil {
		return nil, err
	}
	rows := all.([]row)
	out := shown{Total: len(rows), Seconds: reading.Seconds}
	rows = p.search(rows, q.Get("q"))
	out.Matches, out.Pages = len(rows), max(1, (len(rows)+perPage-1)/perPage)
	slices.SortFunc(rows, func(a, b row) int { return cmp.Or(by(&a, &b), a.name.Compare(b.name)) })
	out.Page = min(number, out.Pages-1)
	first := out.Page * perPage
	out.Rows = rows[first:min(first+perPage, len(rows))]
	for i := range out.Rows {
		p.fill(&out.Rows[i])
	}
	return out, nil
}

// orders are the orders of the list.
func orders() map[string]func(a, b *row) int {
	return map[string]func(a, b *row) int{
		"name":     func(*row, *row) int { return 0 },
		"rate":     func(a, b *row) int { return cmp.Compare(b.Rate, a.Rate) },
		"refused":  func(a, b *row) int { return cmp.Compare(b.Refused, a.Refused) },
		"total":    func(a, b *row) int { return cmp.Compare(b.Total, a.Total) },
		"problems": func(a, b *row) int { return cmp.Or(b.urgency-a.urgency, cmp.Compare(b.Problems, a.Problems)) },
	}
}

// rows joins what the daemon knows of all Services with their rates.
func (p *page) rows(reading *snapshot.Reading) []row {
	names := p.Daemon.Store.ServiceNames()
	rows, at := make([]row, len(names)), make(map[string]*row, len(names))
	for i, name := range names {
		rows[i] = row{Service: name.String(), name: name}
		at[rows[i].Service] = &rows[i]
	}
	for i := range reading.Loads {
		l := &reading.Loads[i]
		service, _, _ := strings.Cut(l.Service, ":")
		if r := at[service]; r != nil {
			r.Rate, r.Refused, r.Total = r.Rate+l.Rate, r.Refused+l.Refused, r.Total+l.Total
		}
	}
	for name, c := range p.concerns() {
		if r := at[name]; r != nil {
			r.Problems, r.urgency = c.Count, c.Urgency
		}
	}
	return rows
}

// search keeps Services that have all words, in their name or as a place. An endpoint alone finds the Services that have it. search
// returns a new list.
func (p *page) search(rows []row, text string) []row {
	words, serving := strings.Fields(strings.ToLower(text)), map[string]bool{}
	if found, err := p.Daemon.ServicesOf(strings.Join(words, " ")); err == nil { // otherwise the text is no address
		for _, name := range found.List {
			serving[name] = true
		}
	}
	out := []row{}
	for i := range rows {
		lacks := func(word string) bool {
			if strings.Contains(rows[i].Service, word) {
				return false
			}
			svc, _ := p.Daemon.Store.Service(rows[i].name)
			return svc == nil || !hasPlace(svc, word)
		}
		if serving[rows[i].Service] || !slices.ContainsFunc(words, lacks) {
			out = append(out, rows[i])
		}
	}
	return out
}

func addressesOf(svc *state.Service) []netip.Addr {
	return slices.Concat(svc.ClusterIPs, svc.LoadBalancerIPs, svc.ExternalIPs)
}

// hasPlace reports whether a word is a port of a Service, the beginning of one of its addresses, or ADDRESS:PORT.
func hasPlace(svc *state.Service, word string) bool {
	at, err := netip.ParseAddrPort(word)
	port := at.Port()
	if n, wrong := strconv.ParseUint(word, 10, 16); wrong == nil {
		port = uint16(n)
	}
	hasPort := port != 0 && slices.ContainsFunc(svc.Ports, func(p state.ServicePort) bool {
		return p.Port == port || p.NodePort == port && err != nil || p.Port < port && port <= p.EndPort
	})
	if err == nil {
		return hasPort && slices.Contains(addressesOf(svc), at.Addr())
	}
	return hasPort || slices.ContainsFunc(addressesOf(svc), func(a netip.Addr) bool { return strings.HasPrefix(a.String(), word) })
}

// maxPlaces is how many addresses and how many ports a row shows.
const maxPlaces = 3

func (p *page) fill(r *row) {
	svc, endpointSlices := p.Daemon.Store.Service(r.name)
	if svc == nil { // it has just been deleted
		return
	}
	for _, port := range svc.Ports[:min(len(svc.Ports), maxPlaces)] {
		r.Ports = append(r.Ports, state.PortsText(port.Port, port.EndPort))
	}
	addresses := addressesOf(svc)
	for _, a := range addresses[:min(len(addresses), maxPlaces)] {
		r.Addresses = append(r.Addresses, a.String())
	}
	bad := map[netip.Addr]bool{}
	if p.Daemon.Outliers != nil {
		for _, s := range p.Daemon.Outliers.Statuses(r.name) {
			bad[s.At.Addr()] = bad[s.At.Addr()] || s.State.Bad()
		}
	}
	for _, s := range endpointSlices {
		r.Endpoints += len(s.Endpoints)
		for i := range s.Endpoints {
			switch e := &s.Endpoints[i]; {
			case bad[e.Addr]:
				r.Bad++
			case e.Ready:
				r.Good++
			}
		}
	}
}
