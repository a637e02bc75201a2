package health

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// clock is a clock that the test sets.
// quick is the default of --min-sync-period.
func quick() time.Duration { return 10 * time.Millisecond }

type clock struct{ now time.Time }

func (c *clock) after(d time.Duration) { c.now = c.now.Add(d) }

var start = time.Date(2026, 5, 4, 3, 2, 1, 500, time.UTC)

func newTestProxy() (*Proxy, *clock) {
	c := &clock{now: start}
	return NewProxy(ProxyOptions{
		Timeout:  time.Minute,
		Pause:    quick,
		Families: []state.Family{state.IPv4, state.IPv6},
		Now:      func() time.Time { return c.now },
	}), c
}

func ask(h http.Handler) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	return w
}

// TestCodes: the codes of /healthz, /livez and /readyz, and the value of Healthy, after a sequence of events.
func TestCodes(t *testing.T) {
	const up, down = 200, 503
	tests := []struct {
		name           string
		events         func(*Proxy, *clock)
		healthz, livez int
		readyz         int
	}{
		{"nothing happened yet", func(*Proxy, *clock) {}, down, up, down},
		{"the API server is away for an hour", func(_ *Proxy, c *clock) { c.after(time.Hour) }, down, up, down},
		{"first pass pending", func(p *Proxy, c *clock) { p.Pending(c.now) }, down, up, down},
		{"first pass stuck", func(p *Proxy, c *clock) {
			p.Pending(c.now)
			c.after(time.Minute)
		}, down, down, down},
		{"first pass failed", func(p *Proxy, c *clock) { p.PassDone(c.now, false) }, down, up, down},
		{"first pass applied", func(p *Proxy, c *clock) { p.PassDone(c.now, true) }, up, up, up},
		{"idle for a day", func(p *Proxy, c *clock) {
			p.PassDone(c.now, true)
			c.after(24 * time.Hour)
		}, up, up, up},
		{"a change waits, not long", func(p *Proxy, c *clock) {
			p.PassDone(c.now, true)
			p.Pending(c.now)
			c.after(time.Minute - 1)
		}, up, up, up},
		{"a change waits too long", func(p *Proxy, c *clock) {
			p.PassDone(c.now, true)
			p.Pending(c.now)
			c.after(time.Minute)
		}, down, down, up},
		{"a later change does not shorten the wait of the first", func(p *Proxy, c *clock) {
			p.PassDone(c.now, true)
			p.Pending(c.now)
			c.after(40 * time.Second)
			p.Pending(c.now)
			c.after(20 * time.Second)
		}, down, down, up},
		{"the loop turns", func(p *Proxy, c *clock) {
			p.PassDone(c.now, true)
			for range 100 {
				p.Turned()
				c.after(time.Second)
			}
		}, up, up, up},
		{"the loop is stuck, although nothing changed", func(p *Proxy, c *clock) {
			p.PassDone(c.now, true)
			p.Turned()
			c.after(time.Minute)
		}, down, down, up},
		{"the node drains", func(p *Proxy, c *clock) {
			p.PassDone(c.now, true)
			p.SetDraining()
		}, down, up, down},
		{"one pass fails", func(p *Proxy, c *clock) {
			p.PassDone(c.now, true)
			p.PassDone(c.now, false)
			c.after(time.Second)
		}, up, up, up},
		{"passes fail for long, although Pending was not called", func(p *Proxy, c *clock) {
			p.PassDone(c.now, true)
			for range 3 {
				p.PassDone(c.now, false)
				c.after(30 * time.Second)
			}
		}, down, down, up},
		{"late, then applied", func(p *Proxy, c *clock) {
			p.Pending(c.now)
			c.after(time.Hour)
			p.PassDone(c.now, true)
		}, up, up, up},
		{"the node is about to be deleted", func(p *Proxy, c *clock) {
			p.PassDone(c.now, true)
			p.SetNode(false)
		}, down, up, up},
		{"the node is no longer about to be deleted", func(p *Proxy, c *clock) {
			p.PassDone(c.now, true)
			p.SetNode(false)
			p.SetNode(true)
		}, up, up, up},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, c := newTestProxy()
			tt.events(p, c)
			if got := ask(p.Healthz()).Code; got != tt.healthz {
				t.Errorf("/healthz %d, want %d", got, tt.healthz)
			}
			if got := ask(p.Livez()).Code; got != tt.livez {
				t.Errorf("/livez %d, want %d", got, tt.livez)
			}
			if got := ask(p.Readyz()).Code; got != tt.readyz {
				t.Errorf("/readyz %d, want %d", got, tt.readyz)
			}
			if got := p.Healthy(); got != (tt.livez == up && tt.readyz == up) {
				t.Errorf("Healthy() = %v", got)
			}
		})
	}
}

