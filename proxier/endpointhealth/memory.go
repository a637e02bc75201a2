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

const (
	// savePeriod is the least time between two savings, and they take a twentieth of the time at most.
	savePeriod = time.Second
	saveShare  = 20
)

// save writes what has changed since the last time.
func (m *Monitor) save(now time.Time) {
	if m.Memory == nil || now.Before(m.nextSave) {
		return
	}
	began := time.Now()
	list, changed := m.toSave()
	if !changed {
		return
	}
	slices.SortFunc(list, compareRemembered)
	err := m.Memory.Save(list)
	m.nextSave = now.Add(max(savePeriod, saveShare*time.Since(began)))
	if err != nil {
		m.mu.Lock()
		m.unsaved = true
		m.mu.Unlock()
	}
	if failed := err != nil; failed != m.saveFailing {
		m.saveFailing = failed
		if failed {
			m.Log.Warn("cannot save which endpoints have failed; after a restart they get connections until they fail again", "error", err)
		}
	}
}

// toSave lists the failures, and reports whether something has changed since the last time. If they are too many, namespaces have
// turns.
func (m *Monitor) toSave() (list []Remembered, changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.unsaved {
		return nil, false
	}
	m.unsaved = false
	m.forgetRecalled()
	turns := state.NewTurns[state.Name]()
	for name, is := range m.services {
		if len(is.published) > 0 {
			turns.Push(name.Namespace, name)
		}
	}
	for name := range m.recalled {
		turns.Push(name.Namespace, name)
	}
	for _, name, more := turns.Pop(); more && len(list) < maxRemembered; _, name, more = turns.Pop() {
		health := m.recalled[name]
		if health == nil {
			health = m.services[name].published
		}
		for _, f := range health[:min(len(health), maxRemembered-len(list))] {
			list = append(list, Remembered{name, f})
		}
	}
	return list, true
}

// forgetRecalled forgets Services that were deleted while no process ran.
func (m *Monitor) forgetRecalled() {
	if !m.Store.Synced() {
		return
	}
	for name := range m.recalled {
		if svc, _ := m.Store.Service(name); svc == nil {
			delete(m.recalled, name)
		}
	}
}
