//go:build e2e

package outage

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// manyRequests is more than what a daemon may send in the time "calm" while answers are broken. Thousands of nodes send
// as many.
const manyRequests = 80

// TestBrokenAnswers: rules stay whatever the API server answers. A daemon that starts then leaves the rules of the
// earlier one in force, and says so.
func TestBrokenAnswers(t *testing.T) {
	faults := brokenAnswers()
	const beds = 3 // work side by side: most of the time, daemons wait
	for i := range beds {
		t.Run(fmt.Sprint("bed ", i+1), func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			breaker := b.breakable(t)
			b.serve(t)
			for at := i; at < len(faults); at += beds {
				t.Run(faults[at].name, func(t *testing.T) { b.survives(t, breaker, &faults[at]) })
			}
		})
	}
}

// brokenAnswer is what the API server answers while something is wrong.
type brokenAnswer struct {
	name   string
	fault  fault
	starts bool // a daemon can start with it
}

func brokenAnswers() []brokenAnswer {
	return []brokenAnswer{
		{name: "error 500", fault: status(http.StatusInternalServerError)},
		{name: "error 503", fault: status(http.StatusServiceUnavailable)},
		{name: "too many requests", fault: status(http.StatusTooManyRequests)},
		{name: "garbage", fault: garbage},
		{name: "empty lists without a version", fault: emptyLists("")},
		{name: "empty lists", fault: emptyLists("5")},
		{name: "half of a list", fault: truncated},
		{name: "first pages", fault: firstPages},
		{name: "streams that end early", fault: partOfStream(false)},
		{name: "streams that hang", fault: partOfStream(true)},
		{name: "connections that hang", fault: hang},
		{name: "watches that end after a second", fault: shortWatches, starts: true},
	}
}

// survives: the rules stay while answers are broken, also over a restart, and follow again afterwards.
func (b *bed) survives(t *testing.T, breaker *breaker, tt *brokenAnswer) {
	t.Helper()
	const name = "late"
	breaker.set(tt.fault)
	b.create(t, name, "")
	if tt.starts {
		b.expect(t, "the rules follow", func() bool { return b.has(t, name) })
	}
	b.spread(t, breaker)
	b.restartWithFault(t, tt.starts)
	b.spread(t, breaker)
	breaker.set(nil)
	b.expect(t, "the rules follow again", func() bool { return b.has(t, name) })
	b.expect(t, "the daemon is ready", func() bool { code, _ := b.get(t, "127.0.0.1:10256/readyz"); return code == "200" })
	b.remove(t, name)
	b.expect(t, "the rules follow once more", func() bool { return !b.has(t, name) })
}

// spread expects that the rules stay, and that the daemon does not ask again and again without a pause.
func (b *bed) spread(t *testing.T, breaker *breaker) {
	t.Helper()
	before, began := breaker.count(), time.Now()
	b.steady(t, calm)
	took := time.Since(began) // a slow machine takes longer
	if n := breaker.count() - before; n > int(manyRequests*took/calm) {
		t.Errorf("%d requests within %v", n, took)
	}
}

// restartWithFault restarts the daemon. If it cannot start, it says what it waits for.
func (b *bed) restartWithFault(t *testing.T, starts bool) {
	t.Helper()
	lab.Must(t, b.daemon.Stop())
	b.start(t)
	if starts {
		return
	}
	b.expect(t, "the daemon answers that it waits", func() bool {
		code, body := b.get(t, "127.0.0.1:10256/readyz || true")
		return code == "503" && strings.Contains(body, `"waitingFor":["endpointslices"`)
	})
	b.expect(t, "a line says what is waited for", func() bool {
		return len(b.lines(t, "the rules in the kernel stay as an earlier process left them"))+
			len(b.lines(t, "the kernel stays as it is until the first list is complete")) > 0
	})
}
