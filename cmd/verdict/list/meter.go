package list

import (
	"sync"
	"time"
)

// Load is what a service port gets.
type Load struct {
	Service string  `json:"service"`              // namespace/name:port
	Rate    float64 `json:"connectionsPerSecond"` // new connections
	Refused float64 `json:"refusedPerSecond"`     // connections that no endpoint can take
	Total   uint64  `json:"connectionsTotal"`     // since the frontends were written
}

// loads adds up the frontends of each service port. A counter that began anew counts from 0.
func loads(before, now counts) (rows []Load) {
	seconds := now.at.Sub(before.at).Seconds()
	byName := map[string]*Load{}
	for at, t := range now.total {
		row := byName[t.service]
		if row == nil {
			row = &Load{Service: dash(t.service)}
			byName[t.service] = row
		}
		row.Total += t.connections
		if was := before.total[at]; before.total != nil && seconds > 0 {
			row.Rate += float64(t.connections-min(was.connections, t.connections)) / seconds
			row.Refused += float64(t.refused-min(was.refused, t.refused)) / seconds
		}
	}
	for _, row := range byName {
		rows = append(rows, *row)
	}
	return rows
}

// Meter measures loads for any number of readers. It reads the counters of the kernel at most once a second, and spends
// at most a twentieth of the time with that. While nobody asks, it reads nothing.
type Meter struct {
	mu     sync.Mutex
	before counts
	next   time.Time
	latest Reading
	err    error // of the latest reading
}

// Reading is the latest measurement.
type Reading struct {
	At      time.Time // zero: none yet
	Seconds float64   // over which the rates are; 0: there are no rates yet
	Loads   []Load    // in no order; nobody may change it
}

// meterPause is the least time between two readings; a reading that takes longer than meterShare of it waits longer.
const (
	meterPause = time.Second
	meterShare = 20
	meterStale = 10 * time.Second // rates over a longer time are not live
)

// Read returns the latest reading, and reads anew if that is old enough.
func (m *Meter) Read() (Reading, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	began := time.Now()
	if began.Before(m.next) {
		return m.latest, m.err
	}
	now, err := readCounts(nil)
	took := time.Since(began)
	m.next = began.Add(max(meterPause, meterShare*took))
	if m.err = err; err != nil {
		return m.latest, err
	}
	if now.at.Sub(m.before.at) > max(meterStale, 2*meterShare*took) {
		m.before = counts{at: now.at}
	}
	m.latest = Reading{At: now.at, Seconds: now.at.Sub(m.before.at).Seconds(), Loads: loads(m.before, now)}
	m.before = now
	return m.latest, nil
}
