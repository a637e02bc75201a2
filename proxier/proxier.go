package proxier

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier/claims"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Ruleset is what the loop needs of the nft engine.
type Ruleset interface {
	Set(*nft.Port) error // keeps none of the port's lists of endpoints
	Delete(nft.Family, string)
	SetGlobals(nft.Globals)
	Apply() (nft.Result, error)
	Intact() (bool, error)
	Guard([]netip.Addr) (bool, error)
	Unguard([]netip.Addr)
}

// Observer hears what the loop does. Its methods are called by the loop and must not block.
type Observer interface {
	// Pending says that changes wait since a time; the zero time: none do.
	Pending(since time.Time)
	PassDone(PassReport)
	Problems([]state.Problem)
	FlowsCleaned([]conntrack.Result)
}

// PassReport tells what one pass did.
type PassReport struct {
	Started  time.Time
	Duration time.Duration
	Result   nft.Result
	Err      error
	Services int // planned in this pass
	// Operations on virtual servers.
	Operations int
	// Totals of what is in the kernel after the pass, by engine.
	NFT, IPVS Totals
	// Triggers are the times at which the endpoint controller noted the changes that the pass brought into the kernel.
	Triggers []Trigger
	// HealthChecks are the healthCheckNodePort servers wanted from now on; nil: as before.
	HealthChecks *HealthChecks
	// NodeEligible is false while the Node is being deleted or tainted for deletion.
	NodeEligible bool
}

// Trigger is the time of an endpoint change.
type Trigger struct {
	Family state.Family
	At     time.Time
}

// HealthChecks say which healthCheckNodePort servers answer what, and on which addresses.
type HealthChecks struct {
	Services  map[state.Name]plan.HealthCheck
	Addresses []netip.Addr
}

// Options configure the loop.
type Options struct {
	Settings *config.Settings
	Store    *state.Store
	Ruleset  Ruleset
	// Balancer is the IPVS engine; nil when it is not used. It serves what Scheduling says.
	Balancer   Balancer
	Scheduling Scheduling
	Flows      Flows
	// Former are frontends of an earlier process that have UDP flows.
	Former []conntrack.Frontend
	// Primary gives the host's own main addresses; asked when there is no Node object.
	Primary func() ([]netip.Addr, error)
	// NoIPv6 says that the kernel has no IPv6.
	NoIPv6   bool
	Observer Observer
	Log      *slog.Logger
}

// Proxier is the loop.
type Proxier struct {
	Options
	planner    plan.Planner
	translator translator
	claims     *claims.Claims
	env        environment
	hasEnv     bool
	services   map[state.Name]*served
	totals     [2]Totals // by engine: nft, IPVS
	ipvs       *ipvs     // nil when it is not used
	flows      *conntrack.Tracker
	cleaning   bool         // a goroutine is removing stale flows
	cleaned    chan cleaned // holds its result; room for one, so that it never waits
	flowRetry  time.Duration
	problems   problemLog

	healthChecks  map[state.Name]plan.HealthCheck
	healthChanged bool

	triggers  []Trigger // of changes that are not in the kernel yet
	waiting   time.Time // since when changes wait
	failures  int       // passes in a row that did not apply
	lastError string    // of those passes; logged once a minute
	lastSaid  time.Time // when it was logged
	lastPass  time.Time // when the latest pass began
	lastEnd   time.Time // when it ended
	started   time.Time
	eligible  bool // of the node, for traffic
	askAgain  bool // for the host's main addresses
}

// New makes a loop that has done nothing yet.
func New(o Options) *Proxier {
	p := &Proxier{
		Options:  o,
		ipvs:     newIPVS(o.Balancer),
		claims:   claims.New(),
		flows:    conntrack.NewTracker(o.Former...),
		cleaned:  make(chan cleaned, 1),
		services: map[state.Name]*served{},
		started:  time.Now(),
		problems: newProblemLog(o.Log),

		healthChecks: map[state.Name]plan.HealthCheck{},
	}
	return p
}

// How long the loop waits before it tries again after a pass that did not apply, doubling up to the maximum.
const (
	firstRetry = 100 * time.Millisecond
	maxRetry   = 10 * time.Second
)

// checkPeriod is how often the loop looks whether the tables are still as it left them.
const checkPeriod = 5 * time.Second

// Run works until the context ends. The kernel keeps what it has.
func (p *Proxier) Run(ctx context.Context) error {
	check := time.NewTicker(checkPeriod)
	defer check.Stop()
	tick := time.NewTicker(tickPeriod)
	defer tick.Stop()
	var cleanAgain <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.Store.Wake():
			p.noteWaiting()
		case <-p.retry():
		case <-check.C:
			p.checkTables()
			continue
		case <-tick.C:
			p.tick()
			continue
		case c := <-p.cleaned:
			cleanAgain = p.flowsCleaned(c)
			continue
		case <-cleanAgain:
			cleanAgain = nil
			p.cleanFlows()
			continue
		}
		if !p.gather(ctx) {
			return nil
		}
		_ = p.pass() // logged, and tried again
	}
}

// Once does a single pass, for callers that only want to see what it would do.
func (p *Proxier) Once() error { return p.pass() }

func (p *Proxier) noteWaiting() {
	if p.waiting.IsZero() {
		p.waiting = time.Now()
		p.Observer.Pending(p.waiting)
	}
}

// retry fires when a failed pass is to be tried again; never when the last one applied.
func (p *Proxier) retry() <-chan time.Time {
	if p.failures == 0 {
		return nil
	}
	return time.After(p.rest())
}

// rest is how long the next pass has to wait. After one that failed changes wait as well: the next one may have to write
// everything, and must not do so for each change while the kernel refuses it.
func (p *Proxier) rest() time.Duration {
	if p.failures > 0 {
		return time.Until(p.lastEnd.Add(min(firstRetry<<min(p.failures-1, 10), maxRetry)))
	}
	return p.Settings.MinSyncPeriod - time.Since(p.lastPass)
}

// gather waits for the rest of --min-sync-period since the last pass began: a change that meets an idle proxy is
// applied at once, changes in a stream are taken together.
func (p *Proxier) gather(ctx context.Context) bool {
	rest := p.rest()
	if rest <= 0 {
		return true
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(rest):
		return true
	}
}

// checkTables notices when someone else removed our tables (a "flush ruleset" of the host's firewall, say) and has
// them written again.
func (p *Proxier) checkTables() {
	if !p.hasEnv || p.failures > 0 {
		return
	}
	if p.askAgain {
		_ = p.pass() // logged, and tried again
	}
	intact, err := p.Ruleset.Intact()
	if same, ipvsErr := p.ipvs.intact(); !same && ipvsErr == nil {
		p.Log.Warn("virtual servers were changed by someone else; making them anew")
		_ = p.pass() // logged, and tried again
	} else if err == nil {
		err = ipvsErr
	}
	switch {
	case err != nil:
		p.Log.Warn("cannot look at what is in the kernel; trying again", "every", checkPeriod, "error", err)
	case !intact:
		p.Log.Warn("tables were changed by someone else; writing them again", "tables", "ip verdict, ip6 verdict")
		_ = p.pass() // logged, and tried again
	}
}
