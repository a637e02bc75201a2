package ui

import (
	"net/url"
	"strings"

	"github.com/verdict-proxy/verdict/cmd/verdict/explain"
	"github.com/verdict-proxy/verdict/cmd/verdict/snapshot"
	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
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
	out := service{Service: name, Unsure: frontends.Unsure, Problems: p.Daemon.Problems(name)}
	some := frontends.List[:min(len(frontends.List), maxFrontends)]
	out.More = len(frontends.List) - len(some)
	if out.Kernel, err = snapshot.ReadPlaces(snapshot.Query{Uncounted: true}, some); err != nil {
		return nil, err
	}
	if out.Endpoints, err = p.Daemon.Endpoints(name); err != nil {
		return nil, err
	}
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
	return out, nil
}

// explain explains a connection, or all frontends of a Service. It is not cached: somebody looks at a change.
func (p *page) explain(q url.Values) (any, error) {
	return p.reading.do(func() (any, error) { return explain.Answer(q.Get("source"), q.Get("destination")) })
}
