package planning

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/report"
	"github.com/verdict-proxy/verdict/proxier/state"
	"github.com/verdict-proxy/verdict/proxier/threadtime"
)

// The kernel takes one transaction at a time. One that changes a Service with tens of thousands of elements takes it 50 ms, and
// changes of all other Services wait. So each namespace has an account of the processor time that its changes cost. While others
// wait, it misses turns until they have had as much. So that they do not wait all the time, large changes have a share of a processor.
// When a namespace has used it up, all its changes wait until the share allows the next one. What changed several times meanwhile
// is written once.

// perChange is how much time a change of the kernel counts at least, and what --max-namespace-changes is multiplied by: a change
// of 192,000 elements occupies the loop for 1.1 s. A fast processor is no reason for more changes, because other programs that
// listen to nf_tables read each of them.
const perChange = 5 * time.Microsecond

// large is from which time on what a pass does for a namespace counts for its share. Others notice that they wait.
const large = 1000 * perChange

// Cost is processor time that a namespace or the change of a Service took, also at others that gain or lose a frontend by it.
type Cost struct {
	Planning time.Duration // to plan, and to hand the plans on, whether or not they change anything
	Kernel   time.Duration // its part of the transactions: to encode them, and in the kernel
	Beside   time.Duration // the loop: cleanings of flows, and questions to endpoints
	Changes  int           // of elements and virtual servers
}

func (c *Cost) add(more Cost) {
	c.Planning += more.Planning
	c.Kernel += more.Kernel
	c.Beside += more.Beside
	c.Changes += more.Changes
}

func (c *Cost) time() time.Duration { return c.Planning + c.Kernel + c.Beside }

// bill is what a cost counts for the share of its namespace.
func (c *Cost) bill() time.Duration { return max(c.time(), time.Duration(c.Changes)*perChange) }

// Accounts have what namespaces cost, and decide when one has to wait. Any goroutine may call the exported methods.
type Accounts struct {
	log    *slog.Logger
	store  *state.Store
	rate   int           // --max-namespace-changes
	share  float64       // of a processor that large changes of a namespace may use
	burst  time.Duration // and at once
	said   report.Lately // the namespaces whose pauses were logged
	mu     sync.Mutex    // guards what follows
	of     map[string]*account
	prices prices
	payers map[state.Name]state.Name // of Services that wait: whose change asked for it
}

// account is that of a namespace.
type account struct {
	Cost      // since the start
	namespace string
	said      Cost              // until its latest line in the log
	debt      threadtime.Bucket // of its share
	until     time.Time         // the end of its latest pause
	// Of the pass that is charged, and of those before while its Services waited: what it cost, and the Service that cost most.
	now, most Cost
	service   string
}

const (
	// sayPause is how often the pauses of one namespace are logged.
	sayPause = 10 * time.Minute
	// There are maxAccounts, unless more namespaces have used much or owe something.
	maxAccounts = 4096
	much        = 100 * time.Millisecond
	// dearest is how many namespaces have a series.
	dearest = 10
)

// NewAccounts returns Accounts of which nothing was used.
func NewAccounts(store *state.Store, b *config.Budgets, log *slog.Logger) *Accounts {
	return &Accounts{
		log: log, store: store, rate: b.NamespaceChanges, share: float64(b.NamespaceChanges) * perChange.Seconds(),
		burst: time.Duration(b.NamespaceElements) * perChange, said: report.Lately{}, of: map[string]*account{}, prices: usual(),
		payers: map[state.Name]state.Name{},
	}
}

// Charge takes what a pass that made a draft cost from the accounts of the namespaces, and what those before cost of which Services have
// stopped waiting. The result took some time of the thread.
// Charge returns how many namespaces have to wait from now on. What no change of a Service asked for costs nobody anything.
func (a *Accounts) Charge(d *Draft, r *dataplane.Result, waiting *dataplane.Waiting, took time.Duration, now time.Time) (pauses int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.findPayers(d, r.Changed, waiting)
	a.prices.apportion(d, r.Changed, &r.Counts, took)
	for name, cost := range d.Costs {
		of := a.account(name.Namespace, now)
		of.now.add(cost)
		if order := cmp.Compare(cost.bill(), of.most.bill()); of.service == "" || order > 0 || order == 0 && name.Name < of.service {
			of.service, of.most = name.Name, cost
		}
	}
	for name := range d.Costs {
		pauses += a.settle(a.of[name.Namespace], waiting, now)
	}
	for _, name := range r.Ended {
		if !waiting.Has(name) {
			delete(a.payers, name)
		}
		if of := a.of[name.Namespace]; of != nil {
			pauses += a.settle(of, waiting, now)
		}
	}
	return pauses
}

