package socket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Options are the parts of a server. All must be set.
type Options struct {
	Journal  *Journal
	Store    *state.Store
	NodeName string
	Version  string
	Log      *slog.Logger
}

// Listen opens the socket. If another program has the name, the daemon works without it.
func Listen(ctx context.Context) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", name)
	if err != nil {
		return nil, fmt.Errorf("open the socket %s for status questions: %w", name, err)
	}
	return l, nil
}

// Serve answers questions until the context ends.
func Serve(ctx context.Context, l net.Listener, o Options) error {
	s := &server{o}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+pathStatus, s.status)
	mux.HandleFunc("GET "+pathPasses, func(w http.ResponseWriter, _ *http.Request) { s.answer(w, o.Journal.latest()) })
	mux.HandleFunc("GET "+pathProblems, func(w http.ResponseWriter, r *http.Request) {
		s.answer(w, o.Journal.problemsOf(r.URL.Query().Get("object")))
	})
	mux.HandleFunc("GET "+pathEndpoints, s.endpoints)
	web := &http.Server{
		Handler: http.MaxBytesHandler(mux, 1<<16), ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	go func() {
		<-ctx.Done()
		_ = web.Close() // the process ends
	}()
	err := web.Serve(rootOnly{l})
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// rootOnly closes connections of other users than root and the daemon's own.
type rootOnly struct{ net.Listener }

// Accept implements net.Listener.
func (l rootOnly) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil || trusted(c) {
			return c, err
		}
		_ = c.Close()
	}
}

// trusted reports whether the other end of a connection is a process of root or of the own user.
func trusted(c net.Conn) bool {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return false
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return false
	}
	known := false
	err = raw.Control(func(fd uintptr) {
		peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		known = err == nil && (peer.Uid == 0 || int(peer.Uid) == os.Geteuid())
	})
	return known && err == nil
}

type server struct{ Options }

func (s *server) answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(value); err != nil {
		s.Log.Debug("a status question was not answered", "error", err)
	}
}

func (s *server) status(w http.ResponseWriter, _ *http.Request) {
	out := s.Journal.status()
	out.Version, out.PID, out.Synced = s.Version, os.Getpid(), s.Store.Synced()
	if c, ok := s.Store.Pending(); ok {
		out.WaitingServices = len(c.Services)
	}
	s.answer(w, out)
}

// maxEndpoints bounds the answer about one Service.
const maxEndpoints = 10000

// endpoints explains the endpoints of one Service.
func (s *server) endpoints(w http.ResponseWriter, r *http.Request) {
	text := r.URL.Query().Get("service")
	namespace, service, ok := strings.Cut(text, "/")
	if !ok {
		http.Error(w, fmt.Sprintf("service %q must be NAMESPACE/NAME", text), http.StatusBadRequest)
		return
	}
	svc, slices := s.Store.Service(state.Name{Namespace: namespace, Name: service})
	if svc == nil {
		http.Error(w, fmt.Sprintf("the daemon knows no Service %s, or another proxy serves it", text), http.StatusNotFound)
		return
	}
	env := plan.Environment{NodeName: s.NodeName, IPv4: true, IPv6: true}
	if node := s.Store.Environment().Node; node != nil {
		env.Zone = node.Zone
	}
	out := []Endpoint{}
	var p plan.Planner
	for _, f := range p.Fates(svc, slices, &env) {
		if len(out) < maxEndpoints {
			out = append(out, Endpoint{f.Port, f.Addr.String(), f.Node, f.OutOfCluster, f.OutOfLocal})
		}
	}
	s.answer(w, out)
}
