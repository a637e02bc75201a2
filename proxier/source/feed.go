package source

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// feed takes what a reflector delivers for one resource, converts it at once and passes differences on. The API object
// is garbage as soon as a method returns.
type feed[O metav1.Object, T any] struct {
	convert   func(O) (*T, []state.Problem)
	strings   *interner
	sink      *sink[T]
	delivered func() // called after each complete list
}

// A streamed list (WatchList) is gathered in a store of the reflector's; as a TransformingStore we make it keep found
// values there, not API objects.
var _ cache.TransformingStore = (*feed[metav1.Object, state.Service])(nil)

// Add takes a new object.
func (f *feed[O, T]) Add(obj any) error { return f.Update(obj) }

// Update takes a changed object.
func (f *feed[O, T]) Update(obj any) error {
	v, err := f.find(obj)
	if err != nil {
		return err
	}
	f.sink.put(v)
	return nil
}

// Delete takes an object that is gone; all that is left of it may be a tombstone with its key.
func (f *feed[O, T]) Delete(obj any) error {
	name, err := cache.DeletionHandlingObjectToName(obj)
	if err != nil {
		return fmt.Errorf("delete from %s: the object %T has no name, it stays in force: %w", f.sink.kind, obj, err)
	}
	f.sink.drop(state.Name{Namespace: name.Namespace, Name: name.Name})
	return nil
}

// Replace takes a complete list: at the start and when a watch was lost for too long. What it lacks is gone.
func (f *feed[O, T]) Replace(objects []any, _ string) error {
	all := make([]found[T], 0, len(objects))
	for i, obj := range objects {
		v, err := f.find(obj)
		if err != nil {
			return err
		}
		all = append(all, v)
		objects[i] = nil // a list that was not streamed holds API objects: let each go once it is converted
	}
	f.sink.replace(all)
	f.delivered()
	return nil
}

// Resync is never asked for: values in the store stay until they are applied.
func (f *feed[O, T]) Resync() error { return nil }

// Transformer converts the objects of a streamed list as they arrive.
func (f *feed[O, T]) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return f.find(obj) }
}

// find converts an object, unless the transformer already did.
func (f *feed[O, T]) find(obj any) (found[T], error) {
	switch o := obj.(type) {
	case found[T]:
		return o, nil
	case O:
		value, problems := f.convert(o)
		name := state.Name{Namespace: f.strings.share(o.GetNamespace()), Name: o.GetName()}
		return found[T]{name: name, value: value, problems: problems}, nil
	}
	return found[T]{}, fmt.Errorf("convert to %s: the API delivered a %T, which is ignored", f.sink.kind, obj)
}
