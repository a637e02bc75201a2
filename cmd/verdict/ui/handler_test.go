package ui

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
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
