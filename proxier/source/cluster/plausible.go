package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// Every API server creates the Service default/kubernetes when it starts, and creates it again within seconds when
// somebody deletes it. An API without it is not that of a working cluster: its etcd is empty, its server has just
// started, or some other program answers. Its lists would take all rules away.
//
//	the proxy knows the Service    lists count only if the API has the Service. Its deletion by an event is believed.
//	the proxy starts               lists count when the API has the Service, at the latest after newServerWait
//
// So a real cluster that has lost all its objects loses its rules as well: as soon as it has the Service again, its
// lists are confirmed. Other resources than Services and EndpointSlices carry no rules.

// newServerWait is how long the start waits for the Service default/kubernetes. Servers that only look like those of
// Kubernetes may not have it.
const newServerWait = 30 * time.Second

// reasonImplausible marks lists that are not used.
const reasonImplausible metav1.StatusReason = "Implausible"

var errImplausible = errors.New("not a list of a working cluster")

func implausible(why string) error { return fmt.Errorf("%s: %w; it is not used", why, errImplausible) }

// plausibility tells the lists of a working cluster from others.
type plausibility struct {
	client kubernetes.Interface
	store  *state.Store
	wait   time.Duration    // see newServerWait
	lacks  func() time.Time // when the first list lacked the Service of the API server; the first call decides
}

// check checks a complete list of a resource: it returns an error if the list must not be used.
func (p *plausibility) check(ctx context.Context, r resource) error {
	if r.name != resourceServices && r.name != resourceSlices {
		return nil
	}
	name := state.APIServer()
	known, _ := p.store.Service(name)
	if known == nil && (p.wait == 0 || !r.first.waits()) {
		return nil // it was deleted, or the server never had it
	}
	only := fields.OneTermEqualSelector("metadata.name", name.Name).String()
	list, err := p.client.CoreV1().Services(name.Namespace).List(ctx, metav1.ListOptions{FieldSelector: only})
	if err != nil {
		return fmt.Errorf("check the list: read the Service %s: %w; the list is not used", name, err)
	}
	there := slices.ContainsFunc(list.Items, func(s corev1.Service) bool { return s.Name == name.Name })
	if there || known == nil && time.Since(p.lacks()) >= p.wait {
		return nil
	}
	return implausible(fmt.Sprintf("the Kubernetes API lacks the Service %s, which every API server creates", name))
}
