// Package objects connects the sources of Services and endpoints: the API server, or a folder of manifests.
package objects

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/source/cluster"
	"github.com/verdict-proxy/verdict/proxier/source/directory"
	"github.com/verdict-proxy/verdict/proxier/source/host"
	"github.com/verdict-proxy/verdict/proxier/source/manifests"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Source is a source of Services and their endpoints.
type Source interface {
	Run(context.Context) error
	Synced() <-chan struct{}
}

// Reports is notified of how reading objects goes, and asks for it. All fields may be nil.
type Reports struct {
	Readable func(resource string, works bool)
	Missing  func(func() []string)    // takes a function that names what has not arrived
	Copies   string                   // the folder for copies of manifests; empty: there are none
	Serving  func() (bool, error)     // reports whether the kernel serves Services of an earlier process
	Now      <-chan directory.Request // requests to read the folder at once
}

// NewClient returns a client for the API server, or nil if objects come from a folder. connected is called with each address to
// which it connects; it may be nil.
func NewClient(s *config.Settings, version string, connected func(netip.AddrPort)) (kubernetes.Interface, error) {
	if s.Manifests != "" {
		return nil, nil
	}
	client, err := cluster.NewClient(cluster.Config{
		Kubeconfig: s.Kubeconfig, Master: s.Master, QPS: s.QPS, Burst: s.Burst, UserAgent: "verdict/" + version, Connected: connected,
	})
	if err != nil {
		return nil, fmt.Errorf("%w; set --kubeconfig FILE, or --manifests DIR to run without a cluster", err)
	}
	return client, nil
}

// NewEventClient returns a client with a rate limit of its own, so that Events do not delay lists and watches.
func NewEventClient(s *config.Settings, version string) (kubernetes.Interface, error) {
	limited := *s
	limited.QPS, limited.Burst = 1, 10
	return NewClient(&limited, version, nil)
}

// APIServers returns the addresses of API servers that the flags name.
func APIServers(s *config.Settings) []netip.AddrPort {
	return cluster.ServerAddresses(cluster.Config{Kubeconfig: s.Kubeconfig, Master: s.Master})
}

// Start runs all sources in the group. It marks the store as synced when each source has delivered its first
// list.
func Start(
	ctx context.Context, group *errgroup.Group, s *config.Settings, client kubernetes.Interface, store *state.Store, r Reports, log *slog.Logger,
) {
	main := New(s, client, store, r, log)
	addresses := host.New(host.Options{Store: store, Log: log})
	if s.Manifests == "" { // nobody waits for the addresses of the API server
		group.Go(func() error {
			if err := cluster.ResolveServer(ctx, cluster.Config{Kubeconfig: s.Kubeconfig, Master: s.Master}, store.AddServer); err != nil && ctx.Err() == nil {
				log.Warn("a Service with external IPs may take the API server from this node until then", "error", err)
			}
			return nil
		})
	}
	for _, src := range []Source{main, addresses} {
		group.Go(func() error { return src.Run(ctx) })
	}
	group.Go(func() error {
		// It returns an error only when the context ends, and then everything ends.
		_ = MarkSynced(ctx, store, main, addresses)
		return nil
	})
}

// New returns the source of Services: the API server, or a folder if there is no client.
func New(s *config.Settings, client kubernetes.Interface, store *state.Store, r Reports, log *slog.Logger) Source {
	if client == nil {
		return manifests.New(manifests.Options{Dir: s.Manifests, NodeName: s.NodeName, Store: store, Log: log, Copies: r.Copies, Serving: r.Serving, Now: r.Now})
	}
	if err := os.RemoveAll(r.Copies); err != nil {
		log.Warn("cannot remove copies of manifests; they are in force after a restart with --manifests while a file cannot be read", "error", err)
	}
	k := cluster.New(cluster.Options{Client: client, NodeName: s.NodeName, Store: store, Log: log, Report: r.Readable})
	if r.Missing != nil {
		r.Missing(k.Missing)
	}
	return k
}

// MarkSynced waits until all sources have delivered their first complete list, and then marks the store as synced. The
// source of Services and the source of host addresses must both have delivered, because a ruleset without one of them
// would be wrong for every Service. MarkSynced returns the error of the context if the context ends first.
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

// Copies is the name of the copies of manifests in --state-dir.
const Copies = "manifests-%d"

// StateFile returns the path of something in --state-dir, or nothing if there is no folder, or if it cannot be used. The name
// has the cookie of the network namespace: what another node did says nothing here.
func StateFile(dir, name string, log *slog.Logger) string {
	if dir == "" {
		return ""
	}
	netns, err := netnsCookie()
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		log.Warn("cannot use --state-dir; a restart will not find what this process writes there", "folder", dir, "file", name, "error", err)
		return ""
	}
	return filepath.Join(dir, fmt.Sprintf(name, netns))
}

// netnsCookie identifies this network namespace until the machine starts again (SO_NETNS_COOKIE, Linux 5.14).
func netnsCookie() (uint64, error) {
	sock, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("identify this network namespace: %w", os.NewSyscallError("socket", err))
	}
	defer func() { _ = unix.Close(sock) }() // nothing was written
	cookie, err := unix.GetsockoptUint64(sock, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if errors.Is(err, unix.ENOPROTOOPT) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("identify this network namespace: %w", os.NewSyscallError("getsockopt", err))
	}
	return cookie, nil
}
