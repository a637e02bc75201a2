package source

import (
	"context"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// Source is what can tell that its first complete list is in the store.
type Source interface {
	Synced() <-chan struct{}
}

// MarkSynced waits until all sources have delivered and then marks the store. A node with Services but without its own
// addresses, or the other way round, would program something that is wrong for everybody, so the main source and the
// addresses are waited for together. It returns the context's error when that ends first.
func MarkSynced(ctx context.Context, store *state.Store, sources ...Source) error {
	for _, s := range sources {
		select {
		case <-s.Synced():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	store.MarkSynced()
	return nil
}
