//go:build !nokernel

package list

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
	"github.com/verdict-proxy/verdict/cmd/verdict/snapshot"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// command runs a command on the node.
func (b *bench) command(cmd *cobra.Command, args ...string) (stdout string, err error) {
	b.Helper()
	var out bytes.Buffer
	err = b.world.Node.Do(func() error {
		cmd.SetArgs(append([]string{}, args...))
		cmd.SetOut(&out)
		cmd.SetErr(io.Discard)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		return cmd.Execute()
	})
	return out.String(), err
}

func (b *bench) get(args ...string) (string, error) {
	cmd := NewGet()
	cmd.SetFlagErrorFunc(flags.WrongValue)
	return b.command(cmd, args...)
}

func (b *bench) mustGet(args ...string) string {
	b.Helper()
	out, err := b.get(args...)
	if err != nil {
		b.Fatalf("get %v: %v", args, err)
	}
	return out
}

// filled is a bench with the ports of both families.
func filled(t *testing.T) *bench {
	b := newBench(t)
	var g contents.Globals
	for _, f := range lab.Families() {
		g.NodePortAddresses = append(g.NodePortAddresses, lab.Address(f, "NODE"))
	}
	b.engine.SetGlobals(g)
	b.set(append(b.ports(lab.IPv4), b.ports(lab.IPv6)...)...)
	return b
}

// TestGet: "get frontend" says of each frontend what "list" says.
func TestGet(t *testing.T) {
	b := filled(t)
	for _, want := range b.json().Frontends {
		var got snapshot.Table
		text := b.mustGet("frontend", want.At()+"/"+strings.ToLower(want.Protocol), "-o", "json")
		if err := json.Unmarshal([]byte(text), &got); err != nil || len(got.Frontends) != 1 {
			t.Fatalf("get frontend %s: %v\n%s", want.At(), err, text)
		}
		addrs := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
		if diff := cmp.Diff(want, got.Frontends[0], addrs); diff != "" {
			t.Errorf("get frontend %s (- listed, + got)\n%s", want.At(), diff)
		}
	}
	vip := lab.Address(lab.IPv4, "VIP4")
	client := lab.Address(lab.IPv4, "X")
	if _, err := b.get("affinity", client.String(), vip.String()+":80"); err == nil || !strings.Contains(err.Error(), "no affinity entry") {
		t.Errorf("affinity of a client that has never connected: %v", err)
	}
	_, seen := b.open("x", lab.TCP, netip.AddrPortFrom(vip, 80), 2)
	text := b.mustGet("affinity", client.String(), vip.String()+":80")
	for pod := range seen {
		if at := netip.AddrPortFrom(lab.PodAddress(lab.IPv4, pod), 8080); !strings.Contains(text, "Endpoint  "+at.String()) || len(seen) != 1 {
			t.Errorf("the client went to %v, but get affinity says\n%s", seen, text)
		}
	}
	number := strings.Fields(text)[1]
	if pool := b.mustGet("pool", number, "-o", "yaml"); strings.Count(pool, "weight: 1") != 4 || !strings.Contains(pool, "service: shop/sticky:http") {
		t.Errorf("get pool %s:\n%s", number, pool)
	}
	end := netip.AddrPortFrom(lab.PodAddress(lab.IPv4, "d"), 8080)
	if text := b.mustGet("endpoint", end.String()); strings.Count(text, "  -> "+end.String()) != 4 { // VIP1, VIP4, LB1, node port
		t.Errorf("get endpoint %s:\n%s", end, text)
	}
}

