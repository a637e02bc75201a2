//go:build !nokernel

package nft

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// interfered is an engine in a namespace of its own, with a watcher, after its first apply.
type interfered struct {
	*namespace
	engine  *Engine
	watcher *kernel.Watcher
	before  string // the listing
}

func newInterfered(t *testing.T, services int) *interfered {
	t.Helper()
	x := &interfered{namespace: newNamespace(t)}
	x.engine = x.namespace.engine(t)
	x.watch(t)
	x.engine.SetGlobals(contents.Globals{
		PodCIDRs: prefixes("10.244.0.0/16"), ServiceCIDRs: prefixes("10.96.0.0/12", "fd00:96::/112"),
		NodePortAddresses: addrs("192.0.2.1", "2001:db8::1"), IPVS: true,
	})
	for i := range services {
		x.set(t, twoPorts(i)...)
	}
	if _, err := x.engine.Guard(addrs("203.0.113.9")); err != nil {
		t.Fatal(err)
	}
	mustApply(t, x.engine)
	if _, err := x.engine.Guard(addrs("203.0.113.9")); err != nil {
		t.Fatal(err)
	}
	x.before = x.listing(t)
	return x
}

func (x *interfered) watch(t *testing.T) {
	t.Helper()
	w, err := x.engine.Watch()
	if err != nil {
		t.Fatal(err)
	}
	x.watcher = w
	t.Cleanup(func() { w.Close() })
}

// listing is the listing of both tables, twice the same: while the kernel resizes the hash table of a set, it leaves
// out elements and repeats others.
func (x *interfered) listing(t *testing.T) string {
	t.Helper()
	for before := ""; ; time.Sleep(20 * time.Millisecond) {
		now := x.list(t)
		if now == before {
			return now
		}
		before = now
	}
}

func (x *interfered) set(t *testing.T, ports ...contents.Port) {
	t.Helper()
	for i := range ports {
		if err := x.engine.Set(&ports[i]); err != nil {
			t.Fatal(err)
		}
	}
}

// twoPorts have elements in nearly every set.
func twoPorts(i int) []contents.Port {
	ip := fmt.Sprintf("10.96.%d.%d", i/250, i%250+1)
	limits := limited(external(fmt.Sprintf("203.0.%d.%d", i/250, i%250+1), 80))
	return []contents.Port{
		{
			Family: program.IPv4, Name: fmt.Sprintf("default/a%d:http", i), Protocol: tcp,
			Cluster:   onNode("10.244.0.5:8080", "10.244.0.6:8080"),
			Frontends: []contents.Frontend{clusterIP(ip, 80), limits, nodePort(uint16(30000 + i)), ranged(external(limits.Addr.String(), 5000), 6000)},
			Sources:   prefixes("198.51.100.0/24"),
		},
		{
			Family: program.IPv4, Name: fmt.Sprintf("default/b%d:dns", i), Protocol: udp, Affinity: time.Hour,
			Cluster: endpoints("10.244.0.7:53", "10.244.0.8:53"), Frontends: []contents.Frontend{clusterIP(ip, 53)},
		},
	}
}

// next waits for an interference.
func (x *interfered) next(t *testing.T) kernel.Interference {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	i, err := x.watcher.Next(ctx)
	if err != nil {
		t.Fatalf("nothing was heard: %v", err)
	}
	return i
}

