package endpointhealth

import (
	"fmt"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// policy is what flags and annotations ask for.
type policy struct {
	settings  *config.Settings
	byDefault *state.HealthCheck // of Services that ask for no check; nil: no check
}

// detects reports whether anybody looks for endpoints that do not answer clients.
func (p policy) detects() bool { return p.settings.OutlierDetection != config.OutlierOff }

// watches reports whether the plan of a Service has to tell what becomes of its endpoints.
func (p policy) watches(svc *state.Service) bool { return p.ejects(svc) || p.checkOf(svc) != nil }

// ejects reports whether failed endpoints of a Service get no connections. Endpoints of the cluster's own Services are ejected
// only if the Service itself asks for it: DNS and the API server are what everything else needs.
func (p policy) ejects(svc *state.Service) bool {
	asked := svc.Outliers.Mode
	if asked == state.OutlierDefault && p.settings.OutlierDetection == config.OutlierEject && !needed(svc.Name) {
		asked = state.OutlierEject
	}
	return p.detects() && asked == state.OutlierEject
}

// checkOf returns the check of a Service; nil: none. Those of the cluster itself are checked only if they ask for it.
func (p policy) checkOf(svc *state.Service) *state.HealthCheck {
	check := svc.Check
	if check == nil && !needed(svc.Name) {
		check = p.byDefault
	}
	if check == nil || check.Kind == state.CheckOff || !p.settings.ActiveChecks {
		return nil
	}
	return check
}

// needed reports whether a Service belongs to the cluster itself.
func needed(name state.Name) bool {
	return name.Namespace == "kube-system" || name == kubernetesService()
}

func kubernetesService() state.Name { return state.Name{Namespace: "default", Name: "kubernetes"} }

// ignored is for a Service whose annotations have no effect, because a flag turns everything off.
func (p policy) ignored(svc *state.Service) (problems []state.Problem) {
	if mode := svc.Outliers.Mode; !p.detects() && (mode == state.OutlierObserve || mode == state.OutlierEject) {
		problems = append(problems, problem(svc.Name, "outlier-detection", "--outlier-detection=off on this node: the annotation has no effect"))
	}
	if svc.Check != nil && svc.Check.Kind != state.CheckOff && !p.settings.ActiveChecks {
		problems = append(problems, problem(svc.Name, "health-check", "--active-checks=false on this node: the annotation has no effect"))
	}
	return problems
}

func problem(name state.Name, annotation, reason string) state.Problem {
	return state.Problem{
		Kind: "Service", Object: name, Field: "metadata.annotations[verdict-proxy.github.io/" + annotation + "]", Reason: reason,
	}
}

// notAsked describes endpoints that are not checked, without what this node knows about their addresses: tenants read it.
func notAsked(name state.Name, excluded, left int) (problems []state.Problem) {
	add := func(n int, why string) {
		if n > 0 {
			problems = append(problems, problem(name, "health-check", fmt.Sprintf("%d endpoints are not checked and count as good: %s", n, why)))
		}
	}
	add(excluded, "this node does not ask their addresses")
	add(left, "this node makes no more checks, or no more of this Service or namespace")
	return problems
}

// Questions cost processor time of this node. What they may cost in a second is bounded for the node and for a namespace;
// what comes beyond that is late.
const (
	nodeRate   = 0.1  // of a processor
	tenantRate = 0.05 // of a processor
	// rateBurst is how long a rate may be saved up.
	rateBurst = time.Second
	// Questions that suspicions cause have a rate of their own for each namespace: neither do they make checks late, nor the
	// other way round. When a node dies, many are asked at once. All namespaces together have nodeRate for them.
	doubtRate  = 0.02
	doubtBurst = 10 * time.Second
)

const (
	// checks and all that follows from them are slowed down while the process uses more than mostUsed of a processor.
	mostUsed   = 0.08
	pricePause = time.Second
	// dearest bounds it, because the process has other work as well: passes of others must not end the checks.
	dearest = 8
)

// price is what questions are said to cost. How much they cost really differs between nodes, and with what their answers
// cause: a check that flaps has its Service planned again. So the price rises while the process uses much.
type price struct {
	cost   func(state.CheckKind) time.Duration
	used   func() time.Duration // processor time of this process; nil: nobody knows
	times  float64
	at     time.Time
	before time.Duration
}

func (p *price) of(k state.CheckKind) time.Duration {
	p.correct(time.Now())
	return time.Duration(float64(p.cost(k)) * p.times)
}

// correct looks at what the process used lately.
func (p *price) correct(now time.Time) {
	if p.used == nil || now.Sub(p.at) < pricePause {
		return
	}
	used := p.used()
	if share := float64(used-p.before) / float64(now.Sub(p.at)); !p.at.IsZero() {
		p.times = min(max(1, p.times*share/mostUsed), dearest)
	}
	p.at, p.before = now, used
}
