package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/cmd/verdict/objects"
	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth"
	"github.com/verdict-proxy/verdict/proxier/prober"
	"github.com/verdict-proxy/verdict/proxier/report"
	"github.com/verdict-proxy/verdict/proxier/source/directory"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// newHealth connects the parts that find endpoints that do not answer or fail their checks.
func newHealth(s *config.Settings, store *state.Store, k *kernelSide, o *observers, log *slog.Logger) (*endpointhealth.Monitor, error) {
	var byDefault *state.HealthCheck // of Services that ask for none
	if s.HealthCheck != "" {
		check, err := state.ParseHealthCheck(s.HealthCheck)
		if err != nil {
			return nil, fmt.Errorf("--health-check: %w", err)
		}
		byDefault = &check
	}
	var suspects *kernel.Conn // of another goroutine than the engine
	if s.OutlierDetection != config.OutlierOff {
		var err error
		if suspects, err = kernel.Dial(0); err != nil {
			return nil, fmt.Errorf("open the reader of endpoints that do not answer: %w", err)
		}
		k.open = append(k.open, suspects.Close)
	}
	forgetter, err := conntrack.OpenForgetter(conntrack.Options{}, func(err error) {
		if err != nil {
			log.Error("questions to endpoints leave flows behind", "error", err)
			return
		}
		log.Info("questions to endpoints leave no flows behind any more")
	})
	if err != nil {
		return nil, fmt.Errorf("open connection tracking for questions to endpoints: %w", err)
	}
	k.open = append(k.open, forgetter.Close)
	lines := report.NewLines(log, s.Budgets.NamespaceLogLines)
	return endpointhealth.New(endpointhealth.Options{
		Settings: s, Store: store, Ask: prober.New(forgetter.Forget).Ask, Cost: prober.Cost, Default: byDefault, APIServers: objects.APIServers(s), Report: o.Health,
		Used: processorTime, Memory: newMemory(s.StateDir, log), MayWrite: lines.MayWrite, Log: log, Pays: o.accounts.Beside,
		Suspicions: func(refusing bool) ([]endpointhealth.Suspicion, error) {
			return inspect.ReadSuspects(suspects, k.families, refusing)
		},
	}), nil
}

// processorTime returns how much processor time this process has used, in the kernel as well.
func processorTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil { // never fails
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Health passes what happened to endpoints to metrics and Events.
func (o *observers) Health(r endpointhealth.Report) {
	o.metrics.Health(&r)
	for _, e := range r.Episodes {
		o.events.Outlier(e, time.Now())
	}
}

// memoryFile keeps in a file which endpoints have failed.
type memoryFile struct{ path string }

// newMemory returns a nil Memory if there is no folder, or if it cannot be used.
func newMemory(dir string, log *slog.Logger) endpointhealth.Memory {
	if path := objects.StateFile(dir, "failed-endpoints-%d.json", log); path != "" {
		return &memoryFile{path}
	}
	return nil
}

// Load implements endpointhealth.Memory.
func (m *memoryFile) Load() ([]endpointhealth.Remembered, error) {
	data, err := os.ReadFile(m.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []endpointhealth.Remembered
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("read %s: %w", m.path, err)
	}
	return list, nil
}

// Save implements endpointhealth.Memory. A reader sees the old file or the new one.
func (m *memoryFile) Save(list []endpointhealth.Remembered) error {
	data, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("write %s: %w", m.path, err)
	}
	return directory.Replace(m.path, data)
}
