package main

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// faces show the loop's status to the outside.
type faces struct {
	settings *config.Settings
	log      *slog.Logger
	healthy  atomic.Bool
}

func newFaces(s *config.Settings, log *slog.Logger) *faces { return &faces{settings: s, log: log} }

func (f *faces) Pending(time.Time)             {}
func (f *faces) PassDone(r proxier.PassReport) { f.healthy.Store(r.Err == nil) }
func (f *faces) Problems([]state.Problem)      {}

func (f *faces) listen(ctx context.Context, group *errgroup.Group) error {
	if f.settings.HealthzBindAddress == "" {
		return nil
	}
	server := &http.Server{Addr: f.settings.HealthzBindAddress, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !f.healthy.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})}
	group.Go(func() error { <-ctx.Done(); return server.Close() })
	group.Go(func() error {
		if err := server.ListenAndServe(); err != http.ErrServerClosed {
			return err
		}
		return nil
	})
	return nil
}
