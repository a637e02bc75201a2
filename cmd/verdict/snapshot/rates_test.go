package snapshot

import (
	"net/netip"
	"testing"
	"time"
)

// TestLoads adds up the frontends of a service port. A counter that began anew counts from 0.
func TestLoads(t *testing.T) {
	at := func(engine string, port uint16) counted { return counted{engine, Place{Port: port}} }
	a, b, c, d := at(NFT, 80), at(NFT, 30080), at(IPVS, 80), at(NFT, 81)
	start := time.Unix(100, 0)
	before := Counts{at: start, frontends: map[counted]totals{
		a: {"shop/web:http", 100, 0}, b: {"shop/web:http", 10, 5}, c: {"shop/busy:http", 1000, 0}, d: {"shop/anew:http", 50, 0},
	}}
	now := Counts{at: start.Add(2 * time.Second), frontends: map[counted]totals{
		a: {"shop/web:http", 120, 0}, b: {"shop/web:http", 12, 15}, c: {"shop/busy:http", 1002, 0}, d: {"shop/anew:http", 3, 0},
	}}
	want := map[string]Load{
		"shop/web:http": {Rate: 11, Refused: 5, Total: 132}, "shop/busy:http": {Rate: 1, Total: 1002}, "shop/anew:http": {Total: 3},
	}
	got := now.Loads(before)
	for _, l := range got {
		service := l.Service
		if l.Service = ""; l != want[service] {
			t.Errorf("%s: %+v, want %+v", service, l, want[service])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d loads, want %d", len(got), len(want))
	}
}

// TestCountsOfSome: of the virtual servers, those of other Services do not count when one Service is asked for.
func TestCountsOfSome(t *testing.T) {
	_, servers, _ := sample()
	routed := map[Place]string{PlaceOf(netip.MustParseAddrPort("10.96.0.20:80"), 6): "shop/busy:http"}
	for filtered, want := range map[bool]int{true: 1, false: len(servers)} {
		c := Counts{frontends: map[counted]totals{}, reals: map[EndpointKey]uint64{}}
		c.addServers(servers, routed, filtered)
		if len(c.frontends) != want {
			t.Errorf("filtered %t: %d virtual servers count, want %d", filtered, len(c.frontends), want)
		}
		for key := range c.reals {
			if filtered && key.Service != "shop/busy:http" {
				t.Errorf("an endpoint of another Service counts: %+v", key)
			}
		}
	}
}
