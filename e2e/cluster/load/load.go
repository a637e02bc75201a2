// Package load connects to Services again and again, and counts what fails. Clients in pods of the end-to-end cluster use
// it, and clients outside of it.
package load

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// Target is what a client connects to.
type Target struct {
	Protocol lab.Protocol
	Family   lab.Family
	Host     string // a name or an address
	Port     string
	// Once says that the name is resolved once, and not for each connection.
	Once bool
}

// Parse reads a target such as "tcp IPv4 web.default.svc.cluster.local. 80", with the word "once" behind it or not.
func Parse(text string) (t Target, err error) {
	words := strings.Fields(text)
	if len(words) == 5 && words[4] == "once" {
		t.Once, words = true, words[:4]
	}
	if len(words) != 4 {
		return t, fmt.Errorf("target %q: it must be PROTOCOL FAMILY HOST PORT [once]", text)
	}
	if t.Protocol, err = lab.ParseProtocol(words[0]); err != nil {
		return t, fmt.Errorf("target %q: %w", text, err)
	}
	t.Host, t.Port, t.Family = words[2], words[3], lab.IPv4
	if words[1] == lab.IPv6.String() {
		t.Family = lab.IPv6
	}
	return t, nil
}

func (t Target) String() string {
	return fmt.Sprintf("%s %s %s %s", t.Protocol, t.Family, t.Host, t.Port)
}

// Count is what became of the connections to a target.
type Count struct {
	Asked  int
	Failed int
	// Repeated is how many TCP connections needed a packet to be sent again.
	Repeated int
	Slowest  time.Duration
	Failures []string // the latest ones
	// LastFailure is when the last connection that failed began.
	LastFailure time.Time
}

// kept is how many failures of a target are kept.
const kept = 5

// Opener makes a connection, and gets one answer.
type Opener func(lab.Question) (*lab.Flow, lab.Result)

// Options of loops.
type Options struct {
	Pause    time.Duration // between two connections to a target
	Patience time.Duration // how long a client waits for DNS, and then for an answer
	Open     Opener
	// Sequential lets a loop wait for the end of a connection before the next. Otherwise it starts one after each pause.
	Sequential bool
}

// Loops are running clients, one for each target.
type Loops struct {
	options Options
	stop    context.CancelFunc
	running sync.WaitGroup
	mu      sync.Mutex
	counts  map[string]*Count
}

// Start starts clients.
func Start(targets []Target, o Options) *Loops {
	ctx, stop := context.WithCancel(context.Background())
	l := &Loops{options: o, stop: stop, counts: map[string]*Count{}}
	for _, t := range targets {
		l.counts[t.String()] = &Count{}
		l.running.Go(func() { l.loop(ctx, t) })
	}
	return l
}

// Stop ends the clients. It returns when their last connections have ended.
func (l *Loops) Stop() {
	l.stop()
	l.running.Wait()
}

// Counts returns what became of the connections so far.
func (l *Loops) Counts() map[string]Count {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]Count{}
	for name, c := range l.counts {
		out[name] = *c
	}
	return out
}

func (l *Loops) loop(ctx context.Context, t Target) {
	resolve := t.resolve
	if t.Once {
		resolve = remember(resolve)
	}
	ticker := time.NewTicker(l.options.Pause)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if l.options.Sequential {
			l.once(t, resolve)
		} else {
			l.running.Go(func() { l.once(t, resolve) })
		}
	}
}

// remember resolves until it works for the first time.
func remember(resolve resolver) resolver {
	var mu sync.Mutex
	var known netip.AddrPort
	return func(patience time.Duration) (netip.AddrPort, error) {
		mu.Lock()
		defer mu.Unlock()
		if known.IsValid() {
			return known, nil
		}
		var err error
		known, err = resolve(patience)
		return known, err
	}
}

type resolver func(patience time.Duration) (netip.AddrPort, error)

func (t Target) resolve(patience time.Duration) (netip.AddrPort, error) {
	port, err := net.LookupPort(t.Protocol.String(), t.Port)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if a, err := netip.ParseAddr(t.Host); err == nil {
		return netip.AddrPortFrom(a, uint16(port)), nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	network := "ip4"
	if t.Family == lab.IPv6 {
		network = "ip6"
	}
	list, err := net.DefaultResolver.LookupNetIP(ctx, network, t.Host)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return netip.AddrPortFrom(list[0].Unmap(), uint16(port)), nil
}

// once makes one connection and counts it.
func (l *Loops) once(t Target, resolve resolver) {
	begin, repeated := time.Now(), 0
	at, err := resolve(l.options.Patience)
	var failure string
	if err != nil {
		failure = err.Error()
	} else {
		repeated, failure = l.ask(lab.Question{Protocol: t.Protocol, To: at, Patience: l.options.Patience})
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.counts[t.String()]
	c.Asked++
	c.Repeated += repeated
	c.Slowest = max(c.Slowest, time.Since(begin))
	if failure == "" {
		return
	}
	c.Failed++
	if begin.After(c.LastFailure) {
		c.LastFailure = begin
	}
	when := begin.UTC().Format("15:04:05.000")
	c.Failures = append(c.Failures, fmt.Sprintf("%s %s after %s", when, failure, time.Since(begin).Round(time.Millisecond)))
	c.Failures = c.Failures[max(0, len(c.Failures)-kept):]
}

// ask makes one connection. It returns whether a packet had to be sent again, and what failed.
func (l *Loops) ask(q lab.Question) (repeated int, failure string) {
	flow, r := l.options.Open(q)
	if flow != nil {
		defer flow.Close()
	}
	if r.Outcome != lab.Answered {
		return 0, fmt.Sprintf("%s: %s", q.To, r)
	}
	if q.Protocol != lab.TCP || flow == nil {
		return 0, ""
	}
	n, err := flow.Retransmits()
	if err != nil {
		return 0, err.Error()
	}
	return min(n, 1), ""
}
