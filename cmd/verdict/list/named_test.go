//go:build !nokernel

package list

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

// told is a daemon that says what it is told.
type told struct {
	frontends map[string]socket.Frontends
	services  socket.Services
}

func (d *told) Frontends(of string) (socket.Frontends, error) {
	f, ok := d.frontends[of]
	if !ok {
		return f, socket.ErrUnknown
	}
	return f, nil
}

func (d *told) ServicesOf(string) (socket.Services, error) { return d.services, nil }

// TestNamed: what is read by the keys that the daemon names is what a listing of everything finds.
func TestNamed(t *testing.T) {
	b := newBench(t)
	b.set(b.ports(lab.IPv4)...)
	at := func(name string, port uint16, protocol uint8) socket.Frontend {
		f := socket.Frontend{Family: "IPv4", Port: port, Protocol: protocol}
		if name != "" {
			f.Address = b.address(lab.IPv4, name)
		}
		return f
	}
	web := socket.Frontends{List: []socket.Frontend{
		at("VIP1", 80, unix.IPPROTO_TCP), at("", 30080, unix.IPPROTO_TCP),
		at("VIP5", 80, unix.IPPROTO_TCP),                                    // the kernel does not have it
		at("VIP2", 80, unix.IPPROTO_TCP), at("VIP1", 80, unix.IPPROTO_UDP)}} // of other Services
	d := &told{
		frontends: map[string]socket.Frontends{"shop/web": web, "shop/late": {Unsure: true, List: web.List}},
		services:  socket.Services{List: []string{"shop/web"}},
	}
	for _, args := range [][]filter{{"shop/web"}, {"shop/web:http"}} {
		o := options{services: args, noConnections: true}
		var keyed, all *table
		b.world.Node.MustDo(t, func() (err error) {
			of, _ := o.keyed()
			if keyed, err = o.named(d, of); err == nil {
				all, err = collectAll(o)
			}
			return err
		})
		if k, a := jsonOf(t, keyed), jsonOf(t, all); k != a || strings.Count(k, "shop/web") != 2 {
			t.Errorf("%v by keys:\n%s\nlisted:\n%s", args, k, a)
		}
	}
	b.world.Node.MustDo(t, func() error {
		o := options{noConnections: true}
		if _, err := o.named(d, []string{"shop/late"}); !errors.Is(err, errUnsure) {
			t.Errorf("a Service whose change waits: %v", err)
		}
		if _, err := o.named(d, []string{"shop/none"}); !errors.Is(err, socket.ErrUnknown) {
			t.Errorf("an unknown Service: %v", err)
		}
		found, err := o.withEndpoint(d, "10.0.1.1")
		if err != nil || len(found.Frontends) != 4 {
			t.Errorf("frontends of the Services with an endpoint: %v, %v", found, err)
		}
		d.services.Unsure = true
		if _, err := o.withEndpoint(d, "10.0.1.1"); !errors.Is(err, errUnsure) {
			t.Errorf("an endpoint of a Service whose change waits: %v", err)
		}
		return nil
	})
}

func TestKeyed(t *testing.T) {
	for _, tt := range []struct {
		o    options
		want string
	}{
		{options{}, ""}, {options{services: []filter{"a", "b/c:http"}}, "a b/c"},
		{options{selected: selection{ranges: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}}}, "10.0.0.1"},
		{options{selected: selection{ranges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}}}, ""},
	} {
		of, ok := tt.o.keyed()
		if got := strings.Join(of, " "); got != tt.want || ok != (tt.want != "") {
			t.Errorf("%+v: %q %t, want %q", tt.o, got, ok, tt.want)
		}
	}
}

func jsonOf(t *testing.T, list *table) string {
	t.Helper()
	var out strings.Builder
	list.NodePortAddresses = nil // a listing has those of both families
	if err := list.writeJSON(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}
