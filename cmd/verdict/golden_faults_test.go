package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/source"
)

var seed = flag.Uint64("seed", 0, "inject the faults of this seed into the commands of testdata/render; 0: those of several seeds")

// TestGoldenWithFaults runs each "verdict render" of the goldens again: as the daemon does it, with the real loop, its
// timers and its retries, while one of ten operations on the engines fails. In the end the kernels in memory must hold
// exactly what they hold without faults. The clock is synctest's, so that a minute takes no time.
func TestGoldenWithFaults(t *testing.T) {
	for _, topic := range topics(t) {
		t.Run(topic, func(t *testing.T) {
			testscript.RunT(scriptTest{t}, testscript.Params{
				Dir: filepath.Join(goldens, topic),
				Setup: func(env *testscript.Env) error {
					env.Values[scriptTest{}] = env.T().(scriptTest).T
					return nil
				},
				Cmds: map[string]func(*testscript.TestScript, bool, []string){"verdict": runWithFaults, "slice": writeSlice},
			})
		})
	}
}

// scriptTest hands the test of a script to its commands: synctest needs it.
type scriptTest struct{ *testing.T }

func (t scriptTest) Run(name string, run func(testscript.T)) {
	t.T.Run(name, func(t *testing.T) { run(scriptTest{t}) })
}

func (scriptTest) Verbose() bool { return testing.Verbose() }

// runWithFaults is the command verdict. It compares what the kernels hold after runs with and without faults.
func runWithFaults(ts *testscript.TestScript, neg bool, args []string) {
	runVerdict(ts, neg, args) // the script wants to see the output
	if neg || args[0] != "render" {
		return
	}
	t := ts.Value(scriptTest{}).(*testing.T)
	command := ts.Name() + strings.Join(args, " ")
	args = goldenArgs(args, ts.MkAbs)[1:]
	want, err := settled(t, args, &faults{})
	ts.Check(err)
	seeds := []uint64{1, 2, 3}
	if *seed != 0 {
		seeds = []uint64{*seed}
	}
	for _, seed := range seeds {
		f := newFaults(seed, command)
		got, err := settled(t, args, f)
		if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" || err != nil {
			ts.Fatalf("-seed=%d: %v\n%s\nthe kernels (- without, + with faults):\n%s", seed, err, strings.Join(f.injected, "\n"), diff)
		}
	}
}

// How long the loop works after each step. Within that time, all retries and drains come to an end. It takes longer with
// IPVS: the loop waits for a minute, then for two, before it offers IPVS a port again that the kernel refused.
const (
	settleTime     = 15 * time.Second
	settleTimeIPVS = 5 * time.Minute
)

// settled runs the loop over all steps of a command and returns what the kernels hold in the end.
func settled(t *testing.T, args []string, f *faults) (contents string, err error) {
	synctest.Test(t, func(t *testing.T) {
		cmd := newRenderFor(func(r *renderer, ctx context.Context, _, _ io.Writer) error {
			contents, err = r.settle(ctx, f)
			return err
		})
		cmd.SetArgs(args)
		err = cmd.ExecuteContext(t.Context())
	})
	return contents, err
}

func (r *renderer) settle(ctx context.Context, f *faults) (contents string, err error) {
	manifests := source.NewManifests(source.ManifestsOptions{
		Dir: r.settings.Manifests, NodeName: r.settings.NodeName, Store: r.store, Log: slog.New(slog.DiscardHandler),
	})
	ctx, stop := context.WithCancel(ctx)
	wait := settleTime
	if r.memory.Servers != nil {
		wait = settleTimeIPVS
	}
	ended := make(chan error)
	go func() { ended <- r.newLoop(r.faultyDataplane(f)).Run(ctx) }()
	r.store.SetHostAddresses(slices.SortedFunc(slices.Values(r.addresses), netip.Addr.Compare))
	for _, dir := range append([]string{r.settings.Manifests}, r.options.then...) {
		err = errors.Join(err, manifests.Load(dir))
		r.store.MarkSynced()
		time.Sleep(wait)
		if c, _ := r.store.Pending(); c.Environment || len(c.Services) > 0 {
			err = errors.Join(err, fmt.Errorf("after %s, changes are still pending: %+v", dir, c))
		}
	}
	stop()
	err = errors.Join(err, <-ended)
	found := withoutClasses(r.memory.String())
	err = errors.Join(err, r.rewrite())
	return found + r.memory.String(), err
}

// withoutClasses leaves out chains and the map that leads to those of classes. The engine keeps classes that no pool uses
// any more until it writes everything, and a pass that is repeated makes it write everything.
func withoutClasses(contents string) string {
	var out strings.Builder
	skip := false
	for line := range strings.Lines(contents) {
		skip = skip || strings.HasPrefix(line, "\tchain ") || line == "\tmap dispatch {\n"
		if !skip && line != "\n" {
			out.WriteString(line)
		}
		skip = skip && line != "\t}\n"
	}
	return out.String()
}