func TestGetMistakes(t *testing.T) {
	b := filled(t)
	for _, tt := range []struct {
		args, want string
		usage      bool
	}{
		{"", "get what?", true},
		{"service web", "get what?", true},
		{"frontend", "want get frontend ADDRESS:PORT[/PROTOCOL], got 0 arguments", true},
		{"frontend 10.96.0.11", "has no port", true},
		{"frontend 10.96.0.11:80/http", "must be tcp, udp or sctp", true},
		{"frontend 10.96.0.11:81", "the kernel has no frontend 10.96.0.11:81", false},
		{"frontend *:30999", "the kernel has no frontend", false},
		{"frontend 10.96.0.11:80 -o xml", "--output=xml", true},
		{"pool 17", "such as 0:2", true},
		{"pool e:1", "has no pool e:1", false},
		{"affinity client 10.96.0.11:80", `client "client" must be an address`, true},
		{"affinity fd00::1 10.96.0.11:80", "same address family", true},
		{"affinity 10.0.0.1 10.96.0.11:80", "has no session affinity", false},
		{"affinity 10.0.0.1 10.96.0.13:80", "has no endpoint for 10.0.0.1", false},
		{"endpoint web", `endpoint "web" must be ADDRESS`, true},
		{"endpoint 10.9.9.9", "no frontend in the kernel leads to 10.9.9.9", false},
	} {
		_, err := b.get(strings.Fields(tt.args)...)
		if err == nil || errors.As(err, new(flags.UsageError)) != tt.usage || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("get %s: %v; want %q, wrong usage %t", tt.args, err, tt.want, tt.usage)
		}
	}
}

func TestSelection(t *testing.T) {
	b := filled(t)
	for _, tt := range []struct {
		args string
		want int
	}{
		{"--problem", 4}, {"--engine nft", 16}, {"--engine ipvs", 0}, {"--address 10.96.0.11", 2}, {"--address 10.96.0.0/24 -4", 5},
		{"--address 192.168.7.1", 1}, {"--address [fd00:7::1]", 1}, {"--endpoint 10.0.2.1", 5}, {"--endpoint 10.0.2.0/24:8080", -1},
		{"--endpoint 10.0.2.2:8080", 4}, {"--endpoint 10.0.2.2:1", 0}, {"--problem shop", 0}, {"--endpoint 10.0.2.1 shop/web", 2},
		{"--engine both", -1}, {"-o xml", -1}, {"--rate=2h", -1},
	} {
		out, _, err := b.list(append(strings.Fields(tt.args), "--json")...)
		var got snapshot.Table
		_ = json.Unmarshal([]byte(out), &got)
		switch {
		case tt.want < 0 && !errors.As(err, new(flags.UsageError)):
			t.Errorf("list %s: %v, want wrong usage", tt.args, err)
		case tt.want > 0 && (err != nil || len(got.Frontends) != tt.want):
			t.Errorf("list %s: %d frontends, %v; want %d", tt.args, len(got.Frontends), err, tt.want)
		case tt.want == 0 && len(got.Frontends) != 0:
			t.Errorf("list %s: %d frontends, want none", tt.args, len(got.Frontends))
		}
	}
}

// meanwhile has the commands make connections where they would wait for others to make them.
func (b *bench) meanwhile(to ...netip.AddrPort) {
	b.Helper()
	wait := pause
	b.Cleanup(func() { pause = wait })
	pause = func(_ context.Context, d time.Duration) error {
		if d != counting {
			b.Errorf("the command counts for %s, want %s", d, counting)
		}
		for _, at := range to {
			b.world.At(b, "x").Ask(lab.Question{Protocol: lab.TCP, To: at, Patience: patience})
		}
		return nil
	}
}

// counting is how long the commands are to count.
const counting = 300 * time.Millisecond

