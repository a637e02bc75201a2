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
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/verdict-proxy/verdict/cmd/verdict/dryrun"
	"github.com/verdict-proxy/verdict/cmd/verdict/ipvs"
	"github.com/verdict-proxy/verdict/e2e/memkernel"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/source/manifests"
)

var seed = flag.Uint64("seed", 0, "inject only the faults of this seed into the commands of testdata/render")

// TestGoldenWithFaults runs each "verdict render" of the goldens again as the daemon would: with the real loop, its
// timers and its retries, while one of ten operations on the engines fails. In the end, the kernels in memory must hold
// exactly what they hold without faults: the same elements with the same numbers, and the same virtual servers. The
// clock is that of synctest, so a minute takes no time.
func TestGoldenWithFaults(t *testing.T) {
	for _, topic := range topics(t) {
		t.Run(topic, func(t *testing.T) {
			testscript.RunT(scriptTest{t}, testscript.Params{
				Dir: filepath.Join(goldens, topic),
				Setup: func(env *testscript.Env) error {
					env.Values[scriptTest{}] = env.T().(scriptTest).T
					return nil
				},
				Cmds: map[string]scriptCommand{"verdict": runWithFaults, "slice": writeSlice},
			})
		})
	}
}

// scriptTest hands the test of a script to its commands: synctest needs it.
type scriptTest struct{ *testing.T }

func (t scriptTest) Run(name string, run func(testscript.T)) {
	t.T.Run(name, func(t *testing.T) { run(scriptTest{t}) })
}

// Verbose is false: a script that passes prints nothing. Their output would be 100 MB of events.
func (scriptTest) Verbose() bool { return false }

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
	switch {
	case *seed != 0:
		seeds = []uint64{*seed}
	case testing.Short():
		seeds = seeds[:1]
	}
	for _, seed := range seeds {
		f := newFaults(seed, command)
		got, err := settled(t, args, f)
		if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" || err != nil {
			ts.Fatalf("-seed=%d: error %v; faults:\n%s\nthe kernels (- without, + with faults):\n%s",
				seed, err, strings.Join(f.injected, "\n"), diff)
		}
	}
}

// How long the loop works after each step. Within settleTime, retries of passes and drains come to an end. IPVS gets a
// port back later: obstacles are looked at every 10 seconds, and what the kernel refused is offered to it again after one
// minute, then after two.
const (
	settleTime    = 10 * time.Second
	afterObstacle = 20 * time.Second
	afterRefusal  = 140 * time.Second
)

// settled runs the loop over all steps of a command and returns what the kernels hold in the end.
func settled(t *testing.T, args []string, f *faults) (contents string, err error) {
	synctest.Test(t, func(t *testing.T) {
		cmd := newRenderFor(func(r *dryrun.Renderer, ctx context.Context, _, _ io.Writer) error {
			contents, err = settle(ctx, r, f)
			return err
		})
		cmd.SetArgs(args)
		err = cmd.ExecuteContext(t.Context())
	})
	return contents, err
}

func settle(ctx context.Context, r *dryrun.Renderer, f *faults) (contents string, err error) {
	manifests := manifests.New(manifests.Options{
		Dir: r.Settings.Manifests, NodeName: r.Settings.NodeName, Store: r.Store, Log: slog.New(slog.DiscardHandler),
	})
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error)
	tables, servers := &memkernel.NFTables{}, memkernel.NewIPVS()
	plane, err := faultyDataplane(r, f, tables, servers)
	go func() { ended <- r.NewLoop(plane).Run(ctx) }()
	r.Store.SetHostAddresses(slices.SortedFunc(slices.Values(r.Addresses), netip.Addr.Compare))
	for _, dir := range append([]string{r.Settings.Manifests}, r.Options.Then...) {
		err = errors.Join(err, manifests.Load(dir))
		r.Store.MarkSynced()
		for sleep(settleTime); f.lasting(); {
			sleep(settleTime)
		}
		if c, _ := r.Store.Pending(); c.Environment || len(c.Services) > 0 {
			err = errors.Join(err, fmt.Errorf("after %s, changes are still pending: %+v", dir, c))
		}
	}
	stop()
	err = errors.Join(err, <-ended)
	return withoutSpares(stampElement.ReplaceAllString(tables.String(), "")) + servers.String(), err
}

// sleep returns when the loop waits again, so that what it wrote may be read.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// stampElement is in each table. It counts transactions, and a repeated pass makes one more.
var stampElement = regexp.MustCompile(`0x[0-9a-f]{8} \. 0x[0-9a-f]{8} comment`)

// The numbers of classes in a listing, without the last digit, which is 0 in tables as small as these.
var (
	classOfPool = regexp.MustCompile(`" : ([0-9a-f]+)0:`)
	classChain  = regexp.MustCompile(`([0-9a-f]+)0:0 : goto ([a-z0-9-]+)`)
)

