//go:build !nokernel

package ipvsctl

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// BenchmarkAddresses compares two ways to make frontend addresses local: a route in table local for each, or an address
// on a device for each, as kube-proxy has on kube-ipvs0. The package uses routes. doc.go has the figures.
//
//	go test -run '^$' -bench Addresses -benchtime 100x ./ipvsctl/
func BenchmarkAddresses(b *testing.B) {
	for _, way := range []string{"route", "device"} {
		for _, family := range []string{"v4", "v6"} {
			for _, n := range []int{100, 10_000} {
				b.Run(fmt.Sprintf("%s/%s/%d", way, family, n), func(b *testing.B) { benchmarkAddresses(b, way, family, n) })
			}
		}
	}
}

type addressWay interface {
	AddAddress(netip.Addr) error
	DeleteAddress(netip.Addr) error
	ListAddresses() ([]netip.Addr, error)
}

func benchmarkAddresses(b *testing.B, way, family string, n int) {
	ns := newNamespace(b)
	var w addressWay
	routes, err := openAddresses(ns.Fd())
	if err != nil {
		b.Fatal(err)
	}
	defer routes.close()
	w = routes
	if way == "device" {
		w = newDevice(b, routes.handle)
	}
	before := slab(b)
	for i := range n {
		if err := w.AddAddress(benchAddress(family, i)); err != nil {
			b.Fatal(err)
		}
	}
	grown := slab(b) - before
	extra := benchAddress(family, n)
	// In a list, the position of an address matters: change the newest, the oldest, and one in the middle.
	for b.Loop() {
		for _, a := range []netip.Addr{extra, benchAddress(family, 0), benchAddress(family, n/2)} {
			if a != extra {
				must(b, w.DeleteAddress(a))
			}
			must(b, w.AddAddress(a))
			if a == extra {
				must(b, w.DeleteAddress(a))
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(6*b.N), "µs/change")
	b.ReportMetric(float64(grown)/float64(n), "kernel-B/address")
	benchmarkList(b, w, n)
}

func benchmarkList(b *testing.B, w addressWay, n int) {
	const rounds = 10
	start := time.Now()
	for range rounds {
		list, err := w.ListAddresses()
		must(b, err)
		if len(list) != n {
			b.Fatalf("%d addresses listed, want %d", len(list), n)
		}
	}
	b.ReportMetric(float64(time.Since(start).Microseconds())/1000/rounds, "ms/list")
}

func benchAddress(family string, i int) netip.Addr {
	a := [16]byte{0xfd, 0x96}
	binary.BigEndian.PutUint32(a[12:], 10<<24+uint32(i))
	if family == "v4" {
		return netip.AddrFrom4([4]byte(a[12:]))
	}
	return netip.AddrFrom16(a)
}

// slab returns the size of the kernel's slab memory in bytes.
func slab(b *testing.B) int64 {
	text, err := os.ReadFile("/proc/meminfo")
	must(b, err)
	_, rest, _ := strings.Cut(string(text), "\nSlab:")
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	must(b, err)
	return kib << 10
}

// device does what kube-proxy does: one device that is down has all addresses.
type device struct {
	handle *netlink.Handle
	link   netlink.Link
}

func newDevice(b *testing.B, h *netlink.Handle) *device {
	// A veth pair instead of a dummy device, which not every kernel has. Addresses cost the same on every device.
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "verdict0"}, PeerName: "verdict1"}
	must(b, h.LinkAdd(link))
	return &device{handle: h, link: link}
}

func (d *device) addr(a netip.Addr) *netlink.Addr {
	parsed, err := netlink.ParseAddr(netip.PrefixFrom(a, a.BitLen()).String())
	if err != nil {
		panic(err)
	}
	return parsed
}

func (d *device) AddAddress(a netip.Addr) error    { return d.handle.AddrAdd(d.link, d.addr(a)) }
func (d *device) DeleteAddress(a netip.Addr) error { return d.handle.AddrDel(d.link, d.addr(a)) }

func (d *device) ListAddresses() ([]netip.Addr, error) {
	list, err := d.handle.AddrList(d.link, unix.AF_UNSPEC)
	out := make([]netip.Addr, 0, len(list))
	for i := range list {
		a, _ := netip.AddrFromSlice(list[i].IP)
		out = append(out, a.Unmap())
	}
	return out, err
}
