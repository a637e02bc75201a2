package ui

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
)

// overview is what the first lines of the page show.
type overview struct {
	socket.Status
	Node     string           `json:"node"`
	Now      time.Time        `json:"now"`
	Services int              `json:"services"`
	Problems []socket.Problem `json:"problems"` // the first ones
	// ProblemCount counts them all.
	ProblemCount int              `json:"problemCount"`
	Outliers     []socket.Outlier `json:"outliers"` // the first ones of those to look at
	OutlierCount int              `json:"outlierCount"`
	Rates        rates            `json:"rates"`
	// Stranded are open connections of clients outside to endpoints on other nodes.
	Stranded int `json:"strandedConnections"`
}

// rates add up all Services.
type rates struct {
	Connections float64 `json:"connectionsPerSecond"`
	Refused     float64 `json:"refusedPerSecond"`
	Seconds     float64 `json:"seconds"` // over which they were measured; 0: not yet
	Error       string  `json:"error,omitempty"`
}

// maxShown is how many problems and bad endpoints the page shows.
const maxShown = 20

func (p *page) overview(url.Values) (any, error) {
	return p.recent.get("overview", func() (any, error) {
		out := overview{Status: p.Daemon.Status(), Node: p.Daemon.NodeName, Now: time.Now()}
		out.Services = len(p.Daemon.Store.ServiceNames())
		problems := p.Daemon.Problems("")
		outliers := slices.DeleteFunc(p.Daemon.Outlying(), func(o socket.Outlier) bool { return !o.Bad })
		out.ProblemCount, out.Problems = len(problems), problems[:min(len(problems), maxShown)]
		out.OutlierCount, out.Outliers = len(outliers), outliers[:min(len(outliers), maxShown)]
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
		if out.Stranded = socket.Stranded(open); err != nil && out.Rates.Error == "" {
			out.Rates.Error = err.Error()
		}
		return out, nil
	})
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
