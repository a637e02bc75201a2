package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/verdict-proxy/verdict/e2e/apiserver"
	"github.com/verdict-proxy/verdict/e2e/scenario"
)

// apiServer writes objects to an API server. Nothing else writes them, so apiServer knows their resource versions.
type apiServer struct {
	plane      *apiserver.ControlPlane
	client     dynamic.Interface
	kubeconfig string
	versions   map[string]string
}

func newAPIServer(plane *apiserver.ControlPlane) (*apiServer, error) {
	client, err := dynamic.NewForConfig(plane.Config())
	if err != nil {
		return nil, fmt.Errorf("create a client of the API server: %w", err)
	}
	return &apiServer{plane: plane, client: client, versions: map[string]string{}}, nil
}

// Arguments implements source.
func (s *apiServer) Arguments() []string { return []string{"--kubeconfig=" + s.kubeconfig} }

// deploy writes the manifest that Verdict ships. The proxy uses its ServiceAccount.
func (s *apiServer) deploy(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the manifest that Verdict ships: %w", err)
	}
	account := scenario.Object{}
	for _, document := range strings.Split("\n"+string(text), "\n---\n") {
		o := scenario.Object{}
		if err := yaml.UnmarshalStrict([]byte(document), &o); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := s.create(o); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if o.Kind() == "ServiceAccount" {
			account = o
		}
	}
	s.kubeconfig, err = s.plane.ServiceAccount(account.Namespace(), account.Name())
	return err
}

// namespacePatience is how long a new API server may take to create its own namespaces.
const namespacePatience = 20 * time.Second

// create creates an object. It tries again while the object's namespace does not exist.
func (s *apiServer) create(o scenario.Object) error {
	for end := time.Now().Add(namespacePatience); ; time.Sleep(50 * time.Millisecond) {
		err := s.Put(o)
		if err == nil || !apierrors.IsNotFound(err) || time.Now().After(end) {
			return err
		}
	}
}

// resource is the API for objects of a kind.
func (s *apiServer) resource(kind, namespace string) (dynamic.ResourceInterface, error) {
	groups := map[string]schema.GroupVersionResource{
		"Service":            {Version: "v1", Resource: "services"},
		"Node":               {Version: "v1", Resource: "nodes"},
		"EndpointSlice":      {Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"},
		"ServiceCIDR":        {Group: "networking.k8s.io", Version: "v1", Resource: "servicecidrs"},
		"ServiceAccount":     {Version: "v1", Resource: "serviceaccounts"},
		"ClusterRole":        {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
		"ClusterRoleBinding": {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
		"DaemonSet":          {Group: "apps", Version: "v1", Resource: "daemonsets"},
		"ConfigMap":          {Version: "v1", Resource: "configmaps"},
	}
	gvr, ok := groups[kind]
	if !ok {
		return nil, fmt.Errorf("the runner cannot write objects of kind %q: add it to the groups in apiserver.go", kind)
	}
	if namespace == "" {
		return s.client.Resource(gvr), nil
	}
	return s.client.Resource(gvr).Namespace(namespace), nil
}

// Put implements source. It writes the status separately.
func (s *apiServer) Put(o scenario.Object) error {
	r, err := s.resource(o.Kind(), o.Namespace())
	if err != nil {
		return err
	}
	ctx := context.Background()
	u := &unstructured.Unstructured{Object: map[string]any(o)}
	u = u.DeepCopy()
	version, exists := s.versions[key(o)]
	var got *unstructured.Unstructured
	if exists {
		u.SetResourceVersion(version)
		got, err = r.Update(ctx, u, metav1.UpdateOptions{})
	} else {
		got, err = r.Create(ctx, u, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", key(o), err)
	}
	s.versions[key(o)] = got.GetResourceVersion()
	_, has := o["status"]
	if !has && !exists || o.Kind() == "EndpointSlice" {
		return nil
	}
	return s.putStatus(ctx, r, o, got)
}

// putStatus writes the status as controllers do: with a request of its own.
func (s *apiServer) putStatus(
	ctx context.Context, r dynamic.ResourceInterface, o scenario.Object, u *unstructured.Unstructured,
) error {
	status, ok := o["status"].(map[string]any)
	if !ok {
		status = map[string]any{}
	}
	u.Object["status"] = status
	got, err := r.UpdateStatus(ctx, u, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("write the status of %s: %w", key(o), err)
	}
	s.versions[key(o)] = got.GetResourceVersion()
	return nil
}

// Delete implements source.
func (s *apiServer) Delete(kind, namespace, name string) error {
	r, err := s.resource(kind, namespace)
	if err != nil {
		return err
	}
	delete(s.versions, kind+"/"+namespace+"/"+name)
	now := int64(0)
	err = r.Delete(context.Background(), name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	if err != nil {
		return fmt.Errorf("delete %s %s: %w", kind, name, err)
	}
	return nil
}

// hasEvent reports whether the API server has an Event about an object.
func (s *apiServer) hasEvent(kind, name, reason string) (bool, error) {
	list, err := s.plane.Client.EventsV1().Events("default").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("list Events: %w", err)
	}
	for i := range list.Items {
		e := &list.Items[i]
		if e.Regarding.Kind == kind && e.Regarding.Name == name && e.Reason == reason {
			return true, nil
		}
	}
	return false, nil
}

var errNoEvents = errors.New("only an API server has Events: add an only-apiserver line to the scenario")

// event fails unless the API server has the Event.
func (w *objects) event(do *scenario.Event) error {
	s, ok := w.source.(*apiServer)
	if !ok {
		return errNoEvents
	}
	has, err := s.hasEvent(do.Kind, do.Name, do.Reason)
	if err == nil && !has {
		err = errors.New("the API server has no such Event")
	}
	return err
}
