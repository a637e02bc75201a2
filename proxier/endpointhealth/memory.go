package endpointhealth

import (
	"cmp"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/checks"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/suspicion"
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

const (
	// maxRemembered bounds what is saved. A line of it takes 150 bytes.
	maxRemembered = checks.MaxChecks + suspicion.MaxOfTenant
	// saveShare is how much time savings take: a twentieth at most.
	saveShare = 20
)

// recall reads the failures that the previous process saved, and writes them into the store. MarkSynced drops those of
// Services that no longer exist.
func (l *ledger) recall() {
	if l.memory == nil {
		return
	}
	list, err := l.memory.Load()
	if err != nil {
		l.log.Warn("cannot read which endpoints had failed before the restart; they get connections until they fail again", "error", err)
		return
	}
	slices.SortFunc(list, compareRemembered)
	for _, r := range list {
		is := l.of(r.Service)
		is.recalled, is.published = true, append(is.published, r.Failure)
	}
	for name, is := range l.services {
		l.store.SetHealth(name, is.published)
	}
	if len(list) > 0 {
		l.log.Info("endpoints had failed before the restart; they get no connections until they answer", "endpoints", len(list),
			"services", len(l.services))
	}
}

func compareRemembered(a, b Remembered) int {
	return cmp.Or(a.Service.Compare(b.Service), a.Failure.Compare(b.Failure))
}

// toSave lists the failures if they have changed since the last call, and it is time to save them. If they are too many,
// namespaces have turns.
func (l *ledger) toSave(now time.Time) (list []Remembered, due bool) {
	if l.memory == nil || !l.unsaved || now.Before(l.nextSave) {
		return nil, false
	}
	l.unsaved = false
	turns := state.NewTurns[state.Name]()
	for name, is := range l.services {
		if is.recalled && l.store.Synced() && l.store.Health(name) == nil {
			delete(l.services, name) // it was deleted while no process ran
		} else if len(is.published) > 0 {
			turns.Push(name.Namespace, name)
		}
	}
	for _, name, more := turns.Pop(); more && len(list) < maxRemembered; _, name, more = turns.Pop() {
		health := l.services[name].published
		for _, f := range health[:min(len(health), maxRemembered-len(list))] {
			list = append(list, Remembered{name, f})
		}
	}
	slices.SortFunc(list, compareRemembered)
	return list, true
}

// save writes failures, and reports whether that worked. It needs no lock.
func (l *ledger) save(list []Remembered, now time.Time) bool {
	began := time.Now()
	err := l.memory.Save(list)
	l.nextSave = now.Add(saveShare * time.Since(began))
	failed := err != nil
	if failed && !l.failing {
		l.log.Warn("cannot save which endpoints have failed; after a restart they get connections until they fail again", "error", err)
	}
	l.failing = failed
	return !failed
}
