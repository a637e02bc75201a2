package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verdict-proxy/verdict/cmd/verdict/snapshot"
	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth"
	"github.com/verdict-proxy/verdict/proxier/state"
)

func newPage() http.Handler {
	log := slog.New(slog.DiscardHandler)
	return New(Options{Log: log, Daemon: &socket.Daemon{Journal: socket.NewJournal(), Store: state.NewStore(), NodeName: "n1", Log: log}})
}

func TestGuard(t *testing.T) {
	page := newPage()
	for _, tt := range []struct {
		method, target, host, site string
		want                       int
	}{
		{"GET", "/ui/", "127.0.0.1:10249", "", 200}, {"GET", "/ui/", "[::1]:10249", "", 200}, {"GET", "/ui/", "localhost:10249", "", 200},
		{"GET", "/ui/", "192.0.2.1", "", 200}, {"GET", "/ui", "LOCALHOST", "", 308}, {"GET", "/ui/none", "127.0.0.1", "", 404},
		{"GET", "/ui/", "foreign.example:10249", "", 421}, {"GET", "/ui/", "localhost.foreign.example", "", 421}, {"GET", "/ui/", "", "", 421},
		{"GET", "/ui/", "127.0.0.1.foreign.example", "", 421},
		{"GET", "/ui/api/passes", "foreign.example", "", 421}, {"GET", "/ui/api/passes", "127.0.0.1", "cross-site", 403},
		{"GET", "/ui/api/passes", "127.0.0.1", "same-site", 403}, {"GET", "/ui/api/passes", "127.0.0.1", "same-origin", 200},
		{"GET", "/ui/", "127.0.0.1", "cross-site", 200}, // a link on another page
		{"POST", "/ui/", "127.0.0.1", "", 405}, {"DELETE", "/ui/api/passes", "127.0.0.1", "", 405}, {"HEAD", "/ui/", "127.0.0.1", "", 405},
		{"GET", "/ui/api/service?name=web", "127.0.0.1", "", 400}, {"GET", "/ui/api/service?name=default/none", "127.0.0.1", "", 404},
		{"GET", "/ui/api/service?name=" + strings.Repeat("x", 3000), "127.0.0.1", "", 414},
		{"GET", "/ui/api/services?sort=size", "127.0.0.1", "", 400}, {"GET", "/ui/api/services?page=-1", "127.0.0.1", "", 400},
		{"GET", "/ui/api/changes?pass=7", "127.0.0.1", "", 404}, {"GET", "/ui/api/changes?pass=x", "127.0.0.1", "", 400},
		{"GET", "/ui/api/explain?source=pod/a/b&destination=10.0.0.1:80", "127.0.0.1", "", 400},
	} {
		r := httptest.NewRequest(tt.method, tt.target, nil)
		r.Host = tt.host
		if tt.site != "" {
			r.Header.Set("Sec-Fetch-Site", tt.site)
		}
		w := httptest.NewRecorder()
		page.ServeHTTP(w, r)
		if w.Code != tt.want {
			t.Errorf("%s %.60s of host %q, site %q: %d, want %d: %s", tt.method, tt.target, tt.host, tt.site, w.Code, tt.want, w.Body)
		}
		if got := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(got, "default-src 'none'") {
			t.Errorf("%s: the policy is %q", tt.target, got)
		}
	}
}

// TestOwnFiles: the page loads nothing from other hosts, and has no scripts or styles inside, which its policy forbids.
func TestOwnFiles(t *testing.T) {
	list, err := files.ReadDir("page")
	if err != nil || len(list) != 4 {
		t.Fatalf("%d files, %v", len(list), err)
	}
	for _, f := range list {
		text, err := files.ReadFile("page/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		rest := strings.ReplaceAll(string(text), "http://www.w3.org/2000/svg", "") // a name, not a place
		for _, forbidden := range []string{"http://", "https://", "//cdn", "innerHTML", "style=", "onclick=", "@import", "eval("} {
			if strings.Contains(rest, forbidden) {
				t.Errorf("%s has %s", f.Name(), forbidden)
			}
		}
		if len(text) > 20_000 {
			t.Errorf("%s has %d bytes", f.Name(), len(text))
		}
	}
}

func TestLocalOnly(t *testing.T) {
	for address, want := range map[string]int{"127.0.0.1": 200, "::1": 200, "192.0.2.1": 403, "fd00::1": 403} {
		r := httptest.NewRequest(http.MethodGet, "/ui/", nil)
		r.Host = "127.0.0.1" // anyone can send that
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.ParseIP(address), Port: 10249}))
		w := httptest.NewRecorder()
		LocalOnly(newPage()).ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("a connection to %s: %d, want %d", address, w.Code, want)
		}
	}
}