// withoutSpares leaves out the classes that no pool uses, and their chains. Which of them are there depends on what was
// before: the engine keeps some for later, and drops most of those when it writes everything, as it does when a pass is
// repeated.
func withoutSpares(contents string) string {
	var out strings.Builder
	used, spare := map[string]bool{}, map[string]bool{}
	for block := range strings.SplitAfterSeq(contents, "\n\n") {
		header, _, _ := strings.Cut(strings.TrimSpace(block), " {")
		switch header {
		case "map pools":
			used = map[string]bool{}
			for _, m := range classOfPool.FindAllStringSubmatch(block, -1) {
				used[m[1]] = true
			}
		case "map dispatch":
			block, spare = spareClasses(block, used)
		}
		if !spare[header] {
			out.WriteString(block)
		}
	}
	return out.String()
}

// spareClasses splits the map of classes: those in use as text, and the chains of the others.
func spareClasses(dispatch string, used map[string]bool) (text string, spare map[string]bool) {
	spare = map[string]bool{}
	tokens := map[string]bool{}
	for _, m := range classChain.FindAllStringSubmatch(dispatch, -1) {
		draw, _, sticky := strings.Cut(m[2], "-sticky")
		if token := "chain token-" + draw; sticky {
			tokens[token] = tokens[token] || used[m[1]]
		}
		if used[m[1]] {
			text += m[0] + "\n"
		} else {
			spare["chain "+m[2]] = true
		}
	}
	for token, used := range tokens {
		spare[token] = !used
	}
	return text, spare
}

// faultyDataplane returns a dataplane over kernels in memory, with faults in between.
func faultyDataplane(r *dryrun.Renderer, f *faults, tables *memkernel.NFTables, servers *memkernel.IPVS) (*dataplane.Dataplane, error) {
	rules, err := nft.New(tables, nft.Options{Instance: 1})
	o := dataplane.Options{Ruleset: &faultyRuleset{Ruleset: rules, faults: f}, Scheduling: r.Scheduling()}
	if o.Scheduling.Available != nil {
		balancer, ipvsErr := ipvsctl.New(ipvs.Options(r.Settings), servers)
		err = errors.Join(err, ipvsErr)
		o.Balancer = &faultyBalancer{Balancer: balancer, faults: f}
	}
	return dataplane.New(o), err
}

// faults decides which operations fail.
type faults struct {
	rand     *rand.Rand
	share    float64
	injected []string

	mu    sync.Mutex
	until time.Time // the loop may need as long for what failed
}

func (f *faults) lasts(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if until := time.Now().Add(d); until.After(f.until) {
		f.until = until
	}
}

// lasting reports whether the loop may still be busy with what failed.
func (f *faults) lasting() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Now().Before(f.until)
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

// Apply fails in three ways: the kernel refuses the transaction, or the outcome is unknown although the kernel took it, or
// the outcome is unknown and the kernel did not take it.
func (r *faultyRuleset) Apply() (nft.Result, error) {
	if err := r.hit("apply"); err != nil {
		done := nft.Result{Outcome: kernel.Unknown}
		switch r.rand.IntN(3) {
		case 0:
			done.Outcome = kernel.Rejected
		case 1:
			applied, applyErr := r.Ruleset.Apply()
			if applyErr != nil {
				return applied, applyErr
			}
			done.Room = applied.Room // the engine would name the ports after its next Apply
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

func (r *faultyRuleset) FindInterference() (kernel.Interference, error) {
	if err := r.hit("compare tables"); err != nil {
		return kernel.Interference{}, err
	}
	return r.Ruleset.FindInterference()
}

// faultyBalancer is the IPVS engine with faults in front of it. When Obstacle or Add fails, nft serves the port, and
// later IPVS gets it back.
type faultyBalancer struct {
	dataplane.Balancer
	*faults
	set      []string // the names that were Set since the last Add
	refusals int      // Adds in a row that failed
	owed     bool     // a Remove failed: as in the real engine, the next Tick repeats it
}

func (b *faultyBalancer) Obstacle(servers []ipvsctl.VirtualServer) error {
	if err := b.hit("look for obstacles"); err != nil {
		b.lasts(afterObstacle)
		return err
	}
	return b.Balancer.Obstacle(servers)
}

func (b *faultyBalancer) Set(name string, servers []ipvsctl.VirtualServer) error {
	b.set = append(b.set, name)
	return b.Balancer.Set(name, servers)
}

// Add fails for all ports that were Set. It fails at most twice in a row, because the loop waits longer each time.
func (b *faultyBalancer) Add(now time.Time) (ipvsctl.Result, error) {
	names := b.set
	b.set = nil
	if len(names) == 0 {
		return b.Balancer.Add(now)
	}
	if b.refusals < 2 {
		if err := b.hit("add"); err != nil {
			b.refusals++
			b.lasts(afterRefusal)
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

func (b *faultyBalancer) Intact(repair bool) (bool, error) {
	if err := b.hit("compare virtual servers"); err != nil {
		return false, err
	}
	return b.Balancer.Intact(repair)
}

// failed is the result of an operation that failed for some service ports.
func failed(err error, names ...string) (r ipvsctl.Result) {
	for _, name := range names {
		r.Failures = append(r.Failures, ipvsctl.Failure{Name: name, Err: err})
	}
	return r
}
