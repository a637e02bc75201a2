package main

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth"
	"github.com/verdict-proxy/verdict/proxier/metrics"
	"github.com/verdict-proxy/verdict/proxier/prober"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// newHealth connects the parts that find endpoints that do not answer or fail their checks.
func newHealth(s *config.Settings, store *state.Store, k *kernelSide, o *observers, log *slog.Logger) (*endpointhealth.Monitor, error) {
	byDefault, err := defaultCheck(s)
	if err != nil {
		return nil, err
	}
	var reader *nft.SuspectReader
	if s.OutlierDetection != config.OutlierOff {
		if reader, err = nft.OpenSuspects(nft.Options{Families: k.families}); err != nil {
			return nil, fmt.Errorf("open the reader of endpoints that do not answer: %w", err)
		}
	}
	k.suspects = reader
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
	k.forgetter = forgetter
	lines := proxier.NewLines(log, s.Budgets.NamespaceLogLines)
	return endpointhealth.New(endpointhealth.Options{
		Settings: s, Store: store, Ask: prober.New(forgetter.Forget).Ask, Cost: prober.Cost, Default: byDefault, APIServers: apiServers(s), Report: o.Health,
		Memory: newMemory(s.StateDir, log), MayWrite: lines.MayWrite, Log: log,
		Suspicions: func(refusing bool) ([]endpointhealth.Suspicion, error) { return readSuspects(reader, refusing) },
	}), nil
}

// defaultCheck returns the check of Services that ask for none; nil: no check.
func defaultCheck(s *config.Settings) (*state.HealthCheck, error) {
	if s.HealthCheck == "" {
		return nil, nil
	}
	c, err := state.ParseHealthCheck(s.HealthCheck)
	if err != nil {
		return nil, fmt.Errorf("--health-check: %w", err)
	}
	return &c, nil
}

func readSuspects(r *nft.SuspectReader, refusing bool) ([]endpointhealth.Suspicion, error) {
	found, err := r.Read(refusing)
	list := make([]endpointhealth.Suspicion, len(found))
	for i, s := range found {
		list[i] = endpointhealth.Suspicion(s)
	}
	return list, err
}

// Health passes what happened to endpoints to metrics and Events.
func (o *observers) Health(r endpointhealth.Report) {
	for i := range r.Notes {
		switch n := &r.Notes[i]; n.Kind {
		case endpointhealth.SuspicionBegan:
			o.metrics.Suspected(n.Status.Reason.String())
		case endpointhealth.Failed:
			o.metrics.OutlierFailure(n.Status.Hold.String())
		}
	}
	for _, a := range r.Answers {
		o.metrics.OutlierAnswered(a.String())
	}
	o.metrics.Checks(r.Checks.Total, r.Checks.Failing)
	o.metrics.ChecksPassed(r.Checks.Passed)
	for f, n := range r.Checks.Failed {
		o.metrics.ChecksFailed(f, n)
	}
	o.metrics.OnBackups(r.OnBackups)
	if len(r.Notes) > 0 {
		o.countOutliers(r.Statuses)
	}
	for _, e := range r.Episodes {
		o.events.outlier(e, time.Now())
	}
}

func (o *observers) countOutliers(list []endpointhealth.Status) {
	var suspected, failed, ejected int
	for i := range list {
		switch list[i].State {
		case endpointhealth.StateSuspected:
			suspected++
		case endpointhealth.StateFailed:
			failed++
		}
		ejected += len(list[i].Ejected)
	}
	o.metrics.Outliers(metrics.OutlierSuspected, suspected)
	o.metrics.Outliers(metrics.OutlierFailed, failed)
	o.metrics.Outliers(metrics.OutlierEjected, ejected)
}

// outlierTopic is the time within which the nodes of a cluster raise one Event for the same Service: they notice a dead
// node within seconds.
const outlierTopic = 10 * time.Minute

// outlier raises an Event when endpoints of a Service begin to fail.
func (e *events) outlier(episode endpointhealth.Episode, now time.Time) {
	e.post(note{
		service: episode.Service, reason: episode.Reason, text: episode.Text, topic: now.Truncate(outlierTopic).String(),
	})
}
