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
	Passed         int // answers since the last report
	Failed         map[activecheck.Failure]int
}

// checkPause is the least time between two looks at who is to be asked: the questions of this time are asked together.
const checkPause = 50 * time.Millisecond

// runChecks asks endpoints until the context ends.
func (o *Outliers) runChecks(ctx context.Context) {
	work := make(chan activecheck.Question)
	defer close(work)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-o.sooner:
		}
		timer.Reset(o.askChecks(ctx, work))
	}
}

// askChecks asks whom it is time to ask, and returns when the next one is due.
func (o *Outliers) askChecks(ctx context.Context, work chan activecheck.Question) time.Duration {
	o.mu.Lock()
	questions := o.checker.Due(time.Now())
	next := o.checker.Next()
	if next.IsZero() {
		next = time.Now().Add(time.Hour) // or sooner
	}
	o.nextChecks = next
	o.mu.Unlock()
	for _, q := range questions {
		select {
		case work <- q:
		default: // all are busy
			go o.work(ctx, q, work)
		}
	}
	return max(time.Until(next), checkPause)
}

// work asks one endpoint after the other. It goes on for as long as there are checks, because the stack of a new
// goroutine has to grow first.
func (o *Outliers) work(ctx context.Context, q activecheck.Question, work <-chan activecheck.Question) {
	for more := true; more; q, more = <-work {
		o.checked(q, o.Check(ctx, q.Target, &q.Check))
	}
}

func (o *Outliers) checked(q activecheck.Question, r activecheck.Result) {
	o.mu.Lock()
	o.checker.Answered(q, r, time.Now())
	if r.Good {
		o.report.Checks.Passed++
	} else {
		if o.report.Checks.Failed == nil {
			o.report.Checks.Failed = map[activecheck.Failure]int{}
		}
		o.report.Checks.Failed[activecheck.Failure{Kind: q.Check.Kind, Fault: r.Fault}]++
	}
	wanted := o.checker.WantsPlans()
	o.askSooner()
	o.mu.Unlock()
	if wanted {
		o.signal()
	}
}

// askSooner wakes runChecks if it would sleep for too long.
func (o *Outliers) askSooner() {
	if next := o.checker.Next(); next.IsZero() || !next.Before(o.nextChecks) {
		return
	}
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
		Reason: fmt.Sprintf("%d endpoints are not checked and count as good: this node makes no more checks, or no more of "+
			"this namespace", left),
	}}
}
