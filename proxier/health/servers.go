package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// ServersOptions configure Servers.
type ServersOptions struct {
	// Healthy reports whether the proxy works. While it does not, all servers answer 503.
	Healthy func() bool
	// Listen opens a listener. If it is nil, net.ListenConfig does.
	Listen func(network, address string) (net.Listener, error)
	Log    *slog.Logger
}

// Servers are the healthCheckNodePort servers of all Services that want one. They tell a load balancer whether this
// node has endpoints of a Service with externalTrafficPolicy Local.
type Servers struct {
	options ServersOptions
	limiter *Limiter // one for all servers, because a tenant can have many
	serving sync.WaitGroup
	leaving atomic.Bool

	mu   sync.Mutex
	open map[place]*server

	stopped chan struct{}
}

// place is where one server listens.
type place struct {
	service state.Name
	addr    netip.AddrPort
}

type server struct {
	http    *http.Server
	handler *handler
}

// NewServers returns Servers that do not listen yet.
func NewServers(o ServersOptions) *Servers {
	if o.Listen == nil {
		o.Listen = func(network, address string) (net.Listener, error) {
			var lc net.ListenConfig
			return lc.Listen(context.Background(), network, address)
		}
	}
	return &Servers{
		options: o, limiter: NewLimiter(), open: map[place]*server{}, stopped: make(chan struct{}, 1),
	}
}

// Sync closes the servers that are no longer wanted, opens the missing ones, and updates the answers of the others.
// addrs are the addresses on which node ports answer; 0.0.0.0 and :: stand for all addresses of a family.
//
// If a Service cannot listen on one address, it still listens on the others. Sync returns the error, and the next Sync
// tries again. So the caller calls Sync from time to time, even when nothing has changed.
func (s *Servers) Sync(want map[state.Name]plan.HealthCheck, addrs []netip.Addr) map[state.Name]error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Close first, because a port may pass from one Service to another.
	s.closeUnwanted(want, addrs)
	failed := map[state.Name]error{}
	for name, check := range want {
		for _, addr := range addrs {
			if err := s.ensure(place{service: name, addr: netip.AddrPortFrom(addr, check.NodePort)}, check); err != nil {
				failed[name] = errors.Join(failed[name], err)
			}
		}
	}
	return failed
}

// SetLeaving records whether the node is about to go. Servers then answer as if it had no endpoint, if another node has one:
// otherwise a load balancer would lose its last target.
func (s *Servers) SetLeaving(leaving bool) { s.leaving.Store(leaving) }

// Ended delivers a value after servers ended by themselves. The caller calls Sync again to start them.
func (s *Servers) Ended() <-chan struct{} { return s.stopped }

// Close closes all servers and waits until they have ended.
func (s *Servers) Close() {
	s.Sync(nil, nil)
	s.serving.Wait()
}

func (s *Servers) closeUnwanted(want map[state.Name]plan.HealthCheck, addrs []netip.Addr) {
	keep := make(map[netip.Addr]bool, len(addrs))
	for _, a := range addrs {
		keep[a] = true
	}
	for at, srv := range s.open {
		check, wanted := want[at.service]
		if wanted && check.NodePort == at.addr.Port() && keep[at.addr.Addr()] {
			continue
		}
		delete(s.open, at)
		if err := srv.http.Close(); err != nil {
			s.options.Log.Warn("cannot close a health check server; its port may stay in use until the proxy restarts",
				"object", at.service.String(), "address", at.addr.String(), "error", err)
		}
	}
}

func (s *Servers) ensure(at place, check plan.HealthCheck) error {
	n, elsewhere := check.LocalIPv4, check.ElsewhereIPv4
	if at.addr.Addr().Is6() {
		n, elsewhere = check.LocalIPv6, check.ElsewhereIPv6
	}
	if srv := s.open[at]; srv != nil {
		srv.handler.endpoints.Store(int64(n))
		srv.handler.elsewhere.Store(elsewhere)
		return nil
	}
	// With an explicit family, [::] does not listen on the IPv4 port as well.
	network := "tcp4"
	if at.addr.Addr().Is6() {
		network = "tcp6"
	}
	l, err := s.options.Listen(network, at.addr.String())
	if err != nil {
		return fmt.Errorf("health check server of %s cannot listen on %s: %w; load balancers see this node as failed "+
			"until a later attempt succeeds", at.service, at.addr, err)
	}
	s.start(at, l, n, elsewhere)
	return nil
}

// AnswerTime limits how long a request about health and its answer may take.
const AnswerTime = 10 * time.Second

func (s *Servers) start(at place, l net.Listener, endpoints int, elsewhere bool) {
	h := &handler{service: at.service, healthy: s.options.Healthy, leaving: s.leaving.Load}
	h.endpoints.Store(int64(endpoints))
	h.elsewhere.Store(elsewhere)
	srv := &server{http: NewServer(h, AnswerTime), handler: h}
	s.open[at] = srv
	s.serving.Go(func() {
		if err := srv.http.Serve(s.limiter.Limit(l)); !errors.Is(err, http.ErrServerClosed) {
			s.ended(at, srv, err)
		}
	})
}

// ended records that a server stopped by itself, so that the next Sync opens it again, and asks for that Sync.
func (s *Servers) ended(at place, srv *server, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[at] == srv {
		delete(s.open, at)
		s.options.Log.Warn("a health check server ended by itself; load balancers see this node as failed until it is started again",
			"object", at.service.String(), "address", at.addr.String(), "error", err)
		select {
		case s.stopped <- struct{}{}:
		default:
		}
	}
}

// handler answers for one Service on one address. It answers every path alike.
type handler struct {
	service   state.Name
	endpoints atomic.Int64 // ready endpoints on this node
	elsewhere atomic.Bool  // another node has one
	healthy   func() bool
	leaving   func() bool
}

// answerBody is the body of upstream, including white space, for programs that compare it as text.
const answerBody = `{
	"service": {
		"namespace": %q,
		"name": %q
	},
	"localEndpoints": %d,
	"serviceProxyHealthy": %v
}`

func (h *handler) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	n, healthy := h.endpoints.Load(), h.healthy()
	if h.leaving() && h.elsewhere.Load() {
		n = 0
	}
	writeHeaders(w)
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.FormatInt(n, 10))
	code := http.StatusServiceUnavailable
	if n > 0 && healthy {
		code = http.StatusOK
	}
	w.WriteHeader(code)
	fmt.Fprintf(w, answerBody, h.service.Namespace, h.service.Name, n, healthy)
}
