package ledger

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
	// MaxRemembered bounds what is saved. A line of it takes 150 bytes.
	MaxRemembered = suspicion.MaxTracked + checks.MaxChecks
	// saveShare is how much time savings take: a twentieth at most.
	saveShare = 20
)

// recall reads the failures that the previous process saved, and writes them into the store. MarkSynced drops those of
// Services that no longer exist.
func (p *Ledger) recall() {
	if p.Memory == nil {
		return
	}
	list, err := p.Memory.Load()
	if err != nil {
		p.log.Warn("cannot read which endpoints had failed before the restart; they get connections until they fail again", "error", err)
		return
	}
	slices.SortFunc(list, compareRemembered)
	for _, r := range list {
		is := p.Of(r.Service)
		if is == nil {
			is = p.Add(r.Service)
			is.Recalled = true
		}
		is.Published = append(is.Published, r.Failure)
	}
	for name, is := range p.services {
		p.store.SetHealth(name, is.Published)
	}
	if len(list) > 0 {
		p.log.Info("endpoints had failed before the restart; they get no connections until they answer", "endpoints", len(list),
			"services", len(p.services))
	}
}

func compareRemembered(a, b Remembered) int {
	return cmp.Or(a.Service.Compare(b.Service), a.Failure.Compare(b.Failure))
}

// ToSave lists the failures if they have changed since the last call, and it is time to save them. If they are too many,
// namespaces have turns.
func (p *Ledger) ToSave(now time.Time) (list []Remembered, due bool) {
	if p.Memory == nil || !p.Unsaved || now.Before(p.NextSave) {
		return nil, false
	}
	p.Unsaved = false
	turns := state.NewTurns[state.Name]()
	for name, is := range p.services {
		if is.Recalled && p.store.Synced() {
			if svc, _ := p.store.Service(name); svc == nil {
				delete(p.services, name) // it was deleted while no process ran
				continue
			}
		}
		if len(is.Published) > 0 {
			turns.Push(name.Namespace, name)
		}
	}
	for _, name, more := turns.Pop(); more && len(list) < MaxRemembered; _, name, more = turns.Pop() {
		health := p.services[name].Published
		for _, f := range health[:min(len(health), MaxRemembered-len(list))] {
			list = append(list, Remembered{name, f})
		}
	}
	slices.SortFunc(list, compareRemembered)
	return list, true
}

// Save writes failures, and reports whether that worked. It needs no lock.
func (p *Ledger) Save(list []Remembered, now time.Time) bool {
	began := time.Now()
	err := p.Memory.Save(list)
	p.NextSave = now.Add(saveShare * time.Since(began))
	failed := err != nil
	if failed && !p.failing {
		p.log.Warn("cannot save which endpoints have failed; after a restart they get connections until they fail again", "error", err)
	}
	p.failing = failed
	return !failed
}
