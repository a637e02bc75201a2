package cluster

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// AnswerPatience is how long a request may take. An API server ends each one but watches after a minute; what takes longer hangs,
// for example in a load balancer.
const AnswerPatience = 75 * time.Second

const endPatience = 30 * time.Second // how much longer than agreed a watch may live

// supervise passes on the events of a watch, and ends the watch when it hangs or when everything is to be read again. A
// list that the server streams is passed on to its end only if it is plausible: until then, the reflector uses nothing
// of it.
func supervise(w watch.Interface, cancel context.CancelFunc, o metav1.ListOptions, expire time.Time, complete func() error) watch.Interface {
	out := make(chan watch.Event)
	proxy := watch.NewProxyWatcher(out)
	v := supervisor{
		from: w.ResultChan(), out: out, stop: proxy.StopChan(),
		listing:  o.SendInitialEvents != nil && *o.SendInitialEvents,
		complete: complete,
	}
	var end time.Duration
	if o.TimeoutSeconds != nil {
		end = time.Duration(*o.TimeoutSeconds)*time.Second + endPatience
	}
	go func() {
		defer close(out)
		defer w.Stop()
		defer cancel()
		v.run(expire, end)
	}()
	return proxy
}

// supervisor watches over one watch.
type supervisor struct {
	from     <-chan watch.Event
	out      chan<- watch.Event
	stop     <-chan struct{}
	listing  bool // the end of the streamed list has not come
	complete func() error
}

// run ends when the watch ends, when the reader stops it, or at one of the times; zero is never.
func (v *supervisor) run(expire time.Time, end time.Duration) {
	silence := time.NewTimer(AnswerPatience)
	defer silence.Stop()
	var expires, ends <-chan time.Time
	if !expire.IsZero() {
		expires = time.After(time.Until(expire))
	}
	if end > 0 {
		ends = time.After(end)
	}
	for {
		select {
		case <-v.stop:
			return
		case e, open := <-v.from:
			if !open || !v.pass(e) {
				return
			}
			if v.listing {
				silence.Reset(AnswerPatience)
			}
		case <-silence.C:
			if v.listing {
				v.send(broken("the list that the server streams has stopped"))
				return
			}
		case <-expires:
			v.send(expiredEvent())
			return
		case <-ends: // the reflector opens the next one
			return
		}
	}
}

// pass passes an event on, and reports whether the watch goes on.
func (v *supervisor) pass(e watch.Event) bool {
	if v.listing && endsList(e) {
		if err := v.complete(); err != nil {
			v.send(broken(err.Error()))
			return false
		}
		v.listing = false
	}
	return v.send(e)
}

func (v *supervisor) send(e watch.Event) bool {
	select {
	case v.out <- e:
		return true
	case <-v.stop:
		return false
	}
}

// endsList reports whether an event is the one that ends a streamed list.
func endsList(e watch.Event) bool {
	if e.Type != watch.Bookmark {
		return false
	}
	o, err := meta.Accessor(e.Object)
	return err == nil && o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}

// broken ends a watch with an error that the reflector does not interpret.
func broken(message string) watch.Event {
	return watch.Event{Type: watch.Error, Object: &metav1.Status{Status: metav1.StatusFailure, Message: message, Reason: reasonImplausible}}
}

// expiredEvent has the reflector list again.
func expiredEvent() watch.Event {
	status := apierrors.NewResourceExpired("everything is read again").ErrStatus
	return watch.Event{Type: watch.Error, Object: &status}
}
