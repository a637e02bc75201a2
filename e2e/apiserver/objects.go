package apiserver

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
)

// Put creates or replaces objects. It writes a status with a request of its own, as controllers do.
func (c *ControlPlane) Put(ctx context.Context, objects ...runtime.Object) error {
	for _, o := range objects {
		r, u, err := c.resource(o)
		if err == nil {
			err = put(ctx, r, u)
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", describe(u), err)
		}
	}
	return nil
}

func put(ctx context.Context, r dynamic.ResourceInterface, u *unstructured.Unstructured) error {
	got, err := r.Update(ctx, u, metav1.UpdateOptions{})
	created := apierrors.IsNotFound(err)
	if created {
		got, err = r.Create(ctx, u, metav1.CreateOptions{})
	}
	if err != nil {
		return err
	}
	was, exists := got.Object["status"]
	status, has := u.Object["status"]
	if !has && (created || !exists) || equality.Semantic.DeepEqual(status, was) {
		return nil
	}
	if !has {
		status = map[string]any{} // of the object that was replaced
	}
	got.Object["status"] = status
	_, err = r.UpdateStatus(ctx, got, metav1.UpdateOptions{})
	return err
}

// Delete deletes objects at once. Their names say which.
func (c *ControlPlane) Delete(ctx context.Context, objects ...runtime.Object) error {
	for _, o := range objects {
		r, u, err := c.resource(o)
		if err == nil {
			err = r.Delete(ctx, u.GetName(), metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
		}
		if err != nil {
			return fmt.Errorf("delete %s: %w", describe(u), err)
		}
	}
	return nil
}

// resource is the API for an object, and the object without its type.
func (c *ControlPlane) resource(o runtime.Object) (dynamic.ResourceInterface, *unstructured.Unstructured, error) {
	u, untyped := o.(*unstructured.Unstructured)
	if !untyped {
		u = &unstructured.Unstructured{}
		kinds, _, err := scheme.Scheme.ObjectKinds(o)
		if err == nil {
			u.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		}
		if err != nil {
			return nil, u, err
		}
		u.SetGroupVersionKind(kinds[0])
	}
	of, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
	if u.GetNamespace() == "" {
		return c.dynamic.Resource(of), u, nil
	}
	return c.dynamic.Resource(of).Namespace(u.GetNamespace()), u, nil
}

func describe(u *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s/%s", u.GetKind(), u.GetNamespace(), u.GetName())
}
