package main

import (
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/metrics"
	"github.com/verdict-proxy/verdict/proxier/outlier"
	"github.com/verdict-proxy/verdict/proxier/prober"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// newOutliers connects the parts that find endpoints that do not answer or fail their checks.
func newOutliers(s *config.Settings, store *state.Store, k *kernelSide, o *observers, log *slog.Logger) (*proxier.Outliers, error) {
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
	return proxier.NewOutliers(proxier.OutlierOptions{
		Settings: s, Store: store, Ask: prober.Ask, Check: prober.Check, Default: byDefault, Report: o.Outliers, Log: log,
		Suspicions: func(refusing bool) ([]proxier.Suspicion, error) { return readSuspects(reader, refusing) },
		Delete: func(list []conntrack.Unanswered, nodePorts []netip.Addr) (int, error) {
			return conntrack.DeleteUnanswered(conntrack.Options{}, list, nodePorts)
		},
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

func readSuspects(r *nft.SuspectReader, refusing bool) ([]proxier.Suspicion, error) {
	found, err := r.Read(refusing)
	list := make([]proxier.Suspicion, len(found))
	for i, s := range found {
		list[i] = proxier.Suspicion(s)
	}
	return list, err
}

// Outliers passes what happened to endpoints that do not answer to metrics and Events.
func (o *observers) Outliers(r proxier.OutlierReport) {
	for i := range r.Notes {
		switch n := &r.Notes[i]; n.Kind {
		case outlier.SuspicionBegan:
			o.metrics.Suspected(n.Status.Reason.String())
		case outlier.Failed:
			o.metrics.OutlierFailure(n.Status.Hold.String())
		}
	}
	for _, a := range r.Answers {
		o.metrics.OutlierAnswered(a.String())
	}
	o.metrics.ConnectionsDeleted(r.Deleted)
	o.metrics.Checks(r.Checks.Total, r.Checks.Failing)
	o.metrics.ChecksPassed(r.Checks.Passed)
	for f, n := range r.Checks.Failed {
		o.metrics.ChecksFailed(f, n)
	}
	o.metrics.Uses(r.Uses.OnBackups, r.Uses.SlowStarts)
	if len(r.Notes) > 0 {
		o.countOutliers(r.Statuses)
	}
	for _, e := range r.Episodes {
		o.events.outlier(e, time.Now())
	}
}

func (o *observers) countOutliers(list []outlier.Status) {
	var suspected, failed, ejected int
	for i := range list {
		switch list[i].State {
		case outlier.StateSuspected:
			suspected++
		case outlier.StateFailed:
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
func (e *events) outlier(episode proxier.Episode, now time.Time) {
	e.post(note{
		service: episode.Service, reason: episode.Reason, text: episode.Text, topic: now.Truncate(outlierTopic).String(),
	})
}
