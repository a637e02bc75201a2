package cluster

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/verdict-proxy/verdict/proxier/source/convert"
	"github.com/verdict-proxy/verdict/proxier/source/sink"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// feed receives the objects of one resource from a reflector, converts them at once and passes them to a sink. It keeps
// no API object after a method has returned.
type feed[O metav1.Object, T any] struct {
	converter *convert.Converter
	convert   func(O) (*T, []state.Problem)
	sink      *sink.Sink[T]
	delivered func() // called after each complete list
}

func newFeed[O metav1.Object, T any](
	c *convert.Converter, convert func(O) (*T, []state.Problem), into *sink.Sink[T], delivered func(),
) *feed[O, T] {
	return &feed[O, T]{converter: c, convert: convert, sink: into, delivered: delivered}
}

// The reflector collects a streamed list (WatchList) in a store of its own. Because feed is a TransformingStore, that
// store holds values of type found and no API objects.
var _ cache.TransformingStore = (*feed[metav1.Object, state.Service])(nil)

// Add receives a new object.
func (f *feed[O, T]) Add(obj any) error { return f.Update(obj) }

// Update receives a changed object.
func (f *feed[O, T]) Update(obj any) error {
	v, err := f.find(obj)
	if err != nil {
		return err
	}
	f.sink.Put(v)
	return nil
}

// Delete receives an object that is gone, or a tombstone that has only its key.
func (f *feed[O, T]) Delete(obj any) error {
	name, err := cache.DeletionHandlingObjectToName(obj)
	if err != nil {
		return fmt.Errorf("delete an object of kind %s: %T has no name: %w; the object stays in force", f.sink.Kind, obj, err)
	}
	f.sink.Drop(state.Name{Namespace: name.Namespace, Name: name.Name})
	return nil
}

// Replace receives a complete list, at the start and after a watch was interrupted for too long. Objects that are not
// in the list are gone.
func (f *feed[O, T]) Replace(objects []any, _ string) error {
	all := make([]sink.Found[T], 0, len(objects))
	for i, obj := range objects {
		v, err := f.find(obj)
		if err != nil {
			return err
		}
		all = append(all, v)
		objects[i] = nil // frees the API object, which is in the list if the list was not streamed
	}
	f.sink.Replace(all)
	f.delivered()
	return nil
}

// Resync does nothing: the store keeps changes until they are applied, so none has to be delivered again.
func (f *feed[O, T]) Resync() error { return nil }

// Transformer converts the objects of a streamed list as they arrive.
func (f *feed[O, T]) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return f.find(obj) }
}

// find converts an object, unless the transformer has converted it.
func (f *feed[O, T]) find(obj any) (sink.Found[T], error) {
	switch o := obj.(type) {
	case sink.Found[T]:
		return o, nil
	case O:
		value, problems := f.convert(o)
		return sink.Found[T]{Name: f.converter.NameOf(o), Value: value, Problems: problems}, nil
	}
	return sink.Found[T]{}, fmt.Errorf("convert to %s: the API server sent a %T; it is ignored", f.sink.Kind, obj)
}