// TestLimit: the third question waits for one of the first two, and gives up after a while.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, free, done := newLimit(), make(chan bool), make(chan error, 1)
		for range atOnce {
			go func() { _, _ = l.do(func() (any, error) { <-free; return nil, nil }) }()
		}
		synctest.Wait()
		third := func() {
			_, err := l.do(func() (any, error) { return nil, nil })
			done <- err
		}
		go third()
		synctest.Wait()
		if len(done) > 0 {
			t.Fatal("a third question was answered beside two others")
		}
		time.Sleep(patience)
		if err := <-done; !errors.Is(err, errBusy) {
			t.Errorf("after its patience: %v", err)
		}
		go third()
		synctest.Wait()
		free <- true
		if err := <-done; err != nil {
			t.Errorf("in its turn: %v", err)
		}
		free <- true
	})
}

// TestCache: what many ask is read once a second, and there is a limit to what is kept.
func TestCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache()
		asked := 0
		for second := range 3 {
			for range 10 {
				if v, err := c.get("x", func() (any, error) { asked++; return asked, nil }); err != nil || v != second+1 {
					t.Errorf("second %d: %v, %v", second, v, err)
				}
			}
			time.Sleep(keepFor + 1)
		}
		for i := range 10 * maxKept {
			_, _ = c.get(strings.Repeat("y", i), func() (any, error) { return nil, nil })
		}
		if n := len(c.answers.Keys()); n > maxKept {
			t.Errorf("%d answers are kept", n)
		}
	})
}

// fewOutliers stands in for what watches endpoints.
type fewOutliers []endpointhealth.Status

func (f fewOutliers) Statuses(of state.Name) []endpointhealth.Status {
	return slices.DeleteFunc(slices.Clone(f), func(s endpointhealth.Status) bool { return of != state.Name{} && s.Service != of })
}

// attentionPage has a Service that is down, one with a failing endpoint, one with a problem of its slice, and a good one.
func attentionPage() *page {
	store, journal := state.NewStore(), socket.NewJournal()
	name := func(n string) state.Name { return state.Name{Namespace: "shop", Name: n} }
	at := func(last byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 1, last}) }
	var outliers fewOutliers
	fails := func(service string, last byte) {
		s := endpointhealth.Status{Protocol: state.TCP, State: endpointhealth.StateFailing}
		s.Service, s.At = name(service), netip.AddrPortFrom(at(last), 8080)
		outliers = append(outliers, s)
	}
	for i, n := range []string{"api", "down", "slice", "web"} {
		store.SetService(&state.Service{
			Name: name(n), ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, byte(i + 10)})},
			ExternalIPs: []netip.Addr{netip.MustParseAddr("fd00::1")},
			Ports: []state.ServicePort{{Name: "http", Protocol: state.TCP, Port: 80, NodePort: uint16(30080 + i)},
				{Name: "many", Protocol: state.TCP, Port: 5000, EndPort: 5010}},
		}, nil)
		first := byte(10 * i)
		store.SetSlice(&state.Slice{
			Name: name(n + "-1"), Service: name(n), Ports: []state.SlicePort{{Name: "http", Protocol: state.TCP, Port: 8080}},
			Endpoints: []state.Endpoint{{Addr: at(first), Ready: true}, {Addr: at(first + 1), Ready: true}, {Addr: at(first + 2)}},
		}, nil)
	}
	fails("down", 10)
	fails("down", 11)
	fails("web", 31)
	problem := func(kind, n, field string) state.ObjectProblems {
		o := state.Object{Kind: kind, Name: name(n)}
		return state.ObjectProblems{Object: o, Problems: []state.Problem{{Kind: kind, Object: o.Name, Field: field, Reason: "why"}}}
	}
	journal.Problems([]state.ObjectProblems{
		problem("Service", "down", state.FieldEndpoints), problem("EndpointSlice", "slice-1", "endpoints[0]"), problem("File", "web", "line 1"),
	})
	d := &socket.Daemon{Journal: journal, Store: store, Outliers: outliers, NodeName: "n1", Log: slog.New(slog.DiscardHandler)}
	d.Passing = func(time.Duration) ([]socket.Passing, error) { return []socket.Passing{{FastPath: 4}}, nil }
	d.FastPath = func(string) socket.FastPath { return socket.FastPath{} }
	return &page{reading: newLimit(), recent: newCache(), Options: Options{Log: d.Log, Daemon: d}}
}

