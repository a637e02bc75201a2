package daemon

import (
	"context"
	"testing"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestAwaitKernel: a reload waits for all changes. A drain waits only for what concerns all Services: one that nobody can
// serve does not hold it up.
func TestAwaitKernel(t *testing.T) {
	store := state.NewStore()
	store.MarkSynced()
	store.SetService(&state.Service{Name: state.Name{Namespace: "default", Name: "refused"}}, nil)
	store.SetDrain(state.Withdrawn)
	over, stop := context.WithCancel(t.Context())
	stop()
	d := drainer{store: store}
	if err := d.await(over, 0); err == nil {
		t.Error("the drain does not wait for the kernel")
	}
	c, _ := store.Pending()
	store.Applied(state.Changes{Revision: c.Revision, Environment: true})
	if err := d.await(t.Context(), 0); err != nil {
		t.Errorf("the drain waits for a Service: %v", err)
	}
	if err := awaitKernel(over, store, anything); err == nil {
		t.Error("a reload does not wait for the Service")
	}
}