// rewrite has the nft engine write everything, without the classes that it keeps for later. A port that changes twice
// between two applies has that effect.
func (r *renderer) rewrite() error {
	port := &nft.Port{Family: nft.IPv4, Name: "the end"}
	err := errors.Join(r.memory.Ruleset.Set(port), r.memory.Ruleset.Set(port))
	r.memory.Ruleset.Delete(port.Family, port.Name)
	_, applyErr := r.memory.Ruleset.Apply()
	return errors.Join(err, applyErr)
}

// faultyDataplane returns a dataplane over the memory of the renderer, with faults in between.
func (r *renderer) faultyDataplane(f *faults) *dataplane.Dataplane {
	o := dataplane.Options{
		Ruleset:    &faultyRuleset{Ruleset: r.memory.Ruleset, faults: f},
		Scheduling: memoryOptions(r.settings, r.options).Scheduling,
	}
	if r.memory.Servers != nil {
		o.Balancer = &faultyBalancer{Balancer: r.memory.Servers, faults: f}
	}
	return dataplane.New(o)
}

// faults decides which operations fail.
type faults struct {
	rand     *rand.Rand
	share    float64
	injected []string
}

// newFaults returns faults that depend on the seed and on the command only.
func newFaults(seed uint64, command string) *faults {
	name := fnv.New64()
	io.WriteString(name, command)
	return &faults{rand: rand.New(rand.NewPCG(seed, name.Sum64())), share: 0.1}
}

// hit returns the error of an operation that is to fail.
func (f *faults) hit(operation string) error {
	if f.share == 0 || f.rand.Float64() >= f.share {
		return nil
	}
	f.injected = append(f.injected, time.Now().Format(time.TimeOnly)+" "+operation)
	return fmt.Errorf("injected: %s fails", operation)
}

// faultyRuleset is the nft engine with faults in front of it.
type faultyRuleset struct {
	dataplane.Ruleset
	*faults
}

// Apply fails in three ways: refused, in an unknown way although the kernel has it, and in an unknown way without effect.
func (r *faultyRuleset) Apply() (nft.Result, error) {
	if err := r.hit("apply"); err != nil {
		done := nft.Result{Outcome: nft.Unknown}
		switch r.rand.IntN(3) {
		case 0:
			done.Outcome = nft.Rejected
		case 1:
			if done, applyErr := r.Ruleset.Apply(); applyErr != nil {
				return done, applyErr
			}
		}
		return done, err
	}
	return r.Ruleset.Apply()
}

func (r *faultyRuleset) Guard(addrs []netip.Addr) (bool, error) {
	if err := r.hit("guard"); err != nil {
		return false, err
	}
	return r.Ruleset.Guard(addrs)
}

func (r *faultyRuleset) Intact() (bool, error) {
	if err := r.hit("compare tables"); err != nil {
		return false, err
	}
	return r.Ruleset.Intact()
}

// faultyBalancer is the IPVS engine with faults in front of it. When Obstacle or Add fails, nft serves the port, and IPVS
// gets it back later.
type faultyBalancer struct {
	dataplane.Balancer
	*faults
	set      []string // the names that were Set since the last Add
	refusals int      // Adds in a row that failed
	owed     bool     // a Remove failed: as in the real engine, the next Tick repeats it
}

func (b *faultyBalancer) Obstacle(servers []ipvsctl.VirtualServer) error {
	if err := b.hit("look for obstacles"); err != nil {
		return err
	}
	return b.Balancer.Obstacle(servers)
}

func (b *faultyBalancer) Set(name string, servers []ipvsctl.VirtualServer) error {
	b.set = append(b.set, name)
	return b.Balancer.Set(name, servers)
}

// Add fails for all ports that were Set. It fails at most twice in a row, because the loop waits longer after each time.
func (b *faultyBalancer) Add(now time.Time) (ipvsctl.Result, error) {
	names := b.set
	b.set = nil
	if len(names) > 0 && b.refusals < 2 {
		if err := b.hit("add"); err != nil {
			b.refusals++
			return failed(err, names...), err
		}
	}
	b.refusals = 0
	return b.Balancer.Add(now)
}

func (b *faultyBalancer) Remove(now time.Time) (ipvsctl.Result, error) {
	if err := b.hit("remove"); err != nil {
		b.owed = true
		return failed(err, ""), err
	}
	b.owed = false
	return b.Balancer.Remove(now)
}

func (b *faultyBalancer) Tick(now time.Time) (ipvsctl.Result, error) {
	if err := b.hit("tick"); err != nil {
		return failed(err, ""), err
	}
	if b.owed {
		return b.Remove(now)
	}
	return b.Balancer.Tick(now)
}

func (b *faultyBalancer) Intact() (bool, error) {
	if err := b.hit("compare virtual servers"); err != nil {
		return false, err
	}
	return b.Balancer.Intact()
}

// failed is the result of an operation that failed for some service ports.
func failed(err error, names ...string) (r ipvsctl.Result) {
	for _, name := range names {
		r.Failures = append(r.Failures, ipvsctl.Failure{Name: name, Err: err})
	}
	return r
}