// TestSearchIsBounded: each search copies all rows and asks the store, so few run at a time, with few words.
func TestSearchIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := attentionPage()
		if _, err := p.services(url.Values{"q": {strings.Repeat("1 ", maxWords+1)}}); !errors.Is(err, socket.ErrQuestion) {
			t.Errorf("too many words: %v", err)
		}
		for range atOnce {
			p.reading <- struct{}{}
		}
		if _, err := p.services(url.Values{"q": {strings.Repeat("1 ", maxWords)}}); !errors.Is(err, errBusy) {
			t.Errorf("beside %d questions: %v", atOnce, err)
		}
	})
}

// TestAttention: failing endpoints and problems of slices are in the row of their Service, and what is down comes first.
func TestAttention(t *testing.T) {
	p := attentionPage()
	list, err := p.services(url.Values{})
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, r := range list.(shown).Rows {
		rows = append(rows, fmt.Sprintf("%s %d/%d bad %d problems %d", r.name.Name, r.Good, r.Endpoints, r.Bad, r.Problems))
	}
	want := []string{"down 0/3 bad 2 problems 3", "web 1/3 bad 1 problems 1", "slice 2/3 bad 0 problems 1", "api 2/3 bad 0 problems 0"}
	if !slices.Equal(rows, want) {
		t.Errorf("rows %q, want %q", rows, want)
	}
	if of := p.problems()["shop/slice"]; len(of) != 1 || of[0].Field != "endpoints[0]" {
		t.Errorf("problems of the Service with a problem of its slice: %+v", of)
	}
	got, err := p.overview(nil)
	if err != nil {
		t.Fatal(err)
	}
	o := got.(overview)
	var concerns []string
	for _, c := range o.Concerns {
		concerns = append(concerns, fmt.Sprintf("%s %t %d: %s", c.Object, c.Service, c.Count, strings.Join(c.Reasons, "; ")))
	}
	want = []string{
		"shop/down true 3: why; 10.0.1.10:8080 fails its check: ", "shop/web true 1: 10.0.1.31:8080 fails its check: ",
		"File shop/web false 1: line 1: why", "shop/slice true 1: endpoints[0]: why",
	}
	if !slices.Equal(concerns, want) || o.ProblemCount != 3 || o.OutlierCount != 3 || o.ConcernCount != 4 {
		t.Errorf("%d problems, %d outliers, %d concerns %q, want %q", o.ProblemCount, o.OutlierCount, o.ConcernCount, concerns, want)
	}
}

// TestFastPath: the page shows what is on the fast path, or why nothing is, and neither if the option is off.
func TestFastPath(t *testing.T) {
	for want, fast := range map[string]socket.FastPath{
		"": {}, `"fastPathConnections":4`: {After: 20}, `"fastPathIdle":"--fast-path=services has no effect`: {After: 20, NoEffect: "why"},
	} {
		p := attentionPage()
		p.Daemon.FastPath = func(string) socket.FastPath { return fast }
		got, err := p.overview(nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(got)
		if n := strings.Count(string(text), "astPath"); err != nil || !strings.Contains(string(text), want) || (n > 0) != (want != "") {
			t.Errorf("%+v: %s, %v", fast, text, err)
		}
	}
}

// TestSearch: words are parts of names, beginnings of addresses, and ports.
func TestSearch(t *testing.T) {
	p := attentionPage()
	for text, want := range map[string]string{
		"": "api,down,slice,web", "SHOP we": "web", "10.96.0.1": "api,down,slice,web", "10.96.0.12": "slice", "10.96.0.12:80": "slice",
		"[fd00::1]:80 web": "web", "10.96.0.12:81": "", "10.96.0.12:30082": "", "30083": "web", "3008": "", "80 api": "api", "5005": "api,down,slice,web",
		"5011": "", "10.96.0.12:5010": "slice", "10.0.1.31": "web", "10.0.1.31:8080": "web", "10.0.1.31:80": "", "none": "", "web 30080": "",
	} {
		var found []string
		for _, r := range p.search(p.rows(&snapshot.Reading{}), text) {
			found = append(found, r.name.Name)
		}
		slices.Sort(found)
		if got := strings.Join(found, ","); got != want {
			t.Errorf("%q finds %q, want %q", text, got, want)
		}
	}
}
