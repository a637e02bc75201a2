//go:build ipvs

package ipvsctl

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/ipvsctl/wire"
)

// openIn opens an engine in a namespace.
func openIn(t testing.TB, ns *namespace, exclude ...netip.Prefix) *Engine {
	t.Helper()
	e, err := Open(Options{NetNS: ns.Fd(), GracefulPeriod: period, Exclude: exclude})
	must(t, err)
	t.Cleanup(e.Close)
	return e
}

// catalog returns virtual servers that use every scheduler, protocol, flag and option, each in both families.
func catalog() []VirtualServer {
	var list []VirtualServer
	add := func(protocol, scheduler string, change func(*VirtualServer)) {
		for _, form := range []string{"%s 10.96.0.%d:80 %s", "%s [fd96::%d]:80 %s"} {
			v := vs(fmt.Sprintf(form, protocol, len(list)+1, scheduler), "10.0.0.1:8080", "10.0.0.2:8081=0", "10.0.0.3:8080=65535")
			if v.Addr.Is6() {
				v.RealServers = []RealServer{parseReal("[fd00::1]:8080"), parseReal("[fd00::2]:8081=0"), parseReal("[fd00::3]:8080=65535")}
			}
			change(&v)
			list = append(list, v)
		}
	}
	for _, s := range Schedulers() {
		add("tcp", s, func(*VirtualServer) {})
	}
	add("udp", "rr", func(*VirtualServer) {})
	add("sctp", "rr", func(*VirtualServer) {})
	add("tcp", "rr", func(v *VirtualServer) { v.Persistence = 3 * time.Hour })
	add("udp", "wlc", func(v *VirtualServer) { v.Persistence = time.Second })
	add("tcp", "sh", func(v *VirtualServer) { v.Flags = wire.HashPort })
	add("tcp", "mh", func(v *VirtualServer) { v.Flags, v.Persistence = wire.HashPort|wire.Fallback, time.Minute })
	add("tcp", "rr", func(v *VirtualServer) { v.RealServers = nil })
	add("tcp", "rr", func(v *VirtualServer) { v.Local = false })
	add("tcp", "rr", func(v *VirtualServer) {
		r := v.RealServers[0]
		v.Port, v.RealServers = r.Addr.Port(), nil
		for _, r.Forwarding = range otherForwarding() {
			v.RealServers = append(v.RealServers, r)
			r.Addr = netip.AddrPortFrom(r.Addr.Addr().Next(), v.Port)
		}
	})
	return list
}

// TestLikeIpvsadm checks that the kernel has the same after the engine ran, and after ipvsadm and ip ran the
// operations that the engine prints.
func TestLikeIpvsadm(t *testing.T) {
	ours, theirs := newNamespace(t), newNamespace(t)
	e := openIn(t, ours)
	for _, v := range catalog() {
		mustSet(t, e, v.String(), v)
	}
	theirs.Must(t, pass(t, e, start()).String(), "sh", "-e")
	expectListings(t, "operations", ours, theirs)
	expectReadBack(t, e)
}

// expectListings compares what ipvsadm and ip list in two namespaces.
func expectListings(t *testing.T, what string, ours, theirs *namespace) {
	t.Helper()
	for _, command := range []string{"ipvsadm-save -n", "ipvsadm -Ln", "ip route show table local", "ip -6 route show table local"} {
		listing := func(ns *namespace) string {
			lines := strings.Split(ns.Must(t, "", "sh", "-c", command), "\n")
			if command == "ipvsadm-save -n" {
				slices.Sort(lines)
			} else {
				lines = sortBlocks(lines)
			}
			return strings.Join(lines, "\n")
		}
		expect(t, what+": "+command, listing(theirs), listing(ours))
	}
}

// sortBlocks sorts a listing by virtual server. The real servers of each stay with it.
func sortBlocks(lines []string) []string {
	var blocks []string
	for _, line := range lines {
		if strings.HasPrefix(line, "  ->") && len(blocks) > 0 {
			blocks[len(blocks)-1] += "\n" + line
		} else {
			blocks = append(blocks, line)
		}
	}
	for i, b := range blocks {
		head, reals, found := strings.Cut(b, "\n")
		if found {
			rest := strings.Split(reals, "\n")
			slices.Sort(rest)
			blocks[i] = head + "\n" + strings.Join(rest, "\n")
		}
	}
	slices.Sort(blocks)
	return blocks
}