func TestBodies(t *testing.T) {
	const never, first, later = "0001-01-01T00:00:00Z", "2026-05-04T03:02:01.0000005Z", "2026-05-04T03:04:01.0000005Z"
	families := func(at string, healthy bool) string {
		return fmt.Sprintf(`{"IPv4":{"lastUpdated":%q,"healthy":%v},"IPv6":{"lastUpdated":%q,"healthy":%v}}`, at, healthy, at, healthy)
	}
	p, c := newTestProxy()
	same := func(what string, h http.Handler, want string) {
		t.Helper()
		w := ask(h)
		if got := w.Body.String(); got != want {
			t.Errorf("%s:\n got %s\nwant %s", what, got, want)
		}
		if w.Header().Get("Content-Type") != "application/json" || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: headers %v", what, w.Header())
		}
	}
	same("before the first pass", p.Livez(),
		`{"lastUpdated":"`+never+`","currentTime":"`+first+`","healthy":true,"status":`+families(never, true)+`}`)
	same("before the first pass", p.Readyz(),
		`{"lastUpdated":"`+never+`","currentTime":"`+first+`","healthy":false,"status":`+families(never, false)+`}`)
	same("before the first pass", p.Healthz(),
		`{"lastUpdated":"`+never+`","currentTime":"`+first+`","nodeEligible":true,"healthy":false,"status":`+families(never, false)+`}`)

	p.SetMissing(func() []string { return []string{"services"} })
	same("the API server is away", p.Readyz(),
		`{"lastUpdated":"`+never+`","currentTime":"`+first+`","healthy":false,"status":`+families(never, false)+`,"waitingFor":["services"]}`)

	p.PassDone(c.now, true)
	c.after(2 * time.Minute)
	same("healthy: the time is recent", p.Livez(),
		`{"lastUpdated":"`+later+`","currentTime":"`+later+`","healthy":true,"status":`+families(first, true)+`}`)
	same("healthz", p.Healthz(),
		`{"lastUpdated":"`+later+`","currentTime":"`+later+`","nodeEligible":true,"healthy":true,"status":`+families(first, true)+`}`)

	p.SetNode(false)
	same("the node goes: the proxy is healthy, its time is that of the last pass", p.Healthz(),
		`{"lastUpdated":"`+first+`","currentTime":"`+later+`","nodeEligible":false,"healthy":true,"status":`+families(first, true)+`}`)
}

func TestOneFamily(t *testing.T) {
	p := NewProxy(ProxyOptions{Families: []state.Family{state.IPv6}, Now: func() time.Time { return start }, Timeout: time.Minute, Pause: quick})
	want := `{"lastUpdated":"0001-01-01T00:00:00Z","currentTime":"2026-05-04T03:02:01.0000005Z","healthy":true,` +
		`"status":{"IPv6":{"lastUpdated":"0001-01-01T00:00:00Z","healthy":true}}}`
	if got := ask(p.Livez()).Body.String(); got != want {
		t.Errorf("got %s", got)
	}
}

func TestAnswersAreCounted(t *testing.T) {
	var got []string
	p := NewProxy(ProxyOptions{Now: time.Now, Timeout: time.Minute, Pause: quick, Answered: func(path string, code int) {
		got = append(got, fmt.Sprint(path, " ", code))
	}})
	ask(p.Livez())
	ask(p.Healthz())
	p.PassDone(time.Now(), true)
	ask(p.Livez())
	ask(p.Healthz())
	if want := "[/livez 200 /healthz 503 /livez 200 /healthz 200]"; fmt.Sprint(got) != want {
		t.Errorf("counted %v, want %s", got, want)
	}
}

// brokenWriter fails like the connection of a client that has gone.
type brokenWriter struct{ *httptest.ResponseRecorder }

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestClientGone(t *testing.T) {
	p, _ := newTestProxy()
	w := brokenWriter{httptest.NewRecorder()}
	p.Healthz().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/healthz", nil))
	if w.Code != 503 {
		t.Errorf("code %d", w.Code)
	}
}

// TestPause: a change that waits for as long as --min-sync-period lets it is no failure; a loop without a turn is.
func TestPause(t *testing.T) {
	p, c := newTestProxy()
	p.options.Pause = func() time.Duration { return time.Minute }
	p.PassDone(c.now, true)
	p.Pending(c.now)
	if c.after(119 * time.Second); !p.Healthy() || p.Stuck() {
		t.Error("unhealthy before the pause is over twice")
	}
	if c.after(time.Second); p.Healthy() {
		t.Error("healthy, though the pass is late")
	}
	p.Turned()
	if c.after(time.Minute); !p.Stuck() {
		t.Error("not stuck, though the loop made no turn for a minute")
	}
}
