package endpointhealth

import (
	"cmp"
	"log/slog"
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
	maxRemembered = suspicion.MaxTracked + checks.MaxChecks
	// saveShare is how much time savings take: a twentieth at most.
	saveShare = 20
)

// keeper keeps failures for the next process.
type keeper struct {
	memory  Memory // nil: failures are forgotten when the process ends
	log     *slog.Logger
	unsaved bool
	next    time.Time // when to save again
	failing bool
}

// recall reads the failures that the previous process saved, and writes them into the store. MarkSynced drops those of
// Services that no longer exist.
func (k *keeper) recall(store *state.Store) map[state.Name]*watched {
	services := map[state.Name]*watched{}
	if k.memory == nil {
		return services
	}
	list, err := k.memory.Load()
	if err != nil {
		k.log.Warn("cannot read which endpoints had failed before the restart; they get connections until they fail again", "error", err)
		return services
	}
	slices.SortFunc(list, compareRemembered)
	for _, r := range list {
		is := services[r.Service]
		if is == nil {
			is = &watched{name: r.Service, recalled: true}
			services[r.Service] = is
		}
		is.published = append(is.published, r.Failure)
	}
	for name, is := range services {
		store.SetHealth(name, is.published)
	}
	if len(list) > 0 {
		k.log.Info("endpoints had failed before the restart; they get no connections until they answer", "endpoints", len(list),
			"services", len(services))
	}
	return services
}

func compareRemembered(a, b Remembered) int {
	return cmp.Or(a.Service.Compare(b.Service), a.Failure.Compare(b.Failure))
}

// due reports whether there is something to save, and the time for it.
func (k *keeper) due(now time.Time) bool { return k.memory != nil && k.unsaved && !now.Before(k.next) }

// list lists the failures. If they are too many, namespaces have turns.
func (k *keeper) list(store *state.Store, services map[state.Name]*watched) (list []Remembered) {
	k.unsaved = false
	turns := state.NewTurns[state.Name]()
	for name, is := range services {
		if is.recalled && store.Synced() {
			if svc, _ := store.Service(name); svc == nil {
				delete(services, name) // it was deleted while no process ran
				continue
			}
		}
		if len(is.published) > 0 {
			turns.Push(name.Namespace, name)
		}
	}
	for _, name, more := turns.Pop(); more && len(list) < maxRemembered; _, name, more = turns.Pop() {
		health := services[name].published
		for _, f := range health[:min(len(health), maxRemembered-len(list))] {
			list = append(list, Remembered{name, f})
		}
	}
	slices.SortFunc(list, compareRemembered)
	return list
}

// save writes failures, and reports whether that worked.
func (k *keeper) save(list []Remembered, now time.Time) bool {
	began := time.Now()
	err := k.memory.Save(list)
	k.next = now.Add(saveShare * time.Since(began))
	failed := err != nil
	if failed && !k.failing {
		k.log.Warn("cannot save which endpoints have failed; after a restart they get connections until they fail again", "error", err)
	}
	k.failing = failed
	return !failed
}
