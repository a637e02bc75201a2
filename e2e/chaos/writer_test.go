//go:build e2e

package chaos

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/verdict-proxy/verdict/e2e/apiserver"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/objects"
)

// writePatience is how long a change may take. The API server may be stopped.
const writePatience = 2 * time.Second

// writer creates, changes and deletes objects.
type writer interface {
	put(context.Context, runtime.Object) error
	remove(context.Context, runtime.Object) error
}

// apiWriter writes objects as controllers do.
type apiWriter struct{ *apiserver.ControlPlane }

// put creates or replaces an object. A Service that exists and cannot be changed in this way is deleted.
func (w apiWriter) put(ctx context.Context, o runtime.Object) error {
	err := w.Put(ctx, o)
	if _, isService := o.(*corev1.Service); isService && apierrors.IsInvalid(err) && w.Delete(ctx, o) == nil {
		return nil
	}
	return err
}

func (w apiWriter) remove(ctx context.Context, o runtime.Object) error { return w.Delete(ctx, o) }

// manifestFolder writes objects into a folder of manifests.
type manifestFolder string

func (dir manifestFolder) file(o runtime.Object) string {
	name, kind := o.(metav1.Object), strings.ToLower(o.GetObjectKind().GroupVersionKind().Kind)
	return strings.Join([]string{kind, name.GetNamespace(), name.GetName()}, ".") + ".yaml"
}

// put gives a Service addresses by its name, as an API server would choose them.
func (dir manifestFolder) put(_ context.Context, o runtime.Object) error {
	if svc, isService := o.(*corev1.Service); isService && svc.Spec.ClusterIP == "" {
		h := fnv.New32()
		fmt.Fprint(h, svc.Namespace, "/", svc.Name)
		n := h.Sum32()
		svc.Spec.ClusterIPs = []string{fmt.Sprintf("10.97.%d.%d", n>>8&0xff, n&0xff), fmt.Sprintf("fd00:10:96::7:%x", n&0xffff)}
		if *svc.Spec.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack {
			svc.Spec.ClusterIPs = svc.Spec.ClusterIPs[:1]
		}
		svc.Spec.ClusterIP = svc.Spec.ClusterIPs[0]
	}
	return lab.WriteFile(string(dir), dir.file(o), []byte(objects.Manifest(o)))
}

func (dir manifestFolder) remove(_ context.Context, o runtime.Object) error {
	return os.Remove(filepath.Join(string(dir), dir.file(o)))
}
