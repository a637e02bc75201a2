package socket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Listen opens the socket. If another program has the name, the daemon works without it.
func Listen(ctx context.Context) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", name)
	if err != nil {
		return nil, fmt.Errorf("open the socket %s for status questions: %w", name, err)
	}
	return l, nil
}

// Serve answers questions until the context ends.
func Serve(ctx context.Context, l net.Listener, d *Daemon) error {
	mux := http.NewServeMux()
	handle := func(path string, answer func(parameter func(string) string) (any, error)) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			value, err := answer(r.URL.Query().Get)
			d.answer(w, value, err)
		})
	}
	handle(pathStatus, func(func(string) string) (any, error) { return d.Status(), nil })
	handle(pathPasses, func(func(string) string) (any, error) { return d.Passes(), nil })
	handle(pathProblems, func(get func(string) string) (any, error) { return d.Problems(get("object")), nil })
	handle(pathEndpoints, func(get func(string) string) (any, error) { return d.Endpoints(get("service")) })
	handle(pathFrontends, func(get func(string) string) (any, error) { return d.Frontends(get("of")) })
	handle(pathNames, func(get func(string) string) (any, error) { return d.Names(get("begin"), maxServices), nil })
	handle(pathServices, func(get func(string) string) (any, error) { return d.ServicesOf(get("endpoint")) })
	handle(pathOutliers, func(func(string) string) (any, error) { return d.Outlying(), nil })
	handle(pathFastPath, func(get func(string) string) (any, error) { return d.FastPath(get("service")), nil })
	handle(pathPassing, func(get func(string) string) (any, error) {
		within, err := time.ParseDuration(get("within"))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrQuestion, err)
		}
		return d.Passing(within)
	})
	mux.HandleFunc("POST "+pathReload, func(w http.ResponseWriter, r *http.Request) {
		d.answer(w, doneWith(d.Reload(r.Context())), nil)
	})
	mux.HandleFunc("POST "+pathLeave, func(w http.ResponseWriter, r *http.Request) {
		d.answer(w, doneWith(d.Leave(r.Context())), nil)
	})
	mux.HandleFunc("POST "+pathEnd, func(w http.ResponseWriter, _ *http.Request) {
		n, err := 0, errors.New("this node is not leaving")
		if d.Status().Leaving != "" {
			n, err = d.End()
		}
		what := doneWith(err)
		what.Ended = n
		d.answer(w, what, nil)
	})
	mux.HandleFunc("POST "+pathDrain, func(w http.ResponseWriter, r *http.Request) {
		how, err := readDrain(r.URL.Query().Get)
		if err == nil {
			err = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // it takes as long as connections are open
		}
		if err == nil {
			err = d.Drain(r.Context(), how)
		}
		d.answer(w, doneWith(err), nil)
	})
	web := &http.Server{
		Handler: http.MaxBytesHandler(mux, 1<<16), ReadHeaderTimeout: 5 * time.Second, WriteTimeout: time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		<-ctx.Done()
		ending, stop := context.WithTimeout(context.WithoutCancel(ctx), farewell)
		defer stop()
		if web.Shutdown(ending) != nil {
			_ = web.Close() // the process ends
		}
	}()
	err := web.Serve(rootOnly{l})
	if errors.Is(err, http.ErrServerClosed) {
		<-answered
		return nil
	}
	return err
}

// farewell is how long the last answers may take, when the process ends.
const farewell = time.Second

// readDrain reads the parameters of a drain.
func readDrain(get func(string) string) (how Drain, err error) {
	var errs [2]error
	how.Settle, errs[0] = time.ParseDuration(get("settle"))
	how.Timeout, errs[1] = time.ParseDuration(get("timeout"))
	if err := errors.Join(errs[:]...); err != nil {
		return how, fmt.Errorf("%w: %w", ErrQuestion, err)
	}
	return how, nil
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
	_, ok := Peer(c)
	return ok
}

// Peer returns the id of the process at the other end of a connection over a Unix socket, 0 if it is unknown. It is trusted if
// it belongs to root or to the user of this process.
func Peer(c net.Conn) (pid int, trusted bool) {
	peer, err := credentials(c)
	if err != nil {
		return 0, false
	}
	return int(peer.Pid), peer.Uid == 0 || int(peer.Uid) == os.Geteuid()
}

// credentials returns what the kernel reports about the other end of a connection.
func credentials(c net.Conn) (peer *unix.Ucred, err error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.New("the connection has no credentials")
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return nil, err
	}
	failure := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return peer, errors.Join(err, failure)
}

func (d *Daemon) answer(w http.ResponseWriter, value any, err error) {
	if err != nil {
		status := http.StatusNotFound
		if errors.Is(err, ErrQuestion) {
			status = http.StatusBadRequest
		}
		http.Error(w, err.Error(), status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(value); err != nil {
		d.Log.Debug("a status question was not answered", "error", err)
	}
}