// TestRepair: what another process does to our tables is noticed, with its name, and undone; by the difference where
// only elements changed.
func TestRepair(t *testing.T) {
	type outcome struct {
		full        bool // tables are written as a whole
		added, gone int  // elements, when not
	}
	tests := []struct {
		name   string
		script string
		said   string // of the interference
		want   outcome
	}{
		{"an element deleted", `delete element ip verdict services { 10.96.0.1 . tcp . 80 }`, "elements of ip verdict services", outcome{added: 1}},
		{"an element that leads to another pool", `delete element ip verdict services { 10.96.0.1 . tcp . 80 }
			add element ip verdict services { 10.96.0.1 . tcp . 80 comment "default/a0:http" : 0:a }`,
			"elements of ip verdict services", outcome{added: 1, gone: 1}},
		{"another comment", `delete element ip verdict services { 10.96.0.1 . tcp . 80 }
			add element ip verdict services { 10.96.0.1 . tcp . 80 comment "mine" : 0:2 }`,
			"elements of ip verdict services", outcome{added: 1, gone: 1}},
		{"a foreign element", `add element ip verdict endpoints { 0:2 . 7 : 192.0.2.66 . 80 }`, "elements of ip verdict endpoints", outcome{gone: 1}},
		{"a map flushed", `flush map ip verdict endpoints`, "elements of ip verdict endpoints", outcome{added: 6}},
		{"a set flushed", `flush set ip verdict cluster-ips`, "elements of ip verdict cluster-ips", outcome{added: 3}},
		{"source ranges opened", `delete element ip verdict allowed-sources { 180:2 . 198.51.100.0 }
			add element ip verdict allowed-sources { 180:2 . 192.0.2.0 }`, "allowed-sources", outcome{added: 1, gone: 1}},
		{"ranges", `delete element ip verdict service-cidrs { 10.96.0.0/12 }
			add element ip verdict service-cidrs { 10.0.0.0/8 }`, "service-cidrs", outcome{added: 2}},
		{"a range of ports deleted", `delete element ip verdict range-services { 203.0.0.1 . tcp . 5000-6000 }`,
			"elements of ip verdict range-services", outcome{added: 1}},
		{"another range of ports in its place", `delete element ip verdict range-masquerade-always { 203.0.0.1 . tcp . 5000-6000 }
			add element ip verdict range-masquerade-always { 203.0.0.1 . tcp . 1-5500 }`,
			"elements of ip verdict range-masquerade-always", outcome{added: 1, gone: 1}},
		{"a foreign range of ports", `add element ip verdict range-no-endpoints { 203.0.0.1 . tcp . 1-65535 }`,
			"elements of ip verdict range-no-endpoints", outcome{gone: 1}},
		{"ranges of ports flushed", `flush map ip verdict range-services`, "elements of ip verdict range-services", outcome{added: 3}},
		{"a guard removed", `flush set ip verdict ipvs-addresses`, "ipvs-addresses", outcome{added: 1}},
		{"a class cut off", `delete element ip verdict dispatch { 20:0 }`, "dispatch", outcome{added: 1}},
		{"both tables", `flush set ip verdict hairpin
			delete element ip6 verdict nodeport-addresses { 2001:db8::1 }`,
			"elements of ip verdict hairpin, elements of ip6 verdict nodeport-addresses", outcome{added: 3}},
		{"a rule inserted", `insert rule ip verdict services drop`, "chains, rules or sets", outcome{}},
		{"a rule with a set", `insert rule ip verdict services meta l4proto { tcp, udp } drop`, "chains, rules or sets", outcome{}},
		{"a rule with a map of its own", `add map ip verdict mine { type ipv4_addr : verdict; }
			add element ip verdict mine { 10.96.0.1 : drop }
			insert rule ip verdict services ip daddr vmap @mine`, "chains, rules or sets", outcome{}},
		{"a base chain", `add chain ip verdict mine { type filter hook input priority 5; policy drop; }`, "chains, rules or sets", outcome{}},
		{"a policy", `add chain ip verdict filter-forward { policy drop; }`, "chains, rules or sets", outcome{}},
		{"policies and a rule", `add chain ip verdict nat-output { policy drop; }
			add chain ip6 verdict nat-postrouting { policy drop; }
			insert rule ip verdict services drop`, "chains, rules or sets", outcome{}},
		{"a table put to sleep", `add table ip verdict { flags dormant; }`, "chains, rules or sets", outcome{}},
		{"both tables put to sleep, and changed", `add table ip verdict { flags dormant; }
			add table ip6 verdict { flags dormant; }
			add chain ip verdict filter-input { policy drop; }
			flush map ip verdict endpoints`, "chains, rules or sets, elements of ip verdict endpoints", outcome{added: 6}},
		{"a base chain moved", `flush chain ip verdict filter-forward
			delete chain ip verdict filter-forward
			add chain ip verdict filter-forward { type filter hook input priority 7; policy drop; }`, "chains, rules or sets", outcome{}},
		{"a chain renamed", `rename chain ip verdict unserved mine`, "chains, rules or sets", outcome{}},
		{"a base chain renamed", `rename chain ip verdict nat-output mine`, "chains, rules or sets", outcome{}},
		{"the chain of a class renamed", `rename chain ip verdict random-2 mine`, "chains, rules or sets", outcome{added: 1, gone: 1}},
		{"a set with a limit", `add set ip verdict cluster-ips { type ipv4_addr; size 3; }`, "chains, rules or sets", outcome{full: true}},
		{"a map of clients made small", `add set ip verdict unanswered { type ipv4_addr . inet_service; size 1; ` +
			`flags dynamic,timeout; timeout 1s; gc-interval 7d; counter; }`, "chains, rules or sets", outcome{full: true}},
		{"a chain flushed", `flush chain ip verdict nat-prerouting`, "chains, rules or sets", outcome{}},
		{"the chain of a class flushed", `flush chain ip verdict random-2`, "chains, rules or sets", outcome{}},
		{"a rule and elements", `insert rule ip verdict services drop
			flush map ip verdict endpoints`, "chains, rules or sets, elements of ip verdict endpoints", outcome{added: 6}},
		{"a set made again", `flush table ip verdict
			delete set ip verdict cluster-ips
			add set ip verdict cluster-ips { type ipv4_addr; }`, "chains, rules or sets", outcome{full: true}},
		{"a table deleted", `delete table ip verdict`, "chains, rules or sets", outcome{full: true}},
		{"everything flushed", `flush ruleset`, "chains, rules or sets", outcome{full: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			x := newInterfered(t, 3)
			x.load(t, tt.script)
			i := x.next(t)
			if i.Process != "nft" || i.PID == 0 || !strings.Contains(i.String(), tt.said) {
				t.Errorf("heard of %s by process %q, %d; want %q by nft", &i, i.Process, i.PID, tt.said)
			}
			r, err := x.engine.Repair(i)
			if err != nil {
				t.Fatal(err)
			}
			compareListings(t, "the tables are not as they were", x.listing(t), x.before)
			got := outcome{full: r.Full}
			if !r.Full {
				got.added, got.gone = r.Added, r.Deleted
			}
			if got != tt.want {
				t.Errorf("%+v, want %+v\n%s", got, tt.want, r.Text())
			}
			if intact, err := x.engine.Intact(); !intact || err != nil {
				t.Errorf("intact: %t, %v", intact, err)
			}
			mustApply(t, x.engine)
		})
	}
}

