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
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/objects"
)

// writePatience is how long a change may take. The API server may be stopped.
const writePatience = 2 * time.Second

// writer creates, changes and deletes objects.
type writer interface {
	node(context.Context, *corev1.Node) error
	service(context.Context, *corev1.Service) error
	slice(context.Context, *discoveryv1.EndpointSlice) error
	remove(ctx context.Context, namespace, service string) error
	removeSlice(ctx context.Context, namespace, name string) error
}

// apiWriter writes objects as controllers do.
type apiWriter struct{ client kubernetes.Interface }

func (w apiWriter) node(ctx context.Context, n *corev1.Node) error {
	status := n.Status
	got, err := w.client.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{})
	if err == nil {
		got.Status = status
		_, err = w.client.CoreV1().Nodes().UpdateStatus(ctx, got, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write node %s: %w", n.Name, err)
	}
	return nil
}

// service creates a Service, or changes the one that exists. One that cannot be changed in this way is deleted.
func (w apiWriter) service(ctx context.Context, svc *corev1.Service) error {
	api, status := w.client.CoreV1().Services(svc.Namespace), svc.Status
	got, err := api.Create(ctx, svc, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		old, getErr := api.Get(ctx, svc.Name, metav1.GetOptions{})
		if getErr != nil {
			return getErr
		}
		svc.ResourceVersion = old.ResourceVersion
		if got, err = api.Update(ctx, svc, metav1.UpdateOptions{}); apierrors.IsInvalid(err) {
			return api.Delete(ctx, svc.Name, metav1.DeleteOptions{})
		}
	}
	if err == nil && len(status.LoadBalancer.Ingress) > 0 {
		got.Status = status
		_, err = api.UpdateStatus(ctx, got, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write Service %s/%s: %w", svc.Namespace, svc.Name, err)
	}
	return nil
}

func (w apiWriter) slice(ctx context.Context, sl *discoveryv1.EndpointSlice) error {
	api := w.client.DiscoveryV1().EndpointSlices(sl.Namespace)
	_, err := api.Create(ctx, sl, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = api.Update(ctx, sl, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write EndpointSlice %s/%s: %w", sl.Namespace, sl.Name, err)
	}
	return nil
}

func (w apiWriter) remove(ctx context.Context, namespace, service string) error {
	return w.client.CoreV1().Services(namespace).Delete(ctx, service, metav1.DeleteOptions{})
}

func (w apiWriter) removeSlice(ctx context.Context, namespace, name string) error {
	return w.client.DiscoveryV1().EndpointSlices(namespace).Delete(ctx, name, metav1.DeleteOptions{})
}

// folder writes objects into a folder of manifests.
type folder string

func fileOf(kind, namespace, name string) string {
	return strings.Join([]string{kind, namespace, name}, ".") + ".yaml"
}

func (dir folder) put(kind, namespace, name string, o any) error {
	return lab.WriteFile(string(dir), fileOf(kind, namespace, name), []byte(objects.Manifest(o)))
}

func (dir folder) node(_ context.Context, n *corev1.Node) error {
	return dir.put("node", "", n.Name, n)
}

// service gives the Service addresses by its name, as an API server would choose them.
func (dir folder) service(_ context.Context, svc *corev1.Service) error {
	if svc.Spec.ClusterIP == "" {
		h := fnv.New32()
		fmt.Fprint(h, svc.Namespace, "/", svc.Name)
		n := h.Sum32()
		svc.Spec.ClusterIPs = []string{fmt.Sprintf("10.97.%d.%d", n>>8&0xff, n&0xff), fmt.Sprintf("fd00:10:96::7:%x", n&0xffff)}
		if *svc.Spec.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack {
			svc.Spec.ClusterIPs = svc.Spec.ClusterIPs[:1]
		}
		svc.Spec.ClusterIP = svc.Spec.ClusterIPs[0]
	}
	return dir.put("service", svc.Namespace, svc.Name, svc)
}

func (dir folder) slice(_ context.Context, sl *discoveryv1.EndpointSlice) error {
	return dir.put("slice", sl.Namespace, sl.Name, sl)
}

func (dir folder) remove(_ context.Context, namespace, service string) error {
	return os.Remove(filepath.Join(string(dir), fileOf("service", namespace, service)))
}

func (dir folder) removeSlice(_ context.Context, namespace, name string) error {
	return os.Remove(filepath.Join(string(dir), fileOf("slice", namespace, name)))
}
