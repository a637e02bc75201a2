// Package fields lets a test prove that code looks at every field of a struct: a comparison, a copy, a plan. The test
// fails when the struct gains a field that the code ignores. Only tests import this package.
package fields

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"
)

// Each yields copies of base. In every copy one field differs from base, and the string is the path of that field. Each
// walks into structs, arrays, pointers and slices, and it changes unexported fields too. A nil pointer or an empty
// slice becomes one that holds a zero value. A slice that is not empty also loses its last element. Base itself is
// never changed.
//
//	for path, changed := range fields.Each(base) {
//		if equal(base, changed) {
//			t.Errorf("equal ignores %s", path)
//		}
//	}
func Each[T any](base T) iter.Seq2[string, T] {
	return func(yield func(string, T) bool) {
		for n := 0; ; n++ {
			changed := clone(reflect.ValueOf(&base))
			list := changes(changed.Elem(), "")
			if n == len(list) {
				return
			}
			list[n].part.Set(list[n].other)
			if !yield(strings.TrimPrefix(list[n].path, "."), changed.Elem().Interface().(T)) {
				return
			}
		}
	}
}

// Ignored are fields that a comparison does not look at, each with the reason.
type Ignored map[string]string

// Check changes each field of a value in turn. It reports where differs does not see a change, and where it sees one that it
// is said to ignore.
func Check[T any](t *testing.T, value T, reasons Ignored, differs func(changed T) bool) {
	t.Helper()
	unused := maps.Clone(reasons)
	for path, changed := range Each(value) {
		field, _, _ := strings.Cut(path, "[")
		delete(unused, field)
		if seen := differs(changed); seen == (reasons[field] != "") {
			t.Errorf("%T: a change of %s is seen: %t; ignored because: %q", value, path, seen, reasons[field])
		}
	}
	for field := range unused {
		t.Errorf("%T has no field %s that could be ignored", value, field)
	}
}

// CheckChanges is Check for a struct with parts that only the test knows how to change. Every field has a change.
func CheckChanges[T any](t *testing.T, value T, changes map[string]func(*T), reasons Ignored, differs func(changed T) bool) {
	t.Helper()
	typ := reflect.TypeFor[T]()
	for i := range typ.NumField() {
		name := typ.Field(i).Name
		if changes[name] == nil {
			t.Errorf("%s: the test does not know how to change the field %s", typ, name)
			continue
		}
		changed := value
		changes[name](&changed)
		if seen := differs(changed); seen == (reasons[name] != "") {
			t.Errorf("%s: a change of %s is seen: %t; ignored because: %q", typ, name, seen, reasons[name])
		}
	}
}

// change is another value of a part.
type change struct {
	path        string
	part, other reflect.Value
}

// changes lists the changes of a value and of its parts.
func changes(v reflect.Value, path string) (list []change) {
	if other, ok := otherValue(v); ok {
		return []change{{path, v, other}}
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			list = append(list, changes(writable(v.Field(i)), path+"."+v.Type().Field(i).Name)...)
		}
	case reflect.Pointer:
		if v.IsNil() {
			return []change{{path, v, reflect.New(v.Type().Elem())}}
		}
		return changes(v.Elem(), path)
	case reflect.Slice:
		if v.Len() == 0 {
			return []change{{path + "[new]", v, reflect.MakeSlice(v.Type(), 1, 1)}}
		}
		list = []change{{path + "[last]", v, v.Slice(0, v.Len()-1)}}
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			list = append(list, changes(v.Index(i), fmt.Sprintf("%s[%d]", path, i))...)
		}
	default:
		panic(fmt.Sprintf("fields.Each cannot change %s of type %s; teach it how", path, v.Type()))
	}
	return list
}

// otherValue returns a value that differs from v, for types that have no parts.
func otherValue(v reflect.Value) (other reflect.Value, ok bool) {
	switch value := v.Interface().(type) {
	case netip.Addr:
		return reflect.ValueOf(otherAddr(value)), true
	case netip.AddrPort:
		return reflect.ValueOf(netip.AddrPortFrom(value.Addr(), value.Port()+1)), true
	case netip.Prefix:
		return reflect.ValueOf(otherPrefix(value)), true
	case time.Time:
		return reflect.ValueOf(value.Add(time.Second)), true
	}
	other = reflect.New(v.Type()).Elem()
	switch {
	case v.Kind() == reflect.Bool:
		other.SetBool(!v.Bool())
	case v.Kind() == reflect.String:
		other.SetString(v.String() + "x")
	case v.CanInt():
		other.SetInt(v.Int() + 1)
	case v.CanUint():
		other.SetUint(v.Uint() + 1)
	case v.CanFloat():
		other.SetFloat(v.Float() + 1)
	default:
		return reflect.Value{}, false
	}
	return other, true
}

func otherAddr(a netip.Addr) netip.Addr {
	if !a.IsValid() {
		return netip.AddrFrom4([4]byte{192, 0, 2, 1})
	}
	return a.Next()
}

func otherPrefix(p netip.Prefix) netip.Prefix {
	if p.Bits() <= 0 {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, 0}), 24)
	}
	return netip.PrefixFrom(p.Addr(), p.Bits()-1).Masked()
}

// clone copies the value that pointer points to, with everything that it points to itself.
func clone(pointer reflect.Value) reflect.Value {
	copied := reflect.New(pointer.Type().Elem())
	copied.Elem().Set(pointer.Elem())
	separate(copied.Elem())
	return copied
}

// separate replaces the pointers and slices inside v by copies.
func separate(v reflect.Value) {
	switch v.Interface().(type) {
	case netip.Addr, netip.AddrPort, netip.Prefix, time.Time:
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			separate(writable(v.Field(i)))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			v.Set(clone(v))
		}
	case reflect.Slice:
		if !v.IsNil() {
			v.Set(reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, v.Len()), v))
		}
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			separate(v.Index(i))
		}
	}
}

// writable makes an unexported field writable. The field must be part of an addressable struct.
func writable(field reflect.Value) reflect.Value {
	return reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem()
}