// findPayers has a draft know who pays for what earlier passes have left, and remembers who pays for what this one leaves: the Services
// whose changes asked for those that wait.
func (a *Accounts) findPayers(d *Draft, changed map[state.Name]serviceport.Counts, waiting *dataplane.Waiting) {
	for name := range changed {
		_, again := d.Plans[name]
		if payer, left := a.payers[name]; left && !again {
			d.Cause[name] = payer
			d.pay(payer, Cost{})
		}
	}
	for name := range d.Plans {
		if payer := d.payer(name); waiting.Has(name) && d.asked(payer) {
			a.payers[name] = payer
		} else {
			delete(a.payers, name)
		}
	}
}

// settle has a namespace miss turns, or wait, for what passes cost, unless more pieces of the same change come, which count with it. It
// returns 1 if the namespace has to wait from now on.
func (a *Accounts) settle(of *account, waiting *dataplane.Waiting, now time.Time) int {
	bill := of.now.bill()
	if waiting.In(of.namespace) && bill < large {
		return 0
	}
	defer func() { of.now, of.most, of.service = Cost{}, Cost{}, "" }()
	if of.add(of.now); of.namespace == state.SystemNamespace {
		return 0
	}
	if took := of.now.time(); took > state.Turn {
		a.store.Charge(of.namespace, took)
	}
	if bill < large {
		return 0
	}
	of.debt.Refill(a.share, now)
	of.debt.Used += bill
	rest := of.debt.Rest(a.share, a.burst, now)
	if rest == 0 || now.Before(of.until) {
		return 0
	}
	of.until = now.Add(rest)
	a.store.Hold(of.namespace, rest)
	if a.said.Due(of.namespace, sayPause, now) {
		a.say(of, rest)
	}
	return 1
}

func (a *Accounts) say(of *account, rest time.Duration) {
	ms := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	a.log.Warn("a namespace changes too much; its changes wait, and those of all others go on",
		"namespace", of.namespace, "service", of.service, "changes", of.now.Changes, "took", ms(of.now.time()),
		"planning", ms(of.Planning-of.said.Planning), "kernel", ms(of.Kernel-of.said.Kernel), "beside", ms(of.Beside-of.said.Beside),
		"limit", a.rate, "flag", "--max-namespace-changes", "wait", ms(rest), "next", "the latest state of its Services is applied then")
	of.said = of.Cost
}

// Beside notes what a namespace used beside the loop. Changes do not wait for that, and it has limits of its own.
func (a *Accounts) Beside(namespace string, took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.account(namespace, time.Now()).Beside += took
}

// account returns the account of a namespace. If there are too many, it forgets those that hardly matter.
func (a *Accounts) account(namespace string, now time.Time) *account {
	of := a.of[namespace]
	if of == nil {
		if len(a.of) >= maxAccounts {
			maps.DeleteFunc(a.of, func(_ string, of *account) bool {
				of.debt.Refill(a.share, now)
				return of.debt.Used == 0 && of.service == "" && of.time() < much
			})
		}
		of = &account{namespace: namespace}
		a.of[namespace] = of
	}
	return of
}

// Seconds returns what the namespaces have used that have used most.
func (a *Accounts) Seconds() map[string]float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	order := func(x, y string) int { return cmp.Compare(a.of[y].time(), a.of[x].time()) }
	names, seconds := slices.SortedFunc(maps.Keys(a.of), order), map[string]float64{}
	for _, namespace := range names[:min(len(names), dearest)] {
		seconds[namespace] = a.of[namespace].time().Seconds()
	}
	return seconds
}
