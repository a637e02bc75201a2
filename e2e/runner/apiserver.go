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
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/verdict-proxy/verdict/e2e/apiserver"
	"github.com/verdict-proxy/verdict/e2e/scenario"
)

// apiServer writes objects to an API server.
type apiServer struct {
	plane      *apiserver.ControlPlane
	kubeconfig string
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
const namespacePatience = 3 * time.Minute

// create creates an object. It tries again while the object's namespace does not exist.
func (s *apiServer) create(o scenario.Object) error {
	for end := time.Now().Add(namespacePatience); ; time.Sleep(50 * time.Millisecond) {
		err := s.Put(o)
		if err == nil || !apierrors.IsNotFound(err) || time.Now().After(end) {
			return err
		}
	}
}

// Put implements source.
func (s *apiServer) Put(o scenario.Object) error {
	return s.plane.Put(context.Background(), untyped(o))
}

// Delete implements source.
func (s *apiServer) Delete(o scenario.Object) error {
	return s.plane.Delete(context.Background(), untyped(o))
}

func untyped(o scenario.Object) runtime.Object { return &unstructured.Unstructured{Object: o} }

// event fails unless the API server has the Event.
func (w *objects) event(do *scenario.Event) error {
	s, ok := w.source.(*apiServer)
	if !ok {
		return errors.New("only an API server has Events: add an only-apiserver line to the scenario")
	}
	list, err := s.plane.Client.EventsV1().Events("default").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Events: %w", err)
	}
	for i := range list.Items {
		e := &list.Items[i]
		if e.Regarding.Kind == do.Kind && e.Regarding.Name == do.Name && e.Reason == do.Reason {
			return nil
		}
	}
	return errors.New("the API server has no such Event")
}
