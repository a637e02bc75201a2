package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/source/directory"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// reloader reads the configuration file and the manifests at once, because somebody asks. Both are followed anyway.
type reloader struct {
	config, manifests chan directory.Request // nil: there is no such file or folder
	store             *state.Store
	turn              chan struct{} // one at a time
}

func newReloader(configFile string, s *config.Settings, store *state.Store) *reloader {
	r := &reloader{store: store, turn: make(chan struct{}, 1)}
	if configFile != "" {
		r.config = make(chan directory.Request)
	}
	if s.Manifests != "" {
		r.manifests = make(chan directory.Request)
	}
	return r
}

// longestReload is how long a reload may take with what it waits for.
const longestReload = 30 * time.Second

// reload returns when the kernel has what the files ask for. The error says what cannot be used; the rest is in force.
func (r *reloader) reload(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, longestReload)
	defer stop()
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return fmt.Errorf("read the files again: another reload has not ended: %w", ctx.Err())
	}
	var errs []error
	for _, files := range []chan directory.Request{r.config, r.manifests} {
		if files != nil {
			errs = append(errs, directory.Read(ctx, files))
		}
	}
	return errors.Join(append(errs, awaitKernel(ctx, r.store, anything))...)
}

func anything(c *state.Changes) bool { return c.Environment || len(c.Services) > 0 }

// awaitKernel waits until no change waits for the kernel, of those that count.
func awaitKernel(ctx context.Context, store *state.Store, counts func(*state.Changes) bool) error {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		if c, synced := store.Pending(); synced && !counts(&c) {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return errors.New("the kernel does not have all changes yet; they are tried again")
		}
	}
}
