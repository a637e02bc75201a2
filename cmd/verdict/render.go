package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
	"github.com/verdict-proxy/verdict/cmd/verdict/ipvs"
	"github.com/verdict-proxy/verdict/cmd/verdict/logging"
	"github.com/verdict-proxy/verdict/cmd/verdict/objects"
	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/proxier"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/report"
	"github.com/verdict-proxy/verdict/proxier/source/host"
	"github.com/verdict-proxy/verdict/proxier/source/manifests"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// renderOptions are the flags that only render has.
type renderOptions struct {
	assumeIPVS bool
	addresses  []string
	then       []string
	elements   bool
}

func newRender() *cobra.Command { return newRenderFor((*renderer).run) }

// newRenderFor returns the command with another function in place of renderer.run. Tests use it to run the loop in
// another way with the same flags.
func newRenderFor(run func(*renderer, context.Context, io.Writer, io.Writer) error) *cobra.Command {
	s := config.Default()
	var o renderOptions
	cmd := &cobra.Command{
		Use:   "render",
		Short: "Print the complete ruleset in nft syntax without touching the kernel",
		Long: `Print what "verdict run" would write into the kernel of this host, for a folder of manifests or for a cluster. The
output is in nft syntax, which "nft -c -f -" accepts. Virtual servers of IPVS flags.Follow as comments in the syntax of
ipvsadm. Problems of objects go to standard error.

With --then, the output continues with the changes from one folder of manifests to the next, one transaction for each
folder.`,
		Example: `  verdict render --manifests /etc/verdict/manifests
  verdict render --manifests today --then tomorrow --elements`,
		Args: flags.None,
	}
	flags.BindSource(cmd.Flags(), &s)
	flags.BindBackend(cmd.Flags(), &s)
	flags.BindBudgets(cmd.Flags(), &s)
	flags.BindOutliers(cmd.Flags(), &s)
	flags.BindLog(cmd.Flags(), &s)
	cmd.Flags().BoolVar(&o.assumeIPVS, "assume-ipvs", false,
		"render for a kernel that has IPVS with all schedulers, even if this one does not")
	cmd.Flags().StringSliceVar(&o.addresses, "assume-addresses", nil,
		"render for a host with these `ADDRESSES`; the first one of each family is its main address")
	cmd.Flags().StringArrayVar(&o.then, "then", nil,
		"also print the changes that lead to the manifests in `DIR`; may be repeated")
	cmd.Flags().BoolVar(&o.elements, "elements", false,
		"print only the elements and virtual servers, without the fixed program")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := flags.Prepare(&s); err != nil {
			return err
		}
		if len(o.then) > 0 && s.Manifests == "" {
			return flags.Wrong(errors.New("--then needs --manifests"))
		}
		r, err := newRenderer(&s, &o, logging.New(cmd.ErrOrStderr(), &s))
		if err != nil {
			return err
		}
		return run(r, cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	return cmd
}

// renderer runs passes of the loop over engines in memory.
type renderer struct {
	settings  *config.Settings
	options   *renderOptions
	log       *slog.Logger
	addresses []netip.Addr // of the host that is assumed; nil: this host's
	store     *state.Store
	memory    *dataplane.Memory
	loop      *proxier.Proxier
	problems  problemPrinter
}

func newRenderer(s *config.Settings, o *renderOptions, log *slog.Logger) (*renderer, error) {
	r := &renderer{settings: s, options: o, log: log, store: state.NewStore(), memory: dataplane.OpenMemory(memoryOptions(s, o))}
	for _, text := range o.addresses {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return nil, flags.Wrong(fmt.Errorf("--assume-addresses=%s: %w", text, err))
		}
		r.addresses = append(r.addresses, addr)
	}
	r.loop = r.newLoop(r.memory)
	return r, nil
}

// newLoop returns a loop over a dataplane that need not be the memory itself: tests put faults in between.
func (r *renderer) newLoop(d proxier.Dataplane) *proxier.Proxier {
	return proxier.New(proxier.Options{
		Settings: r.settings, Store: r.store, Dataplane: d, Flows: noFlows{}, Primary: r.primary, Observer: &r.problems,
		APIServers: objects.APIServers(r.settings), Log: slog.New(slog.DiscardHandler), // problems are printed without it
	})
}

func memoryOptions(s *config.Settings, o *renderOptions) dataplane.MemoryOptions {
	m := dataplane.MemoryOptions{
		Scheduling: dataplane.Scheduling{
			Backend: s.Backend, Default: s.IPVS.Scheduler, Preferred: s.DefaultScheduler, Unavailable: "this kernel has none",
		},
	}
	if s.Backend == config.BackendNFT {
		m.Scheduling.Unavailable = "--backend is nft"
	}
	if (o.assumeIPVS || ipvsctl.Loaded()) && s.Backend != config.BackendNFT {
		options := ipvs.Options(s)
		m.IPVS, m.Scheduling.Available = &options, ipvsctl.Schedulers()
	}
	return m
}

// primary returns the main addresses of the host.
func (r *renderer) primary() ([]netip.Addr, error) {
	if r.addresses == nil {
		return host.Primary()
	}
	var first []netip.Addr
	for _, is4 := range []bool{true, false} {
		if i := slices.IndexFunc(r.addresses, func(a netip.Addr) bool { return a.Is4() == is4 }); i >= 0 {
			first = append(first, r.addresses[i])
		}
	}
	return first, nil
}