// TestSavedRulesetOfAnEarlierProcess is "systemctl reload nftables" after a restart: the saved text has other pool
// numbers than the running process. Its later changes must not land in the pools of other Services.
func TestSavedRulesetOfAnEarlierProcess(t *testing.T) {
	x := &interfered{namespace: newNamespace(t)}
	x.engine = x.namespace.engine(t)
	a, b := twoPorts(0)[0], twoPorts(1)[0]
	b.Cluster = endpoints("10.244.9.9:8080")
	x.set(t, a, b)
	mustApply(t, x.engine)
	saved := "flush ruleset\n" + x.listing(t)

	x.engine = x.namespace.engine(t)
	x.watch(t)
	x.set(t, b, a) // in another order: with other numbers
	mustApply(t, x.engine)
	want := x.listing(t)
	x.load(t, saved)
	if _, err := x.engine.Repair(x.next(t)); err != nil {
		t.Fatal(err)
	}
	compareListings(t, "the saved ruleset is still in force", x.listing(t), want)
}

// TestWatcherIgnoresOthers: neither the engine's own changes nor those of other tables are reported.
func TestWatcherIgnoresOthers(t *testing.T) {
	x := newInterfered(t, 1)
	x.load(t, "table inet other {\n set s { type ipv4_addr; elements = { 192.0.2.1 }; }\n chain c { type filter hook input priority 0; }\n}")
	x.set(t, twoPorts(7)...)
	mustApply(t, x.engine)
	x.load(t, "delete element ip verdict hairpin { 10.244.0.5 . 10.244.0.5 }")
	if i := x.next(t); i.String() != "elements of ip verdict hairpin" {
		t.Errorf("heard of %s, want only what nft did to our table", &i)
	}
}

// TestLostEvents: when the kernel drops events, everything is compared.
func TestLostEvents(t *testing.T) {
	x := newInterfered(t, 3)
	x.load(t, "flush map ip verdict endpoints\nadd element ip verdict hairpin { 192.0.2.1 . 192.0.2.1 }\nflush map ip verdict pools")
	r, err := x.engine.Repair(kernel.Interference{Lost: true})
	for r.More && err == nil {
		r, err = x.engine.recheckPart(time.Microsecond)
	}
	if err != nil || r.Full {
		t.Fatalf("full %t, error %v", r.Full, err)
	}
	compareListings(t, "the tables are not as they were", x.listing(t), x.before)
}

// TestRepairWithChangesWaiting: what was collected and not applied yet is applied as well.
func TestRepairWithChangesWaiting(t *testing.T) {
	x := newInterfered(t, 3)
	p := twoPorts(1)[0]
	p.Cluster = endpoints("10.244.3.3:8080")
	x.set(t, p)
	x.load(t, "flush map ip verdict endpoints")
	if _, err := x.engine.Repair(x.next(t)); err != nil {
		t.Fatal(err)
	}
	text := x.list(t)
	for _, endpoint := range []string{"10.244.3.3 . 8080", "10.244.0.5 . 8080", "10.244.0.6 . 8080"} {
		if !strings.Contains(text, endpoint) {
			t.Errorf("no endpoint %s in\n%s", endpoint, text)
		}
	}
}

