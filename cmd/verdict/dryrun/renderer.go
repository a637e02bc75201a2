package dryrun

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
	"github.com/verdict-proxy/verdict/cmd/verdict/ipvs"
	"github.com/verdict-proxy/verdict/cmd/verdict/objects"
	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/source/host"
	"github.com/verdict-proxy/verdict/proxier/source/manifests"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Options are what the flags of a command ask for.
type Options struct {
	AssumeIPVS bool     // that the kernel has all schedulers
	Addresses  []string // of the host that is assumed
	Then       []string // folders that follow
	Elements   bool     // only these are printed
	Version    string   // of this program
}

// Renderer runs passes of the loop over engines whose kernels take everything and do nothing.
type Renderer struct {
	Settings  *config.Settings
	Options   *Options
	Addresses []netip.Addr // of the host that is assumed; nil: this host's
	Store     *state.Store

	log      *slog.Logger
	rules    *nft.Engine
	servers  *ipvsctl.Engine // nil: IPVS is not used
	journal  strings.Builder // what the engines wrote
	loop     *proxier.Proxier
	files    *manifests.Source
	problems problemPrinter
	slowPath func() string // why the kernel cannot have the fast path; nil: it can
	bridges  func() bool   // whether connections by a bridge do not take the fast path; nil: they may
}

// New returns a renderer that has read nothing yet, for kernels that have nothing.
func New(s *config.Settings, o *Options, log *slog.Logger) (*Renderer, error) {
	r, err := newRenderer(s, o, log)
	if err != nil {
		return nil, err
	}
	note := func(t *program.Transaction) { r.journal.WriteString(t.String()) }
	r.rules, err = nft.New(&unwritten{NFTables: noTables{}, note: note}, nft.Options{Instance: 1})
	if err == nil && r.Scheduling().Available != nil {
		r.servers, err = ipvsctl.New(ipvs.Options(s), unchanged{noServers{}})
	}
	r.loop = r.NewLoop(r.dataplane())
	return r, err
}

func newRenderer(s *config.Settings, o *Options, log *slog.Logger) (*Renderer, error) {
	r := &Renderer{Settings: s, Options: o, log: log, Store: state.NewStore()}
	for _, text := range o.Addresses {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return nil, flags.Wrong(fmt.Errorf("--assume-addresses=%s: %w", text, err))
		}
		r.Addresses = append(r.Addresses, addr)
	}
	return r, nil
}

// NewLoop returns a loop over a dataplane that need not be that of the renderer.
func (r *Renderer) NewLoop(d proxier.Dataplane) *proxier.Proxier {
	return proxier.New(proxier.Options{
		Settings: r.Settings, Store: r.Store, Dataplane: d, Flows: noFlows{}, Primary: r.primary, Observer: &r.problems, SlowPath: r.slowPath, BridgesStay: r.bridges,
		APIServers: objects.APIServers(r.Settings), Log: slog.New(slog.DiscardHandler), // problems are printed without it
	})
}

func (r *Renderer) dataplane() *dataplane.Dataplane {
	o := dataplane.Options{Ruleset: r.rules, Scheduling: r.Scheduling()}
	if r.servers != nil {
		o.Balancer = recorded{r.servers, &r.journal}
	}
	return dataplane.New(o)
}

// Scheduling is that of the engines. There are no schedulers if IPVS is not used.
func (r *Renderer) Scheduling() dataplane.Scheduling {
	s := r.Settings
	out := dataplane.Scheduling{
		Backend: s.Backend, Default: s.IPVS.Scheduler, Preferred: s.DefaultScheduler, Unavailable: "this kernel has none",
	}
	if s.Backend == config.BackendNFT {
		out.Unavailable = "--backend is nft"
	} else if r.Options.AssumeIPVS || ipvsctl.Loaded() {
		out.Available = ipvsctl.Schedulers()
	}
	return out
}

// changes returns what the engines wrote since the last call: transactions in nft syntax, and commands of ipvsadm and ip.
func (r *Renderer) changes() string {
	text := r.journal.String()
	r.journal.Reset()
	return text
}

// primary returns the main addresses of the host.
func (r *Renderer) primary() ([]netip.Addr, error) {
	if r.Addresses == nil {
		return host.Primary()
	}
	var first []netip.Addr
	for _, is4 := range []bool{true, false} {
		if i := slices.IndexFunc(r.Addresses, func(a netip.Addr) bool { return a.Is4() == is4 }); i >= 0 {
			first = append(first, r.Addresses[i])
		}
	}
	return first, nil
}

// folder is the folder of the settings.
func (r *Renderer) folder(o manifests.Options) *manifests.Source {
	o.Dir, o.NodeName, o.Store, o.Log = r.Settings.Manifests, r.Settings.NodeName, r.Store, slog.New(slog.DiscardHandler)
	r.files = manifests.New(o)
	return r.files
}

// load fills the store.
func (r *Renderer) load(ctx context.Context, folder *manifests.Source) error {
	sources := []objects.Source{host.New(host.Options{Store: r.Store, Log: r.log})}
	if r.Settings.Manifests != "" {
		if err := folder.Load(r.Settings.Manifests); err != nil {
			return err
		}
	} else {
		client, err := objects.NewClient(r.Settings, r.Options.Version, r.Store.AddServer)
		if err != nil {
			return err
		}
		sources = append(sources, objects.New(r.Settings, client, r.Store, objects.Reports{}, r.log))
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	for _, src := range sources {
		group.Go(func() error { return src.Run(ctx) })
	}
	err := objects.MarkSynced(ctx, r.Store, sources...) // when each has delivered its first list
	stop()
	if err := cmp.Or(group.Wait(), err); err != nil {
		return err
	}
	if len(r.Addresses) > 0 {
		r.Store.SetHostAddresses(slices.SortedFunc(slices.Values(r.Addresses), netip.Addr.Compare))
	}
	return nil
}

// noFlows leaves connection tracking alone.
type noFlows struct{}

func (noFlows) Clean(conntrack.Stale, []netip.Addr) ([]conntrack.Result, error) { return nil, nil }
