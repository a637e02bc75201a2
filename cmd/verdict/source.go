package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/source"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// objects is a source of Services and their endpoints.
type objects interface {
	Run(context.Context) error
	Synced() <-chan struct{}
}

// readers are told how reading from the API server goes. kept says what manifests keep that cannot be read.
type readers struct {
	report  func(resource string, works bool)
	missing func(func() []string) // takes a function that names what has not arrived
	kept    func() (source.Kept, error)
}

// prepare validates the settings that the flags set, and completes them.
func prepare(s *config.Settings) error {
	if err := s.Validate(); err != nil {
		return usageError{err}
	}
	return s.Complete()
}

// newClient returns a client for the API server, or nil if objects come from a folder. connected is told of each address to
// which it connects; it may be nil.
func newClient(s *config.Settings, connected func(netip.AddrPort)) (kubernetes.Interface, error) {
	return newLimitedClient(s, s.QPS, s.Burst, connected)
}

// newEventClient returns a client with a rate limit of its own, so that Events do not delay lists and watches.
func newEventClient(s *config.Settings) (kubernetes.Interface, error) {
	return newLimitedClient(s, eventQPS, eventBurst, nil)
}

func newLimitedClient(
	s *config.Settings, qps float32, burst int, connected func(netip.AddrPort),
) (kubernetes.Interface, error) {
	if s.Manifests != "" {
		return nil, nil
	}
	client, err := source.NewClient(source.Config{
		Kubeconfig: s.Kubeconfig, Master: s.Master, QPS: qps, Burst: burst, UserAgent: "verdict/" + thisBuild().version,
		Connected: connected,
	})
	if err != nil {
		return nil, fmt.Errorf("%w; set --kubeconfig FILE, or --manifests DIR to run without a cluster", err)
	}
	return client, nil
}

// apiServers returns the addresses of API servers that the flags name.
func apiServers(s *config.Settings) []netip.AddrPort {
	return source.ServerAddresses(source.Config{Kubeconfig: s.Kubeconfig, Master: s.Master})
}

// resolveServer finds the addresses of an API server that the settings name. Nobody waits for it.
func resolveServer(ctx context.Context, s *config.Settings, store *state.Store, log *slog.Logger) {
	if s.Manifests != "" {
		return
	}
	access := source.Config{Kubeconfig: s.Kubeconfig, Master: s.Master}
	if err := source.ResolveServer(ctx, access, store.AddServer); err != nil && ctx.Err() == nil {
		log.Warn("a Service with external IPs may take the API server from this node until then", "error", err)
	}
}

// startSources runs all sources in the group. It marks the store as synced when each source has delivered its first
// list.
func startSources(
	ctx context.Context, group *errgroup.Group, s *config.Settings, client kubernetes.Interface, store *state.Store, tell readers, log *slog.Logger,
) {
	main := newSource(s, client, store, tell, log)
	addresses := source.NewAddresses(source.AddressesOptions{Store: store, Log: log})
	group.Go(func() error {
		resolveServer(ctx, s, store, log)
		return nil
	})
	for _, src := range []objects{main, addresses} {
		group.Go(func() error { return src.Run(ctx) })
	}
	group.Go(func() error {
		// It returns an error only when the context ends, and then everything ends.
		_ = source.MarkSynced(ctx, store, main, addresses)
		return nil
	})
}

// newSource returns the source of Services: the API server, or a folder if there is no client.
func newSource(s *config.Settings, client kubernetes.Interface, store *state.Store, tell readers, log *slog.Logger) objects {
	if client == nil {
		return source.NewManifests(source.ManifestsOptions{Dir: s.Manifests, NodeName: s.NodeName, Store: store, Log: log, Kept: tell.kept})
	}
	k := source.NewKubernetes(source.KubernetesOptions{Client: client, NodeName: s.NodeName, Store: store, Log: log, Report: tell.report})
	if tell.missing != nil {
		tell.missing(k.Missing)
	}
	return k
}
