//go:build ipvs

package ipvs

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/runner"
)

// test is one test in a bed, with verdict running as its flags say.
type test struct {
	name  string
	flags []string
	run   func(*bed)
}

// The backends.
func hybrid() []string  { return []string{"--backend=hybrid", anyExternal} }
func ipvs() []string    { return []string{"--backend=ipvs", "--ipvs-fallback=false", anyExternal} }
func onlyNFT() []string { return []string{"--backend=nft"} }

// anyExternal lets IPVS serve all external addresses of the tests.
const anyExternal = "--ipvs-external-cidrs=0.0.0.0/0,::/0"

// bed is a world with verdict, and the test that uses them.
type bed struct {
	*testing.T
	*runner.Bed
	family lab.Family
	dir    string // the folder "manifests" is below it
	fresh  int    // virtual IPs handed out
	vip    netip.Addr
}

// each runs tests in both families. All tests of a family share one world. Both families go through the same code of Verdict, and
// the emulated kernel is slow: with -short, IPv6 runs the first test only.
func each(t *testing.T, tests []test) {
	for _, f := range lab.Families() {
		t.Run(f.String(), func(t *testing.T) {
			if testing.Short() && f == lab.IPv6 {
				tests = tests[:1]
			}
			dir := t.TempDir()
			inner, err := runner.NewBed(runner.Options{Family: f, Source: runner.FromManifests, Proxy: verdict(), Dir: dir})
			lab.Must(t, err)
			b := &bed{Bed: inner, family: f, dir: dir}
			for _, tt := range tests {
				t.Run(tt.name, func(t *testing.T) { b.test(t, tt) })
			}
			if err := inner.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func (b *bed) test(t *testing.T, tt test) {
	b.T = t
	b.must(b.Begin(tt.flags...))
	defer func() {
		lab.SaveIfFailed(t, b.World().Node, b.Process())
		if err := b.End(t.Failed()); err != nil {
			t.Error(err)
		}
	}()
	b.freshVIP()
	tt.run(b)
}

// freshVIP takes an address that no earlier test used: connections in IPVS outlive virtual servers.
func (b *bed) freshVIP() {
	b.fresh++
	b.vip = lab.Member(b.family, "SERVICES", 1000+b.fresh)
}

func (b *bed) must(err error) {
	b.Helper()
	lab.Must(b, err)
}

// steps takes steps in the language of scenarios. "VIP", in quotes, stands for the address of this test.
func (b *bed) steps(text string) {
	b.Helper()
	b.must(b.Steps(strings.ReplaceAll(text, `"VIP"`, strconv.Quote(b.vip.String()))))
}

// settled takes steps and waits until verdict has applied them.
func (b *bed) settled(text string) {
	b.Helper()
	b.steps(text)
	b.must(b.Settle())
}

// serve makes a Service "web" at the test's VIP. The scheduler may be empty; spec is added to the Service's spec.
func (b *bed) serve(scheduler, spec string) {
	b.Helper()
	b.steps(fmt.Sprintf(`
apply
    kind: Service
    metadata: {name: web, annotations: {%s}}
    spec: {clusterIPs: ["VIP"], %s}
`, schedule(scheduler), spec))
}

// schedule is the annotation for a scheduler. Its flags follow after a blank.
func schedule(scheduler string) string {
	name, flags, _ := strings.Cut(scheduler, " ")
	text := ""
	if name != "" {
		text = "verdict-proxy.github.io/scheduler: " + name
	}
	if flags != "" {
		text += `, verdict-proxy.github.io/scheduler-flags: "` + flags + `"`
	}
	return text
}

// reschedule changes the scheduler of the Service. An empty one removes the annotation.
func (b *bed) reschedule(scheduler string) {
	b.Helper()
	value := scheduler
	if value == "" {
		value = "null"
	}
	b.settled("patch Service web {metadata: {annotations: {verdict-proxy.github.io/scheduler: " + value + "}}}")
}

// node runs a command on the node.
func (b *bed) node(name string, args ...string) string {
	b.Helper()
	out, err := b.World().Node.Command(name, args...)
	lab.Must(b, err)
	return out
}

// place is a namespace of the world.
func (b *bed) place(name string) *lab.Namespace {
	b.Helper()
	return b.World().At(b.T, name)
}

func (b *bed) address(name string) netip.Addr { return lab.Address(b.family, name) }

// patience is how long a connection may take: more than TCP's first retransmission.
const patience = 3 * time.Second

// at asks the test's own address at a port over TCP.
func (b *bed) at(port uint16) lab.Question {
	return lab.Question{Protocol: lab.TCP, To: netip.AddrPortFrom(b.vip, port), Patience: patience}
}

// once connects and returns the name of the endpoint.
func (b *bed) once(from string, q lab.Question) string {
	b.Helper()
	return b.place(from).Once(b.T, q).Name()
}

// spread counts the endpoints that answer n connections.
func (b *bed) spread(from string, q lab.Question, n int) map[string]int {
	b.Helper()
	counts := map[string]int{}
	for range n {
		counts[b.once(from, q)]++
	}
	return counts
}

// hold opens a connection that stays until the test ends, and returns the name of the endpoint.
func (b *bed) hold(from string, q lab.Question) (*lab.Flow, string) {
	b.Helper()
	f, a := b.place(from).Hold(b.T, q)
	return f, a.Name()
}

// byClient has the endpoint of each of n clients.
func (b *bed) byClient(q lab.Question, n int) []string {
	b.Helper()
	got := make([]string, n)
	for i := range got {
		q.From = lab.Member(b.family, "CROWD", i+1)
		got[i] = b.once(lab.Outside, q)
	}
	return got
}

// until waits for a condition.
func (b *bed) until(limit time.Duration, what string, done func() bool) {
	b.Helper()
	for end := time.Now().Add(limit); !done(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("not so after %s: %s", limit, what)
		}
	}
}

// kernel is the part of "ipvsadm -Sn" that is about one address. Without an address it is all of it.
func (b *bed) kernel(addr netip.Addr) string {
	b.Helper()
	var out strings.Builder
	for line := range strings.Lines(b.node("ipvsadm", "-Sn")) {
		if !addr.IsValid() || strings.Contains(line, " "+netip.AddrPortFrom(addr, 0).String()[:len(netip.AddrPortFrom(addr, 0).String())-1]) {
			out.WriteString(line)
		}
	}
	return out.String()
}

// weight is the weight of an endpoint in the virtual servers of the test's address. It is -1 when they do not have the
// endpoint.
func (b *bed) weight(pod string) int {
	b.Helper()
	real := netip.AddrPortFrom(lab.PodAddress(b.family, pod), lab.Ports()[0]).String()
	for line := range strings.Lines(b.kernel(b.vip)) {
		_, rest, is := strings.Cut(line, "-r "+real+" -m -w ")
		weight := 0
		if _, err := fmt.Sscan(rest, &weight); is && err == nil {
			return weight
		}
	}
	return -1
}

// isLocal reports whether the kernel takes an address for one of the node's own.
func (b *bed) isLocal(addr netip.Addr) bool {
	b.Helper()
	return strings.HasPrefix(b.node("ip", "route", "get", addr.String()), "local ")
}