// expectReadBack checks that the kernel returns what the engine set, so that a restart changes nothing.
func expectReadBack(t *testing.T, e *Engine) {
	t.Helper()
	again, err := openEngine(e.options, e.kernel)
	must(t, err)
	for _, v := range catalog() {
		mustSet(t, again, v.String(), v)
	}
	if ops := pass(t, again, start()); len(ops) > 0 {
		t.Errorf("a restart did:\n%s", ops)
	}
	for range len(catalog()) {
		expectIntact(t, again, true)
	}
}

// TestOthersAreUntouched checks that the engine never touches virtual servers that ipvsadm made, even at its own
// addresses and for packet marks, and after a restart.
func TestOthersAreUntouched(t *testing.T) {
	ns := newNamespace(t)
	theirs := strings.TrimSpace(`
-A -t 10.96.0.1:443 -s wrr
-a -t 10.96.0.1:443 -r 192.0.2.7:443 -m -w 3
-A -t 192.0.2.1:80 -s rr -p 300
-a -t 192.0.2.1:80 -r 192.0.2.7:80 -g -w 1
-A -t [2001:db8::1]:80 -s lc
-a -t [2001:db8::1]:80 -r [2001:db8::7]:80 -m -w 0
-A -f 7 -s rr
-a -f 7 -r 192.0.2.7:0 -g -w 1`)
	ns.Must(t, theirs+"\n", "ipvsadm-restore")
	check := func(when string) {
		t.Helper()
		var left []string
		for line := range strings.Lines(ns.Must(t, "", "ipvsadm-save", "-n")) {
			if strings.Contains(theirs, strings.TrimSpace(line)) {
				left = append(left, strings.TrimSpace(line))
			}
		}
		want := strings.Split(theirs, "\n")
		slices.Sort(left)
		slices.Sort(want)
		expect(t, when, strings.Join(left, "\n"), strings.Join(want, "\n"))
	}
	e := openIn(t, ns)
	mustSet(t, e, "web", web, vs("tcp [fd96::1]:80 rr", "[fd00::1]:80"))
	mustSet(t, e, "taken", vs("tcp 192.0.2.1:80 rr", "10.0.0.1:80"))
	r, err := e.Add(start())
	if len(r.Failures) != 1 || r.Failures[0].Name != "taken" || !errors.Is(err, ErrForeign) {
		t.Errorf("failures %+v, error %v", r.Failures, err)
	}
	_, err = e.Remove(start())
	must(t, err)
	check("after additions")
	e.Delete("taken")
	pass(t, e, start())

	e = openIn(t, ns)
	mustSet(t, e, "web", web)
	pass(t, e, start())
	_, err = e.Tick(start().Add(period))
	must(t, err)
	check("after a restart")
	expect(t, "ours", linesWithout(picture(t, e.kernel), "foreign"), "10.96.0.1:80/tcp lc 10.0.0.1:8080=1 10.0.0.2:8080=1\nlocal 10.96.0.1")

	e = openIn(t, ns)
	pass(t, e, start())
	_, err = e.Tick(start().Add(period))
	must(t, err)
	check("after everything was removed")
	expect(t, "ours", linesWithout(picture(t, e.kernel), "foreign"), "")
}

