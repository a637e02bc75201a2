package snapshot

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/nft/program"
)

func TestFilters(t *testing.T) {
	long := strings.Repeat("n", 63) + "/" + strings.Repeat("s", 55)
	cut := program.Label(long + ":http-alternative")
	longest := strings.Repeat("n", 63) + "/" + strings.Repeat("s", 63)
	for _, tt := range []struct {
		filter string
		yes    []string
		no     []string
	}{
		{"shop", []string{"shop/web:http", "shop/a:80"}, []string{"shopping/web:http", "default/shop:http", ""}},
		{"shop/web", []string{"shop/web:http", "shop/web:443"}, []string{"shop/web2:http", "shop/we:http", "x/shop/web:http"}},
		{"shop/web:http", []string{"shop/web:http"}, []string{"shop/web:https", "shop/web:htt", "shop/web:"}},
		{long, []string{long + ":http", cut}, []string{long + "s:http", program.Label(longest + ":http")}},
		{longest, []string{program.Label(longest + ":http"), program.Label(longest + ":" + strings.Repeat("p", 63))}, []string{cut}},
		{longest + ":http", []string{program.Label(longest + ":http")}, []string{program.Label(longest + ":https")}},
		{long + ":http-alternative", []string{cut}, []string{long + ":http"}},
		{long + ":h", nil, []string{cut}},
	} {
		list, err := ParseServices([]string{"other", tt.filter})
		if err != nil {
			t.Fatal(err)
		}
		match := (&Query{Services: list}).Match()
		for _, name := range tt.yes {
			if !match(name) {
				t.Errorf("%s does not match %s", tt.filter, name)
			}
		}
		for _, name := range tt.no {
			if match(name) {
				t.Errorf("%s matches %s", tt.filter, name)
			}
		}
	}
	for _, wrong := range []string{"", "/", "/web", "shop/", "shop/:http", "shop:http", "a/b/c", "a:b/c"} {
		if list, err := ParseServices([]string{wrong}); err == nil {
			t.Errorf("%q is taken as %v", wrong, list)
		}
	}
	if (&Query{}).Match() != nil {
		t.Error("without filters some frontends are left out")
	}
}

func TestNamed(t *testing.T) {
	for _, tt := range []struct {
		q    Query
		want string
	}{
		{Query{}, ""}, {Query{Services: []string{"a", "b/c:http"}}, "a b/c"},
		{Query{Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}}, "10.0.0.1"},
		{Query{Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}}, ""},
	} {
		of, err := tt.q.named(nil)
		if got := strings.Join(of, " "); got != tt.want || err != nil {
			t.Errorf("%+v: %q, %v, want %q", tt.q, got, err, tt.want)
		}
	}
}
