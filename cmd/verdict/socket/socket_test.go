//go:build !nokernel

package socket

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/netns"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/report"
	"github.com/verdict-proxy/verdict/proxier/state"
)

func TestMain(m *testing.M) { os.Exit(netns.Main(m)) }

// serving runs a server in a namespace.
func serving(t *testing.T, ns *netns.Namespace, j *Journal, store *state.Store) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	ns.MustDo(t, func() error {
		l, err := Listen(ctx)
		if err != nil {
			return err
		}
		go func() {
			done <- Serve(ctx, l, &Daemon{Journal: j, Store: store, NodeName: "n1", Version: "v1", Log: slog.New(slog.DiscardHandler)})
		}()
		return nil
	})
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// inside asks from the namespace. The connection is made on another thread than this one, so the whole program enters.
func inside[T any](t *testing.T, ns *netns.Namespace, ask func(*Client) (T, error)) (answer T, err error) {
	t.Helper()
	ns.MustDo(t, func() error {
		answer, err = ask(NewClient())
		return nil
	})
	return answer, err
}

func TestQuestions(t *testing.T) {
	ns := netns.New(t)
	if _, err := inside(t, ns, (*Client).Status); !errors.Is(err, ErrNotRunning) {
		t.Errorf("without a daemon: %v", err)
	}
	j, store := NewJournal(), state.NewStore()
	web := state.Name{Namespace: "default", Name: "web"}
	store.SetService(&state.Service{
		Name: web, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")},
		Ports: []state.ServicePort{{Name: "http", Protocol: state.TCP, Port: 80}},
	}, nil)
	store.SetSlice(&state.Slice{
		Name: state.Name{Namespace: "default", Name: "web-1"}, Service: web, Family: state.IPv4, Weight: 1,
		Ports:     []state.SlicePort{{Name: "http", Protocol: state.TCP, Port: 8080}},
		Endpoints: []state.Endpoint{{Addr: netip.MustParseAddr("10.0.0.1"), Node: "n2"}},
	}, nil)
	store.MarkSynced()
	serving(t, ns, j, store)
	for i := range maxPasses + 5 {
		j.PassDone(&report.Pass{Started: time.Unix(int64(i), 0), Services: i, Result: dataplane.Result{Added: i}})
	}
	j.Pending(time.Unix(99, 0))
	j.Problems([]state.ObjectProblems{{Object: state.Object{Kind: "Service", Name: web}, Problems: []state.Problem{{Kind: "Service", Object: web, Field: "spec.x", Reason: "wrong"}}}})

	status, err := inside(t, ns, (*Client).Status)
	if err != nil || status.PID != os.Getpid() || status.Passes != maxPasses+5 || status.WaitingServices != 1 || !status.Waiting.Equal(time.Unix(99, 0)) {
		t.Errorf("status %+v, %v", status, err)
	}
	passes, err := inside(t, ns, (*Client).Passes)
	if err != nil || len(passes) != maxPasses || passes[0].Services != maxPasses+4 || passes[maxPasses-1].Services != 5 {
		t.Errorf("%d passes, %v", len(passes), err)
	}
	problems, err := inside(t, ns, func(c *Client) ([]Problem, error) { return c.Problems("default/web") })
	if want := (Problem{"Service", "default/web", "spec.x", "wrong"}); err != nil || len(problems) != 1 || problems[0] != want {
		t.Errorf("problems %+v, %v", problems, err)
	}
	if other, err := inside(t, ns, func(c *Client) ([]Problem, error) { return c.Problems("default/other") }); err != nil || len(other) != 0 {
		t.Errorf("problems of another Service: %v, %v", other, err)
	}
	ends, err := inside(t, ns, func(c *Client) ([]Endpoint, error) { return c.Endpoints("default/web") })
	if want := (Endpoint{Port: "default/web:http", Addr: "10.0.0.1:8080", Node: "n2", OutOfCluster: "not ready", OutOfLocal: "not ready"}); err != nil || len(ends) != 1 || ends[0] != want {
		t.Errorf("endpoints %+v, %v", ends, err)
	}
	for _, wrong := range []string{"web", "default/none"} {
		if _, err := inside(t, ns, func(c *Client) ([]Endpoint, error) { return c.Endpoints(wrong) }); err == nil || errors.Is(err, ErrNotRunning) {
			t.Errorf("endpoints of %s: %v", wrong, err)
		}
	}
}

// TestStrangers: another user gets no answer.
func TestStrangers(t *testing.T) {
	ns := netns.New(t)
	serving(t, ns, NewJournal(), state.NewStore())
	ns.MustDo(t, func() error {
		const nobody = 65534
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); errno != 0 { // of this thread, which ends
			return errno
		}
		if status, err := NewClient().Status(); err == nil {
			t.Errorf("another user got %+v", status)
		}
		return nil
	})
}

// TestNoStrangerIsAsked: a process of another user that has the name of the socket is not asked. It has no capability.
func TestNoStrangerIsAsked(t *testing.T) {
	ns := netns.New(t)
	ns.MustDo(t, func() error {
		const nobody = 65534
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); errno != 0 { // of this thread, which ends
			return errno
		}
		l, err := Listen(t.Context())
		if err == nil {
			t.Cleanup(func() { _ = l.Close() })
		}
		return err
	})
	if _, err := inside(t, ns, (*Client).Status); !errors.Is(err, errStranger) {
		t.Errorf("asking a stranger: %v", err)
	}
}
