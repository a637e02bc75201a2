package proxier

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/e2e/memkernel"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/report"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// faulty is the nft engine over a kernel in memory, with faults in between.
type faulty struct {
	*nft.Engine
	kernel  *memkernel.NFTables
	mu      sync.Mutex
	fail    int           // applies to refuse
	blame   string        // a port that the next apply is refused for
	takes   time.Duration // how long an apply takes
	limit   string        // a port that is over a limit
	missing bool          // someone else removed the tables
	applies int
	repairs int
	sets    map[string]int // calls of Set by port
}

func newFaulty(piece int) *faulty {
	k := &memkernel.NFTables{}
	e, err := nft.New(k, nft.Options{Instance: 1, Piece: piece}) // equal histories print as equal texts
	if err != nil {
		panic(err) // this kernel refuses no reading
	}
	return &faulty{Engine: e, kernel: k, sets: map[string]int{}}
}

func (f *faulty) Set(p *contents.Port) error {
	if p.Name == f.limit {
		return errors.New("too many endpoints")
	}
	f.sets[p.Name]++
	return f.Engine.Set(p)
}

func (f *faulty) FindInterference() (kernel.Interference, error) {
	i, err := f.Engine.FindInterference()
	i.Structure = i.Structure || f.missing
	return i, err
}

func (f *faulty) Apply() (nft.Result, error) {
	time.Sleep(f.takes)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.applies++
	if name := f.blame; name != "" {
		f.blame = ""
		return nft.Result{Outcome: kernel.Rejected}, &nft.RefusedError{Port: contents.PortID{Family: program.IPv4, Name: name}, Err: errors.New("injected")}
	}
	if f.fail > 0 {
		f.fail--
		return nft.Result{Outcome: kernel.Rejected}, errors.New("injected: the kernel refuses")
	}
	return f.Engine.Apply()
}

func (f *faulty) Repair(i kernel.Interference) (nft.Result, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.repairs++
	return f.Engine.Repair(i)
}

// frontends lists the addresses of each service port in the kernel, sorted.
func (f *faulty) frontends(t *testing.T) map[string][]string {
	t.Helper()
	listing, err := f.kernel.List(nil)
	if errors.Is(err, kernel.ErrNoTables) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, fe := range listing.Frontends {
		out[fe.Name] = append(out[fe.Name], fe.Addr.String())
	}
	return out
}

// endpoints lists the endpoints of a service port in the kernel.
func (f *faulty) endpoints(t *testing.T, port string) (out []string) {
	t.Helper()
	listing, err := f.kernel.List(func(name string) bool { return name == port })
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range listing.Frontends[0].Cluster {
		out = append(out, e.Addr.String())
	}
	return out
}

// flowCounter counts what is asked of connection tracking.
type flowCounter struct {
	mu     sync.Mutex
	fail   int
	cleans int
	stale  []conntrack.Stale
}

func (f *flowCounter) Clean(s conntrack.Stale, _ []netip.Addr) ([]conntrack.Result, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cleans++
	f.stale = append(f.stale, s)
	if f.fail > 0 {
		f.fail--
		return nil, errors.New("injected: no buffer space")
	}
	return nil, nil
}

// watcher is an observer that remembers what it was told.
type watcher struct {
	passes   []report.Pass
	problems []state.Problem // all that there are now
	reports  []report.Problems
	pending  []time.Time
	repairs  []report.Repair
	asWanted int
}

func (w *watcher) Pending(since time.Time)         { w.pending = append(w.pending, since) }
func (w *watcher) PassDone(r report.Pass)          { w.passes = append(w.passes, r) }
func (w *watcher) Repaired(r report.Repair)        { w.repairs = append(w.repairs, r) }
func (w *watcher) FlowsCleaned([]conntrack.Result) {}
func (w *watcher) AsWanted(time.Time)              { w.asWanted++ }

func (w *watcher) Problems(r report.Problems) {
	w.reports = append(w.reports, r)
	for _, c := range r.Changed {
		o := c.Object
		w.problems = slices.DeleteFunc(w.problems, func(p state.Problem) bool { return p.Kind == o.Kind && p.Object == o.Name })
		w.problems = append(w.problems, c.Problems...)
	}
}

// world is a loop with everything around it.
type world struct {
	*Proxier
	settings *config.Settings
	store    *state.Store
	rules    *faulty
	watcher  *watcher
	flows    *flowCounter
	log      *strings.Builder
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldWith(func(*Options) {})
}

func newWorldWith(change func(*Options)) *world { return newWorldInPieces(0, change) }

// newWorldInPieces has so many changes in a transaction.
func newWorldInPieces(piece int, change func(*Options)) *world {
	settings := config.Default()
	settings.NodeName = "n1"
	settings.MinSyncPeriod = 0
	w := &world{store: state.NewStore(), rules: newFaulty(piece), watcher: &watcher{}, log: &strings.Builder{}}
	w.flows = &flowCounter{}
	options := Options{
		Settings: &settings, Store: w.store, Flows: w.flows, Observer: w.watcher,
		Dataplane: dataplane.New(dataplane.Options{Ruleset: w.rules}),
		Primary:   func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("192.168.7.1")}, nil },
		Log:       slog.New(slog.NewTextHandler(w.log, nil)),
	}
	change(&options)
	w.settings, w.Proxier = options.Settings, New(options)
	return w
}

func service(name, clusterIP string, created int64, external ...string) *state.Service {
	svc := &state.Service{
		Name: state.Name{Namespace: "default", Name: name}, Created: time.Unix(created, 0),
		ClusterIPs: []netip.Addr{netip.MustParseAddr(clusterIP)},
		Ports:      []state.ServicePort{{Name: "http", Protocol: state.TCP, Port: 80}},
	}
	for _, ip := range external {
		svc.ExternalIPs = append(svc.ExternalIPs, netip.MustParseAddr(ip))
	}
	return svc
}

func slice(service string, addrs ...string) *state.Slice {
	sl := &state.Slice{
		Name:    state.Name{Namespace: "default", Name: service + "-1"},
		Service: state.Name{Namespace: "default", Name: service}, Family: state.IPv4, Weight: state.DefaultWeight,
		Ports: []state.SlicePort{{Name: "http", Protocol: state.TCP, Port: 8080}},
	}
	for _, a := range addrs {
		sl.Endpoints = append(sl.Endpoints, state.Endpoint{Addr: netip.MustParseAddr(a), Ready: true, Serving: true})
	}
	return sl
}

func (w *world) pendingServices() int {
	c, _ := w.store.Pending()
	return len(c.Services)
}