// run prints the ruleset, and the changes to the folders that follow.
func (r *renderer) run(ctx context.Context, stdout, stderr io.Writer) error {
	folder := r.folder()
	if err := r.load(ctx, folder); err != nil {
		return err
	}
	if err := r.loop.Once(); err != nil {
		return err
	}
	if err := r.print(stdout, stderr, r.first()); err != nil {
		return err
	}
	for _, dir := range r.options.then {
		if err := folder.Load(dir); err != nil {
			return err
		}
		if err := r.loop.Once(); err != nil {
			return err
		}
		if err := r.print(stdout, stderr, "# then: "+dir+"\n"+r.memory.Changes()); err != nil {
			return err
		}
	}
	return nil
}

// folder is the folder of the settings.
func (r *renderer) folder() *manifests.Source {
	return manifests.New(manifests.Options{
		Dir: r.settings.Manifests, NodeName: r.settings.NodeName, Store: r.store, Log: slog.New(slog.DiscardHandler),
	})
}

// first returns what the first pass wrote.
func (r *renderer) first() string {
	changes := r.memory.Changes()
	if r.options.elements {
		return withoutProgram(changes)
	}
	return r.memory.String()
}

func (r *renderer) print(stdout, stderr io.Writer, text string) error {
	_, err := io.WriteString(stdout, text)
	_, problemsErr := io.WriteString(stderr, r.problems.take())
	return errors.Join(err, problemsErr)
}

// withoutProgram keeps elements and virtual servers. It leaves out the classes that every node has from the start. It
// keeps a class that comes with a Service, because the name of the class says how endpoints are picked.
func withoutProgram(changes string) string {
	always := emptyProgram()
	program := []string{"add table ", "add chain ", "add rule ", "add set ", "add map "}
	var out strings.Builder
	for line := range strings.Lines(changes) {
		partOf := func(prefix string) bool { return strings.HasPrefix(line, prefix) }
		if !always[line] && !slices.ContainsFunc(program, partOf) {
			out.WriteString(line)
		}
	}
	return out.String()
}

// emptyProgram returns the lines that make the tables of a node without Services.
var emptyProgram = sync.OnceValue(func() map[string]bool {
	empty := dataplane.OpenMemory(dataplane.MemoryOptions{})
	empty.Apply()
	lines := map[string]bool{}
	for line := range strings.Lines(empty.Changes()) {
		lines[line] = true
	}
	return lines
})

// load fills the store.
func (r *renderer) load(ctx context.Context, folder *manifests.Source) error {
	sources := []objects.Source{host.New(host.Options{Store: r.store, Log: r.log})}
	if r.settings.Manifests != "" {
		if err := folder.Load(r.settings.Manifests); err != nil {
			return err
		}
	} else {
		client, err := objects.NewClient(r.settings, thisBuild().version, r.store.AddServer)
		if err != nil {
			return err
		}
		sources = append(sources, objects.New(r.settings, client, r.store, objects.Reports{}, r.log))
	}
	if err := runOnce(ctx, r.store, sources...); err != nil {
		return err
	}
	if len(r.addresses) > 0 {
		r.store.SetHostAddresses(slices.SortedFunc(slices.Values(r.addresses), netip.Addr.Compare))
	}
	return nil
}

// runOnce runs sources until each has delivered its first list.
func runOnce(ctx context.Context, store *state.Store, sources ...objects.Source) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	for _, src := range sources {
		group.Go(func() error { return src.Run(ctx) })
	}
	err := objects.MarkSynced(ctx, store, sources...)
	stop()
	return cmp.Or(group.Wait(), err)
}

// noFlows leaves connection tracking alone.
type noFlows struct{}

func (noFlows) Clean(conntrack.Stale, []netip.Addr) ([]conntrack.Result, error) { return nil, nil }

// problemPrinter observes the loop and keeps the text of problems.
type problemPrinter struct {
	text    string
	current map[state.Object][]state.Problem
}

func (p *problemPrinter) take() string {
	text := p.text
	p.text = ""
	return text
}

// Problems prints all problems that there are now.
func (p *problemPrinter) Problems(r report.Problems) {
	if p.current == nil {
		p.current = map[state.Object][]state.Problem{}
	}
	for _, c := range r.Changed {
		p.current[c.Object] = c.Problems
	}
	var text strings.Builder
	for _, o := range slices.SortedFunc(maps.Keys(p.current), state.Object.Compare) {
		for _, problem := range p.current[o] {
			fmt.Fprintf(&text, "%s %s: %s: %s\n", problem.Kind, problem.Object, problem.Field, problem.Reason)
		}
	}
	p.text = text.String()
}

// Pending implements report.Observer.
func (p *problemPrinter) Pending(time.Time) {}

// Repaired implements report.Observer.
func (p *problemPrinter) Repaired(report.Repair) {}

// PassDone implements report.Observer.
func (p *problemPrinter) PassDone(report.Pass) {}

// FlowsCleaned implements report.Observer.
func (p *problemPrinter) FlowsCleaned([]conntrack.Result) {}
