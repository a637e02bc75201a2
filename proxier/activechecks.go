package proxier

import (
	"context"
	"fmt"
	"time"

	"github.com/verdict-proxy/verdict/proxier/activecheck"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// CheckReport tells what happened to endpoints that are checked.
type CheckReport struct {
	Notes          []activecheck.Note
	Total, Failing int // checks
	Passed, Failed int // answers since the last report
}

// checkPause is the least time between two looks at who is to be asked: the questions of this time are asked together.
const checkPause = 5 * time.Millisecond

// runChecks asks endpoints until the context ends.
func (o *Outliers) runChecks(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-o.sooner:
		}
		timer.Reset(o.askChecks(ctx))
	}
}

// askChecks asks whom it is time to ask, and returns when the next one is due.
func (o *Outliers) askChecks(ctx context.Context) time.Duration {
	o.mu.Lock()
	questions := o.checker.Due(time.Now())
	next := o.checker.Next()
	o.mu.Unlock()
	for _, q := range questions {
		go func() { o.checked(q, o.Check(ctx, q.Target, &q.Check)) }()
	}
	if next.IsZero() {
		return time.Hour // or sooner
	}
	return max(time.Until(next), checkPause)
}

func (o *Outliers) checked(q activecheck.Question, r activecheck.Result) {
	o.mu.Lock()
	o.checker.Answered(q, r, time.Now())
	if r.Good {
		o.report.Checks.Passed++
	} else {
		o.report.Checks.Failed++
	}
	wanted := o.checker.WantsPlans()
	o.mu.Unlock()
	if wanted {
		o.signal()
	}
	o.askSooner() // the check is due again, and runChecks may not know it
}

func (o *Outliers) askSooner() {
	select {
	case o.sooner <- struct{}{}:
	default:
	}
}

// setChecks tells the checker which endpoints of a Service there are.
func (o *Outliers) setChecks(name state.Name, d *ejectionDraft) []state.Problem {
	if len(d.targets) == 0 && !o.checker.Has(name) {
		return nil
	}
	left := o.checker.Set(name, d.check, d.targets, time.Now())
	o.askSooner()
	if left == 0 {
		return nil
	}
	return []state.Problem{{
		Kind: "Service", Object: name, Field: "metadata.annotations[verdict-proxy.github.io/health-check]",
		Reason: fmt.Sprintf("%d endpoints are not checked and count as good: this node makes no more checks, or no more of this namespace", left),
	}}
}