// linesWithout drops the lines that contain a word.
func linesWithout(text, without string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.Contains(line, without) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// TestMarkIsInvisible checks that ipvsadm does not show the mark, and that Intact notices when ipvsadm edits a virtual
// server.
func TestMarkIsInvisible(t *testing.T) {
	ns := newNamespace(t)
	e := openIn(t, ns)
	mustSet(t, e, "web", web)
	pass(t, e, start())
	expect(t, "saved", ns.Must(t, "", "ipvsadm-save", "-n"), `
		-A -t 10.96.0.1:80 -s lc
		-a -t 10.96.0.1:80 -r 10.0.0.1:8080 -m -w 1
		-a -t 10.96.0.1:80 -r 10.0.0.2:8080 -m -w 1`)
	ns.Must(t, "", "ipvsadm", "-E", "-t", "10.96.0.1:80", "-s", "rr")
	expectIntact(t, e, false)
}

// TestFlushed checks that Intact notices "ipvsadm -C" and "ip route flush", and that the next pass repairs the damage.
func TestFlushed(t *testing.T) {
	ns := newNamespace(t)
	e := openIn(t, ns)
	mustSet(t, e, "web", web)
	mustSet(t, e, "mail", mail)
	pass(t, e, start())
	before := picture(t, e.kernel)
	for _, command := range []string{"ipvsadm -C", "ip route flush table local proto 118", "ipvsadm -d -t 10.96.0.1:80 -r 10.0.0.1:8080"} {
		ns.Must(t, "", "sh", "-c", command)
		expectIntact(t, e, false)
		pass(t, e, start())
		expect(t, "after "+command, picture(t, e.kernel), before)
		expectIntact(t, e, true)
	}
}

// TestReplacedWhileItDrains: "ipvsadm -C" deletes a virtual server that drains, and another tool makes one with its
// key.
func TestReplacedWhileItDrains(t *testing.T) {
	const theirs = "10.96.0.1:80/tcp wrr foreign 192.0.2.7:80=1"
	ns := newNamespace(t)
	e := openIn(t, ns)
	replace := func() {
		ns.Must(t, "", "sh", "-ec", "ipvsadm -C; ipvsadm -A -t 10.96.0.1:80 -s wrr; ipvsadm -a -t 10.96.0.1:80 -r 192.0.2.7:80 -m")
	}
	mustSet(t, e, "web", web)
	pass(t, e, start())
	e.Delete("web")
	pass(t, e, start())
	replace()
	_, err := e.Tick(start().Add(period))
	must(t, err)
	expect(t, "replaced while it drained", picture(t, e.kernel), theirs)

	ns.Must(t, "", "ipvsadm", "-C")
	mustSet(t, e, "web", vs("tcp 10.96.0.1:80 lc"))
	pass(t, e, start())
	replace()
	e.Delete("web")
	pass(t, e, start())
	expect(t, "replaced before it was given up", picture(t, e.kernel), theirs)
}

func TestExcluded(t *testing.T) {
	ns := newNamespace(t)
	e := openIn(t, ns)
	mustSet(t, e, "web", web)
	pass(t, e, start())
	ns.Must(t, "", "ipvsadm", "-A", "-t", "10.96.0.1:443", "-s", "rr")
	e = openIn(t, ns, netip.MustParsePrefix("10.96.0.0/24"))
	if err := e.Set("web", []VirtualServer{web}); !errors.Is(err, ErrExcluded) {
		t.Errorf("error is %v", err)
	}
	wantAddrs(t, "to be guarded", e.Coming(), "[10.96.0.1]")
	pass(t, e, start())
	_, err := e.Tick(start().Add(period))
	must(t, err)
	expect(t, "kernel", picture(t, e.kernel), "10.96.0.1:443/tcp rr foreign")
}

func TestProbeKernel(t *testing.T) {
	ns := newNamespace(t)
	ns.Must(t, "", "ipvsadm", "-A", "-t", "198.51.100.1:1", "-s", "rr")
	s, err := Probe(Options{NetNS: ns.Fd()}, append(Schedulers(), "magic"))
	must(t, err)
	if !slices.Equal(s.Schedulers, Schedulers()) || !slices.Equal(s.Missing, []string{"magic"}) {
		t.Errorf("found %+v", s)
	}
	expect(t, "left in the kernel", ns.Must(t, "", "ipvsadm-save", "-n"), "-A -t 198.51.100.1:1 -s rr")
}

func TestUnknownSchedulerInKernel(t *testing.T) {
	e := openIn(t, newNamespace(t))
	mustSet(t, e, "web", with(web, func(v *VirtualServer) { v.Scheduler = "magic" }))
	mustSet(t, e, "mail", mail)
	_, err := e.Add(start())
	if err == nil || !strings.Contains(err.Error(), "the kernel has no scheduler magic, module ip_vs_magic") {
		t.Errorf("error is %v", err)
	}
	expect(t, "kernel", picture(t, e.kernel), "10.96.0.2:25/tcp rr 10.0.0.3:25=1\nlocal 10.96.0.2")
}

// TestMemoryIsLikeTheKernel checks that the kernel in memory answers each operation as the real one does, and ends
// with the same contents.
func TestMemoryIsLikeTheKernel(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	c, err := dial(newNamespace(t).Fd())
	must(t, err)
	defer c.Close()
	m := newMemory()
	for i := range 3000 {
		v := randomServer(rng, rng.IntN(24), []string{"rr", "lc", "sh", "magic"})
		o := Operation{Kind: OperationKind(rng.IntN(int(DeleteAddress) + 1)), Server: &v}
		if rng.IntN(50) > 0 && o.Kind == DeleteServer {
			continue // otherwise hardly any virtual server would exist
		}
		if len(v.RealServers) > 0 {
			o.Real = v.RealServers[0]
		} else if o.Kind >= AddReal && o.Kind <= DeleteReal {
			continue
		}
		want, got := m.execute(o), c.execute(o)
		if !errors.Is(got, want) {
			t.Fatalf("operation %d, %s: the memory returns %v, the kernel %v", i, o, want, got)
		}
		if f, exists, err := c.Server(v.Key); err != nil || exists != (m.State[v.Key] != nil) || f.Header != headerOf(m, v.Key) {
			t.Fatalf("operation %d, %s: the kernel has %+v, %v", i, o, f, err)
		}
	}
	expect(t, "kernel", picture(t, c), picture(t, m))
}

func headerOf(m *memory, k Key) wire.Header {
	if s := m.State[k]; s != nil {
		return s.Header
	}
	return wire.Header{}
}

// TestRandomWalkInKernel is TestRandomWalk with the kernel, and with ipvsadm interfering.
func TestRandomWalkInKernel(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			ns := newNamespace(t)
			c, err := dial(ns.Fd())
			must(t, err)
			defer c.Close()
			rng := rand.New(rand.NewPCG(seed, 0))
			w := &walk{rng: rng, kernel: c, now: start(), schedulers: Schedulers(), state: wanted{}}
			w.interfere = func() {
				command := []string{"ipvsadm -C", "ip route flush table local proto 118", "ip -6 route flush table local proto 118",
					"ipvsadm-save -n | grep -e ^-A | head -1 | sed 's/ -s.*//; s/^-A/ipvsadm -D/' | sh"}[rng.IntN(4)]
				ns.Must(t, "", "sh", "-c", command)
			}
			w.restart(t)
			for range 25 {
				w.step(t)
			}
		})
	}
}

