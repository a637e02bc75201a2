//go:build !nokernel

package nft

import (
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// rangesOfMany makes service ports with a range of 100 ports each, at addresses of their own.
func rangesOfMany(n int) (list []contents.Port) {
	for i, p := range manyPorts(program.IPv4, 0, n) {
		p.Cluster = p.Cluster[:1]
		p.Cluster[0].Addr = netip.AddrPortFrom(p.Cluster[0].Addr.Addr(), 0)
		p.Frontends[0] = ranged(p.Frontends[0], p.Frontends[0].Port+99)
		p.Name, p.Protocol = fmt.Sprintf("range/%d:x", i), udp
		list = append(list, p)
	}
	return list
}

// threadTime is the time that this thread has had a processor.
func threadTime(b *testing.B) int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		b.Fatal(err)
	}
	return now.Nano()
}

var rangeRule = regexp.MustCompile(`@range-(?:services|firewalled).* # handle (\d+)`)

// BenchmarkRangeMiss sends first packets of connections that no Service has. They miss the ranges after all other frontends.
// Each packet has a port of its own, and goes to a bridge without ports. "rules=none" has the program without the rules for
// ranges.
func BenchmarkRangeMiss(b *testing.B) {
	for _, x := range []struct {
		name   string
		ranges int
	}{{"rules=none", 0}, {"ranges=0", 0}, {"ranges=1", 1}, {"ranges=100", 100}, {"ranges=10000", 10000}} {
		b.Run(x.name, func(b *testing.B) {
			n := newNamespace(b)
			e := n.engine(b)
			e.SetGlobals(packetGlobals())
			mustSet(b, e, manyPorts(program.IPv4, 20000, 1000)...)
			mustSet(b, e, rangesOfMany(x.ranges)...)
			mustApply(b, e)
			if x.name == "rules=none" {
				for _, m := range rangeRule.FindAllStringSubmatch(n.nft(b, "-a", "list", "chain", "ip", "verdict", "services"), -1) {
					n.nft(b, "delete", "rule", "ip", "verdict", "services", "handle", m[1])
				}
			}
			for _, command := range []string{"link add sink type bridge", "address add 198.18.0.1/15 dev sink", "link set sink up arp off"} {
				n.Must(b, "", "ip", strings.Fields(command)...)
			}
			var fd int
			n.MustDo(b, func() (err error) {
				fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
				return err
			})
			defer unix.Close(fd)
			to, packet := &unix.SockaddrInet4{Addr: [4]byte{198, 19, 0, 1}}, []byte("x")
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			i, before := 0, threadTime(b)
			for b.Loop() {
				if to.Port = 1 + i%60000; to.Port == 60000 {
					to.Addr[3]++ // each address and port is another connection
				}
				i++
				if err := unix.Sendto(fd, packet, 0, to); err != nil && err != unix.EPERM {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(threadTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// BenchmarkRangeChange changes a Service that is the last one with ranges: it goes and comes, or its only endpoint does. Its
// ranges are the most expensive ones: many blocks of ports, in as many sets as they can be, and in the worst order. The
// first rows are the defaults of the flags --max-range-frontends and --max-namespace-range-frontends.
func BenchmarkRangeChange(b *testing.B) {
	ipv4, ipv6, both := []program.Family{program.IPv4}, []program.Family{program.IPv6}, []program.Family{program.IPv4, program.IPv6}
	for _, x := range []struct {
		name     string
		families []program.Family
		all, own int // in each family
	}{{"ip", ipv4, 32, 12}, {"ip6", ipv6, 16, 6}, {"both", both, 10, 4}, {"ip", ipv4, 400, 400}, {"ip6", ipv6, 400, 400}} {
		for _, change := range []string{"deleted", "toggled"} {
			b.Run(fmt.Sprintf("%s/ranges=%d/own=%d/%s", x.name, x.all, x.own, change), func(b *testing.B) {
				e := newNamespace(b).engine(b)
				e.SetGlobals(packetGlobals())
				service := func(f program.Family, first, n int, served bool) contents.Port {
					p := contents.Port{Family: f, Name: fmt.Sprintf("range/%d:x", first), Protocol: tcp, Sources: []netip.Prefix{netip.PrefixFrom(numbered4or6(f, 1, 0), 16)}}
					if served {
						p.Cluster = []contents.Endpoint{{Addr: netip.AddrPortFrom(numbered4or6(f, 10, 1), 0)}}
					}
					for i := range n {
						fe := contents.Frontend{Addr: numbered4or6(f, 20, first+n-i), Port: 1, EndPort: 65534, Refusal: program.Reject, Firewalled: true}
						if served {
							fe.Pool, fe.Refusal, fe.Masquerade, fe.HoldsRefusals = program.ClusterPool, program.NoRefusal, contents.MasqueradeAlways, true
						}
						p.Frontends = append(p.Frontends, fe)
					}
					return p
				}
				for _, f := range x.families {
					mustSet(b, e, service(f, 0, x.all-x.own, true))
				}
				mustApply(b, e)
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				took := int64(math.MaxInt64)
				for b.Loop() {
					for _, f := range x.families {
						mustSet(b, e, service(f, x.all, x.own, true))
					}
					mustApply(b, e)
					for _, f := range x.families {
						if p := service(f, x.all, x.own, false); change == "toggled" {
							mustSet(b, e, p)
						} else {
							e.Delete(f, p.Name)
						}
					}
					before := threadTime(b)
					mustApply(b, e)
					took = min(took, threadTime(b)-before)
				}
				b.ReportMetric(float64(took)/1e6, "cpu-ms/op")
			})
		}
	}
}