// TestRate makes connections while the command counts.
func TestRate(t *testing.T) {
	b := filled(t)
	web, refused := netip.AddrPortFrom(lab.Address(lab.IPv4, "VIP1"), 80), netip.AddrPortFrom(lab.Address(lab.IPv4, "VIP3"), 80)
	b.meanwhile(web, refused)
	out := b.json("--rate="+counting.String(), "-4")
	wide, _, err := b.list("-o", "wide", "-4")
	if err != nil || !strings.Contains(wide, "connections=") {
		t.Errorf("list -o wide: %v\n%s", err, wide)
	}
	for _, fe := range out.Frontends {
		busy := fe.Address == web.Addr() && fe.Protocol == "TCP"
		rejects := fe.Address == refused.Addr()
		if fe.Rate == nil || (*fe.Rate > 0) != busy || (*fe.RefusedRate > 0) != rejects {
			t.Errorf("%s %s: rates %v and %v", fe.Protocol, fe.At(), fe.Rate, fe.RefusedRate)
		}
	}
	if yaml, _, err := b.list("-o", "yaml", "shop/web"); err != nil || !strings.Contains(yaml, "service: shop/web:http") {
		t.Errorf("list -o yaml: %v\n%s", err, yaml)
	}
}

func TestCompletion(t *testing.T) {
	b := filled(t)
	for begin, want := range map[string][]string{
		"":       {"empty", "empty/none", "shop", "shop/local", "shop/names", "shop/sticky", "shop/web", "shop/weights"},
		"shop/w": {"shop/web", "shop/weights"}, "shop/web:": {"shop/web:http"}, "none": {},
	} {
		var got []string
		b.world.Node.MustDo(t, func() error {
			got = snapshot.ServiceNames(begin)
			return nil
		})
		if !slices.Equal(got, want) {
			t.Errorf("completion of %q: %v, want %v", begin, got, want)
		}
	}
}

// BenchmarkGet shows that one thing costs the same whatever the number of Services.
func BenchmarkGet(b *testing.B) {
	for _, services := range []int{1000, 10000, 50000} {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			w := lab.New(b)
			engine, err := nft.Open(nft.Options{NetNS: w.Node.Fd()})
			if err != nil {
				b.Fatal(err)
			}
			defer engine.Close()
			fillNode(b, engine, services)
			for b.Loop() {
				w.Node.MustDo(b, func() error {
					cmd := NewGet()
					cmd.SetFlagErrorFunc(flags.WrongValue)
					cmd.SetArgs([]string{"frontend", benchAddress(services/2).String() + ":80"})
					cmd.SetOut(io.Discard)
					return cmd.Execute()
				})
			}
		})
	}
}

func benchAddress(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{20, byte(i >> 16), byte(i >> 8), byte(i)})
}

func fillNode(b *testing.B, engine *nft.Engine, services int) {
	b.Helper()
	for i := range services {
		p := contents.Port{Family: program.IPv4, Name: fmt.Sprintf("scale/svc-%d:http", i), Protocol: unix.IPPROTO_TCP}
		for e := range 10 {
			n := i*10 + e
			at := netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
			p.Cluster = append(p.Cluster, contents.Endpoint{Addr: netip.AddrPortFrom(at, 8080)})
		}
		p.Frontends = []contents.Frontend{{Addr: benchAddress(i), Port: 80, ClusterIP: true, Pool: program.ClusterPool}}
		if err := engine.Set(&p); err != nil {
			b.Fatal(err)
		}
	}
	if r, err := engine.Apply(); err != nil {
		b.Fatalf("%s: %v", r.Outcome, err)
	}
}

// TestTopOnce counts connections that a client makes meanwhile.
func TestTopOnce(t *testing.T) {
	b := filled(t)
	b.meanwhile(netip.AddrPortFrom(lab.Address(lab.IPv4, "VIP1"), 80))
	out, err := b.command(NewTop(), "--once", "--interval="+counting.String())
	lines := strings.Split(out, "\n")
	if err != nil || len(lines) < 3 || lines[0] != "daemon: none answers" || !strings.HasPrefix(lines[2], "shop/web:http ") {
		t.Errorf("top --once: %v\n%s", err, out)
	}
	if rate := strings.Fields(lines[2])[1]; rate == "0.0" {
		t.Errorf("no connections were counted:\n%s", out)
	}
}