// TestRepairOfOneTable deletes one table. Nothing of the other one is written again: the transaction names only its stamp.
func TestRepairOfOneTable(t *testing.T) {
	for _, f := range program.Families() {
		x := newInterfered(t, 3)
		other := program.Families()[1-f.Index()]
		x.load(t, fmt.Sprintf("delete table %s verdict", f))
		if _, err := x.engine.Repair(x.next(t)); err != nil {
			t.Fatal(err)
		}
		compareListings(t, "the tables are not as they were", x.listing(t), x.before)
		x.set(t, contents.Port{
			Family: other, Name: "test/late:p", Protocol: tcp, Frontends: []contents.Frontend{{Addr: numbered4or6(other, 30, 1), Port: 80, Refusal: program.Reject}},
		})
		mustApply(t, x.engine) // the stamps of both tables are known
		x.load(t, fmt.Sprintf("delete table %s verdict", f))
		r, err := x.engine.Repair(x.next(t))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(r.Text()) {
			if strings.Contains(line, " "+other.String()+" verdict ") && !strings.Contains(line, " "+program.Generation.Name()+" ") {
				t.Errorf("%s deleted, and the repair has for the other table: %s", f, line)
			}
		}
		for _, n := range x.engine.Elements() {
			if n.Family == other && n.Set == program.NoEndpoints && n.Elements != 1 {
				t.Errorf("%s %s: %d elements counted, want 1", n.Family, n.Set, n.Elements)
			}
		}
	}
}

// foreignEdits are what BenchmarkRepair repairs.
var foreignEdits = []struct{ name, script string }{
	{"element", "delete element ip verdict endpoints { 0:2 . 1 }"},
	{"rule", "insert rule ip verdict balance counter"},
}

// BenchmarkRepair is one edit among many Services: from the event until the kernel has what it should have.
func BenchmarkRepair(b *testing.B) {
	for _, n := range []int{1000, 10000, 50000} {
		b.Run(fmt.Sprintf("services=%d", n), func(b *testing.B) {
			ns := newNamespace(b)
			e := ns.engine(b)
			growing(b, e, program.IPv4, 0, n, 10)
			w, err := e.Watch()
			if err != nil {
				b.Fatal(err)
			}
			defer w.Close()
			for _, edit := range foreignEdits {
				b.Run(edit.name, func(b *testing.B) {
					for b.Loop() {
						b.StopTimer()
						ns.load(b, edit.script)
						b.StartTimer()
						i, err := w.Next(b.Context())
						if err != nil {
							b.Fatal(err)
						}
						if r, err := e.Repair(i); err != nil || r.Full || r.Bytes == 0 {
							b.Fatalf("%+v, %v", r, err)
						}
					}
				})
			}
			b.Run("lost", func(b *testing.B) { lookAtEverything(b, e) })
		})
	}
}

// lookAtEverything measures how much work lost events are, without the pauses between its parts, and the longest part.
func lookAtEverything(b *testing.B, e *Engine) {
	longest := time.Duration(0)
	for b.Loop() {
		began := time.Now()
		r, err := e.Repair(kernel.Interference{Lost: true})
		for r.More && err == nil {
			if took := time.Since(began); took > longest {
				longest = took
			}
			began = time.Now()
			r, err = e.RepairMore()
		}
		if err != nil || r.Full || r.Bytes > 0 {
			b.Fatalf("%+v, %v", r, err)
		}
	}
	b.ReportMetric(float64(longest.Nanoseconds()), "longest-part-ns")
}

// unreadableKernel fails to read the tables a few times.
type unreadableKernel struct {
	kernel.NFTables
	failures int
}

func (k *unreadableKernel) Survey(f program.Family) (kernel.Existing, error) {
	if k.failures > 0 {
		k.failures--
		return kernel.Existing{}, unix.ENOBUFS
	}
	return k.NFTables.Survey(f)
}

// TestRepairThatCannotRead: when a repair fails because the tables cannot be read, the next Apply repairs.
func TestRepairThatCannotRead(t *testing.T) {
	x := newInterfered(t, 2)
	x.load(t, "flush map ip verdict services")
	x.engine.conn = &unreadableKernel{NFTables: x.engine.conn, failures: 1}
	if _, err := x.engine.Repair(x.next(t)); !errors.Is(err, unix.ENOBUFS) {
		t.Fatalf("repair: %v", err)
	}
	mustApply(t, x.engine)
	compareListings(t, "the edit is still there", x.listing(t), x.before)
}
