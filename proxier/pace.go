package proxier

import (
	"context"
	"time"
)

// How long the loop waits before it tries again after a pass that did not apply, doubling up to the maximum.
const (
	firstRetry = 100 * time.Millisecond
	maxRetry   = 10 * time.Second
)

// checkPeriod is how often the loop compares the kernel with what it wrote.
const checkPeriod = 5 * time.Second

// pace decides when the next pass may begin.
type pace struct {
	minPeriod time.Duration // --min-sync-period
	waiting   time.Time     // since when changes wait; zero: none do
	failures  int           // passes in a row that did not apply
	began     time.Time     // the last pass; zero: there was none
	ended     time.Time     // the last pass
	leaving   bool          // the last pass left something that the next ones delete, piece by piece
}

// wait notes that changes wait. It reports whether none waited before.
func (p *pace) wait() (first bool) {
	first = p.waiting.IsZero()
	if first {
		p.waiting = time.Now()
	}
	return first
}

func (p *pace) failed(now time.Time) {
	p.failures++
	p.ended = now
}

func (p *pace) applied(now time.Time) {
	p.failures, p.waiting = 0, time.Time{}
	p.ended = now
}

// retry fires when a failed pass is to be tried again. It never fires when the last pass applied.
func (p *pace) retry() <-chan time.Time {
	if p.failures == 0 {
		return nil
	}
	return time.After(p.rest())
}

// rest returns how long the next pass has to wait. After a failed pass, changes wait as well: the next pass may have to
// write everything, and must not do so for each change while the kernel refuses it.
func (p *pace) rest() time.Duration {
	if p.failures > 0 {
		return time.Until(p.ended.Add(min(firstRetry<<min(p.failures-1, 10), maxRetry)))
	}
	return p.minPeriod - time.Since(p.began)
}

// piecePause is how long the loop rests before it deletes the next piece, if no other pass does. So changes of Services go
// between the pieces, and the kernel reports a piece before the next one.
const piecePause = 25 * time.Millisecond

// piece fires when the next piece may be deleted.
func (p *pace) piece() <-chan time.Time {
	if !p.leaving || p.failures > 0 {
		return nil
	}
	return time.After(time.Until(p.ended.Add(piecePause)))
}

// gather waits until the next pass may begin: a change that meets an idle proxy is applied at once, and changes in a
// stream are taken together. It returns false when the context ends.
func (p *pace) gather(ctx context.Context) bool {
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

// begun reports whether there was a pass.
func (p *pace) begun() bool { return !p.began.IsZero() }
