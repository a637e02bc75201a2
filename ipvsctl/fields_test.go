package ipvsctl

import (
	"net/netip"
	"reflect"
	"testing"
	"time"
	"unsafe"

	"github.com/verdict-proxy/verdict/e2e/memkernel"
	"github.com/verdict-proxy/verdict/ipvsctl/wire"
)

// The tests in this file go through the fields of a type. They fail, and name the field, when someone adds a field and
// forgets code that has to handle every field.

// eachField calls test once for each field of base, with a copy of base that differs in this field alone.
func eachField[T any](t *testing.T, base T, test func(t *testing.T, changed T)) {
	t.Helper()
	for i := range reflect.TypeFor[T]().NumField() {
		field := reflect.TypeFor[T]().Field(i)
		t.Run(field.Name, func(t *testing.T) {
			changed := base
			value := reflect.ValueOf(&changed).Elem().Field(i)
			// NewAt allows changing an unexported field.
			changeValue(t, reflect.NewAt(value.Type(), unsafe.Pointer(value.UnsafeAddr())).Elem())
			test(t, changed)
		})
	}
}

func changeValue(t *testing.T, v reflect.Value) {
	t.Helper()
	switch old := v.Interface().(type) {
	case netip.Addr:
		v.Set(reflect.ValueOf(old.Next()))
	case netip.AddrPort:
		v.Set(reflect.ValueOf(netip.AddrPortFrom(old.Addr().Next(), old.Port())))
	case Key:
		old.Port++
		v.Set(reflect.ValueOf(old))
	case Protocol:
		v.Set(reflect.ValueOf(UDP))
	case wire.Header:
		old.Persistence++
		v.Set(reflect.ValueOf(old))
	case []RealServer:
		v.Set(reflect.ValueOf(append([]RealServer{parseReal("10.0.0.1:1")}, old...)))
	case time.Duration:
		v.SetInt(int64(old + time.Hour))
	case wire.Flags:
		v.SetUint(uint64(old ^ wire.HashPort))
	case wire.Forwarding:
		v.Set(reflect.ValueOf(wire.Forwarding{Method: wire.ByRoute}))
	case string:
		v.SetString("mh")
	case bool:
		v.SetBool(!old)
	case uint16, uint32:
		v.SetUint(v.Uint() + 1)
	case int:
		v.SetInt(v.Int() + 1)
	default:
		t.Fatalf("changeValue cannot change a %T", old)
	}
}

func TestEveryFieldOfARealServer(t *testing.T) {
	base := parseReal("10.0.0.9:80=3")
	eachField(t, base, func(t *testing.T, changed RealServer) {
		want := with(web, func(v *VirtualServer) { v.RealServers = []RealServer{changed} })
		has := applied{exists: true, header: want.header(), reals: []RealServer{base}}
		if len(additions(&has, &want, true)) == 0 {
			t.Error("additions does not change it")
		}
		if changed.Options() == base.Options() {
			t.Error("options does not print it")
		}
		drained, _ := drainOrDelete(&want, changed, true)
		if drained.Real.Weight = changed.Weight; drained.Real != changed {
			t.Errorf("a drain changes more than the weight: %+v to %+v", changed, drained.Real)
		}
	})
}

func TestEveryFieldOfAVirtualServer(t *testing.T) {
	eachField(t, web, func(t *testing.T, changed VirtualServer) {
		m := openOver(t, Options{}, memkernel.NewIPVS())
		mustSet(t, m.Engine, "web", web)
		pass(t, m.Engine, start())
		mustSet(t, m.Engine, "web", changed)
		if done := pass(t, m.Engine, start()); len(done) == 0 {
			t.Error("the engine does not change it")
		}
	})
}

func TestEveryFieldOfAKey(t *testing.T) {
	eachField(t, web.Key, func(t *testing.T, changed Key) {
		if changed.Compare(web.Key) == 0 {
			t.Error("compare does not compare it")
		}
		if changed.String() == web.String() || changed.Option() == web.Option() {
			t.Error("String or option does not print it")
		}
	})
}

func TestEveryFieldOfAHeader(t *testing.T) {
	server := with(web, func(v *VirtualServer) { v.Scheduler = "sh" })
	base := server.header()
	eachField(t, base, func(t *testing.T, changed wire.Header) {
		want := VirtualServer{Scheduler: "sh"}
		if has := (applied{exists: true, header: changed}); len(additions(&has, &want, true)) == 0 {
			t.Error("additions does not change it")
		}
		if changed.Options() == base.Options() {
			t.Error("options does not print it")
		}
		before, after := Status{Server: wire.Server{Header: base}}, Status{Server: wire.Server{Header: changed}}
		if reflect.DeepEqual(before, after) {
			t.Error("status does not show it")
		}
	})
}

// TestEveryFieldOfApplied checks that Intact compares all that the engine knows of the kernel.
func TestEveryFieldOfApplied(t *testing.T) {
	base := appliedFrom(&web)
	eachField(t, base, func(t *testing.T, changed applied) {
		if changed.equal(&base) || !changed.equal(&changed) {
			t.Error("equal does not compare it")
		}
	})
}
