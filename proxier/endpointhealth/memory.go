package endpointhealth

import (
	"cmp"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// Remembered is a failure that outlives the process, so that a restart brings no failed endpoint back.
type Remembered struct {
	Service state.Name
	Failure state.Failure
}

// Memory keeps failures while no process runs.
type Memory interface {
	Load() ([]Remembered, error)
	Save([]Remembered) error
}

// maxRemembered bounds what is saved. A line of it takes 150 bytes.
const maxRemembered = maxTracked + maxChecks

// recall reads the failures that the previous process saved, and writes them into the store. MarkSynced drops those of
// Services that no longer exist.
func (m *Monitor) recall() {
	if m.Memory == nil {
		return
	}
	list, err := m.Memory.Load()
	if err != nil {
		m.Log.Warn("cannot read which endpoints had failed before the restart; they get connections until they fail again", "error", err)
		return
	}
	slices.SortFunc(list, compareRemembered)
	for _, r := range list {
		m.recalled[r.Service] = append(m.recalled[r.Service], r.Failure)
	}
	for name, health := range m.recalled {
		m.Store.SetHealth(name, health)
	}
	if len(list) > 0 {
		m.Log.Info("endpoints had failed before the restart; they get no connections until they answer", "endpoints", len(list),
			"services", len(m.recalled))
	}
}

func compareRemembered(a, b Remembered) int {
	return cmp.Or(a.Service.Compare(b.Service), a.Failure.Compare(b.Failure))
}

// savePeriod is the least time between two savings.
const savePeriod = time.Second

// save writes what has changed since the last time.
func (m *Monitor) save(now time.Time) {
	if m.Memory == nil || !m.unsaved || now.Sub(m.saved) < savePeriod {
		return
	}
	m.mu.Lock()
	var list []Remembered
	add := func(name state.Name, health state.Health) {
		for _, f := range health {
			if len(list) < maxRemembered {
				list = append(list, Remembered{name, f})
			}
		}
	}
	for name, is := range m.services {
		add(name, is.published)
	}
	synced := m.Store.Synced()
	for name, health := range m.recalled {
		if svc, _ := m.Store.Service(name); synced && svc == nil {
			delete(m.recalled, name) // it was deleted while no process ran
			continue
		}
		add(name, health)
	}
	m.unsaved = false
	m.mu.Unlock()
	m.saved = now
	slices.SortFunc(list, compareRemembered)
	err := m.Memory.Save(list)
	if failed := err != nil; failed != m.saveFailing {
		m.saveFailing, m.unsaved = failed, failed
		if failed {
			m.Log.Warn("cannot save which endpoints have failed; after a restart they get connections until they fail again", "error", err)
		}
	}
}
