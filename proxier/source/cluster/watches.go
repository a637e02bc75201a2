package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// A watch that ends earlier was cut off. The next one waits for a moment, and longer each time: client-go would open
	// it at once, from all nodes together.
	shortWatch     = 10 * time.Second
	firstReopening = 100 * time.Millisecond
	lastReopening  = 5 * time.Second

	// API servers let a watch live for five to ten minutes, as the proxy asks them to. A watch that ends earlier may have
	// lost its server. The next one may meet an older state, see wentBack.
	fullWatch = 5 * time.Minute

	// After an outage, the proxy reads everything once more. Thousands of nodes must not do so at the same time.
	confirmWithin = 10 * time.Minute
)

// watches lists one resource and opens its watches, one after the other. Only the reflector's goroutine uses it.
type watches struct {
	r       resource
	log     *slog.Logger
	confirm time.Duration                         // see confirmWithin
	check   func(context.Context, resource) error // is a complete list plausible?
	works   func()

	opened   time.Time    // the latest watch
	pauses   wait.Backoff // before the next one, if that was short
	lost     bool         // the server was away since the latest list
	expireAt time.Time    // when everything is read again; zero: never
}

func newWatches(r resource, log *slog.Logger) *watches {
	w := &watches{r: r, log: log}
	w.calm()
	return w
}

func (s *watches) calm() {
	s.pauses = wait.Backoff{Duration: firstReopening, Factor: 2, Steps: 7, Cap: lastReopening, Jitter: 1}
}

// list lists the resource, or a page of it.
func (s *watches) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	s.r.tweak(&o)
	ctx, cancel := context.WithTimeout(ctx, AnswerPatience)
	defer cancel()
	page, err := s.r.list(ctx, o)
	if err != nil {
		return nil, err
	}
	last, err := isLastPage(page)
	if err != nil || !last {
		return page, err
	}
	return page, s.complete(ctx)
}

// isLastPage reports whether a list ends with a page. A page without a version is none: some other program answered.
func isLastPage(page runtime.Object) (bool, error) {
	list, err := meta.ListAccessor(page)
	switch {
	case err != nil:
		return false, fmt.Errorf("read a list: %w; it is not used", err)
	case list.GetResourceVersion() == "":
		return false, implausible("the list has no resource version")
	case list.GetContinue() != "":
		return false, nil
	case list.GetRemainingItemCount() != nil && *list.GetRemainingItemCount() > 0:
		return false, implausible("the list ends before its last object")
	}
	return true, nil
}

// complete checks a complete list before it is used.
func (s *watches) complete(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, AnswerPatience)
	defer cancel()
	if err := s.check(ctx, s.r); err != nil {
		return err
	}
	s.lost, s.expireAt = false, time.Time{}
	s.works()
	return nil
}

// watch opens a watch.
func (s *watches) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	s.r.tweak(&o)
	if err := s.pause(ctx); err != nil {
		return nil, err
	}
	again := o.SendInitialEvents == nil && o.ResourceVersion != "" && o.ResourceVersion != "0"
	if again && (s.lost || time.Since(s.opened) < fullWatch) {
		back, err := s.wentBack(ctx, o.ResourceVersion)
		if err != nil {
			s.lost = true
			return nil, err
		}
		if back {
			return expired(), nil
		}
	}
	w, cancel, err := s.open(ctx, o)
	if err != nil {
		s.lost = s.lost || again
		return nil, err
	}
	if again && s.lost {
		s.lost, s.expireAt = false, time.Now().Add(rand.N(s.confirm))
	}
	s.opened = time.Now()
	if again {
		s.works()
	}
	expire := s.expireAt
	if !again {
		expire = time.Time{} // this is the list that is due
	}
	return supervise(w, cancel, o, expire, func() error { return s.complete(ctx) }), nil
}

// pause waits before the next watch if the latest one was short.
func (s *watches) pause(ctx context.Context) error {
	if s.opened.IsZero() || time.Since(s.opened) > shortWatch {
		s.calm()
		return nil
	}
	select {
	case <-time.After(s.pauses.Step()):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wentBack reports whether the API server has a state that is older than a version, because its etcd was restored from a
// backup. A watch from the future would deliver nothing until the versions meet, and never what differs.
func (s *watches) wentBack(ctx context.Context, version string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerPatience)
	defer cancel()
	o := metav1.ListOptions{Limit: 1}
	s.r.tweak(&o)
	page, err := s.r.list(ctx, o)
	if err != nil {
		return false, err
	}
	list, err := meta.ListAccessor(page)
	if err != nil {
		return false, fmt.Errorf("read a list: %w", err)
	}
	order, err := resourceversion.CompareResourceVersion(list.GetResourceVersion(), version)
	if err != nil {
		return true, nil // not a version of an API server: a new list shows what to do
	}
	if order < 0 {
		s.log.Warn("the Kubernetes API has gone back to an older state; everything is read again",
			"resource", s.r.name, "version", list.GetResourceVersion(), "before", version)
	}
	return order < 0, nil
}

// open opens a watch, which ends with its context. It waits for its beginning only, not longer than for any other answer.
func (s *watches) open(ctx context.Context, o metav1.ListOptions) (watch.Interface, context.CancelFunc, error) {
	ctx, cancel := context.WithCancel(ctx)
	slow := time.AfterFunc(AnswerPatience, cancel)
	w, err := s.r.watch(ctx, o)
	if !slow.Stop() && err != nil {
		err = fmt.Errorf("open a watch: no answer within %v: %w", AnswerPatience, err)
	}
	if err != nil {
		cancel()
		return nil, nil, err
	}
	return w, cancel, nil
}

func expired() watch.Interface {
	events := make(chan watch.Event, 1)
	events <- expiredEvent()
	close(events)
	return watch.NewProxyWatcher(events)
}
