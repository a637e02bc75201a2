package ui

import (
	"embed"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	utilcache "k8s.io/apimachinery/pkg/util/cache"

	"github.com/verdict-proxy/verdict/cmd/verdict/explain"
	"github.com/verdict-proxy/verdict/cmd/verdict/snapshot"
	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
)

//go:embed page
var files embed.FS

// Options are the parts of the page. Both must be set.
type Options struct {
	Daemon *socket.Daemon
	Log    *slog.Logger
}

// page answers requests.
type page struct {
	Options
	meter   snapshot.Meter
	reading limit
	recent  *cache
}

// policy lets the page use only its own files, and no other page show it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// New returns the handler of /ui and of everything below it.
func New(o Options) http.Handler {
	p := &page{Options: o, reading: newLimit(), recent: newCache()}
	mux := http.NewServeMux()
	static, err := fs.Sub(files, "page")
	if err != nil {
		panic(err) // the folder is part of the program
	}
	mux.Handle("GET /ui", http.RedirectHandler("/ui/", http.StatusPermanentRedirect))
	mux.Handle("GET /ui/", http.StripPrefix("/ui/", http.FileServerFS(static)))
	for path, answer := range map[string]func(url.Values) (any, error){
		"overview": p.overview, "services": p.services, "service": p.service, "passes": p.passes, "changes": p.changes,
		"explain": p.explain,
	} {
		mux.HandleFunc("GET /ui/api/"+path, func(w http.ResponseWriter, r *http.Request) {
			value, err := answer(r.URL.Query())
			p.answer(w, value, err)
		})
	}
	return guard(mux)
}

// maxQuery is how long a question may be.
const maxQuery = 2000

// guard refuses what no reader of the page sends, and tells browsers what the page may do.
func guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		switch site := r.Header.Get("Sec-Fetch-Site"); {
		case !KnownHost(r.Host, netip.Addr.IsValid):
			http.Error(w, "this page is served only by address or as localhost, because a foreign name may lead "+
				"here without the knowledge of the reader (DNS rebinding)", http.StatusMisdirectedRequest)
		case len(r.URL.RawQuery) > maxQuery:
			http.Error(w, "the question is too long", http.StatusRequestURITooLong)
		case r.Method != http.MethodGet:
			h.Set("Allow", http.MethodGet)
			http.Error(w, "this page is read-only", http.StatusMethodNotAllowed)
		case strings.HasPrefix(r.URL.Path, "/ui/api/") && site != "" && site != "same-origin" && site != "none":
			http.Error(w, "another site asks", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// KnownHost reports whether a Host header has an address that is accepted, or localhost, and so no name that someone else's
// DNS can give.
func KnownHost(host string, accepted func(netip.Addr) bool) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	at, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && accepted(at)
}

// LocalOnly answers only connections to a loopback address, whatever the listener listens on.
func LocalOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		if !ok || !at.IP.IsLoopback() {
			http.Error(w, "this page is served only at loopback addresses; --ui-address changes that", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (p *page) answer(w http.ResponseWriter, value any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		w.WriteHeader(statusOf(err))
		value = map[string]string{"error": err.Error()}
	}
	if err := json.NewEncoder(w).Encode(value); err != nil {
		p.Log.Debug("a question of the page was not answered", "error", err)
	}
}

func statusOf(err error) int {
	switch {
	case errors.Is(err, socket.ErrQuestion), errors.Is(err, explain.ErrQuestion):
		return http.StatusBadRequest
	case errors.Is(err, socket.ErrUnknown):
		return http.StatusNotFound
	case errors.Is(err, errBusy):
		return http.StatusTooManyRequests
	}
	return http.StatusInternalServerError
}

// limit bounds how many questions that read single elements of the kernel are answered at the same time.
type limit chan struct{}

// atOnce is how many of them there may be. The daemon works beside them.
const atOnce = 2

// patience is how long a question waits for its turn.
const patience = 2 * time.Second

var errBusy = errors.New("too many questions at the same time; the page asks again")

func newLimit() limit { return make(limit, atOnce) }

// do answers a question in its turn.
func (l limit) do(answer func() (any, error)) (any, error) {
	select {
	case l <- struct{}{}:
	case <-time.After(patience):
		return nil, errBusy
	}
	defer func() { <-l }()
	return answer()
}

// cache keeps answers for keepFor, and maxKept of them at most, so that many viewers of one thing cost as much as one.
type cache struct {
	mu      sync.Mutex
	answers *utilcache.LRUExpireCache
}

const (
	keepFor = time.Second
	maxKept = 256
)

func newCache() *cache { return &cache{answers: utilcache.NewLRUExpireCache(maxKept)} }

// get returns the answer that is kept under a key, or asks.
func (c *cache) get(key string, ask func() (any, error)) (any, error) {
	c.mu.Lock()
	answer, kept := c.answers.Get(key)
	if !kept {
		answer = sync.OnceValues(ask)
		c.answers.Add(key, answer, keepFor)
	}
	c.mu.Unlock()
	return answer.(func() (any, error))()
}