// TestListCountsConnections checks the numbers that "verdict list" shows.
func TestListCountsConnections(t *testing.T) {
	d := newDirector(t)
	d.node.Must(t, "", "ipvsadm", "-A", "-t", "192.0.2.1:80", "-s", "rr")
	v := d.frontend(lab.IPv4, TCP, "wrr", 3, 1)
	v.Persistence = 0
	d.apply(t, v)
	for range 8 {
		d.held(t, client(lab.IPv4, 0), &v)
	}
	d.once(t, client(lab.IPv4, 1), &v)
	listed := func(when string, reached func(Status) bool) Status {
		t.Helper()
		for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			got, err := List(d.options, 0)
			must(t, err)
			if len(got) == 1 && len(got[0].RealServers) == 2 && reached(got[0]) {
				return got[0]
			}
			if time.Now().After(end) {
				t.Fatalf("%s: listed %+v", when, got)
			}
		}
	}
	// The kernel forgets the connection that has ended after ten seconds, so this comes first.
	got := listed("a connection has ended", func(s Status) bool { return s.RealServers[0].Inactive+s.RealServers[1].Inactive == 1 })
	r := got.RealServers
	if r[0].Active != 6 || r[1].Active != 2 || r[0].Weight != 3 || r[0].Addr != v.RealServers[0].Addr {
		t.Errorf("real servers: %+v", r)
	}
	// The kernel updates its totals every two seconds.
	got = listed("nine connections", func(s Status) bool { return s.Connections == 9 })
	if got.Key != v.Key || got.Scheduler != "wrr" {
		t.Errorf("listed %+v", got)
	}
}

// TestKernel shows the behavior of moby/ipvs and of the kernel that wire and validate guard against.
func TestKernel(t *testing.T) {
	c, err := dial(newNamespace(t).Fd())
	must(t, err)
	defer c.Close()
	must(t, c.execute(Operation{Kind: AddServer, Server: &web}))
	six := parseReal("[fd00::1]:80")
	if err := c.execute(Operation{Kind: AddReal, Server: &web, Real: six}); err == nil {
		reals, err := c.Reals(web.Key)
		must(t, err)
		if len(reals) == 1 && reals[0].Addr == six.Addr {
			t.Error("an IPv6 real server of an IPv4 virtual server works now: validate need not refuse it")
		}
	}
	reals, err := c.Reals(mail.Key)
	if len(reals) != 0 || err != nil {
		t.Errorf("real servers of a virtual server that does not exist: %v, %v", reals, err)
	}
	if err := c.execute(Operation{Kind: EditReal, Server: &mail, Real: mail.RealServers[0]}); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("change of a real server that does not exist: %v", err)
	}
}
