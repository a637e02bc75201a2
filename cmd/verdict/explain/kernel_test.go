//go:build !nokernel

package explain

import (
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/netns"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// TestKilledTrace: the table of a trace goes with its process, also when that is killed.
func TestKilledTrace(t *testing.T) {
	n := netns.New(t)
	cmd := exec.Command(binary, "explain", "--trace=1m", "198.51.100.1", "198.51.100.2:80")
	if err := n.Start(cmd); err != nil {
		t.Fatal(err)
	}
	tables := func(want bool) {
		t.Helper()
		for late := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			has := strings.Contains(n.Must(t, "", "nft", "list", "tables"), program.TraceTableName)
			if has == want {
				return
			}
			if time.Now().After(late) {
				t.Fatalf("the table of the trace: there %t, want %t", has, want)
			}
		}
	}
	tables(true)
	if out, err := n.Command("nft", "flush", "table", "ip", program.TraceTableName); err == nil {
		t.Errorf("another process changed the table: %s", out)
	}
	if err := cmd.Process.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	tables(false)
}

// TestService explains all frontends of a Service that have the family of the source.
func TestService(t *testing.T) {
	n := netns.New(t)
	engine, err := nft.Open(nft.Options{NetNS: n.Fd()})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	n.MustDo(t, func() error {
		fill(t, engine, 3)
		for _, tt := range []struct {
			args     string
			verdicts int
		}{
			{"--service scale/svc-1 --from 127.0.0.1", 1}, {"--service scale/svc-1:http --from node", 0}, {"--service scale/none --from 127.0.0.1", 0},
		} {
			var out strings.Builder
			cmd := New()
			cmd.SetFlagErrorFunc(flags.WrongValue)
			cmd.SetArgs(strings.Fields(tt.args))
			cmd.SetOut(&out)
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			err := cmd.Execute()
			if got := strings.Count(out.String(), "verdict  "); got != tt.verdicts || (err == nil) != (tt.verdicts > 0) {
				t.Errorf("explain %s: %d verdicts, %v; want %d\n%s", tt.args, got, err, tt.verdicts, out.String())
			}
		}
		return nil
	})
}

// fill makes Services of ten endpoints each.
func fill(t testing.TB, engine *nft.Engine, services int) {
	t.Helper()
	for i := range services {
		p := contents.Port{Family: program.IPv4, Name: fmt.Sprintf("scale/svc-%d:http", i), Protocol: unix.IPPROTO_TCP}
		for e := range 10 {
			n := i*10 + e
			p.Cluster = append(p.Cluster, contents.Endpoint{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 8080)})
		}
		p.Frontends = []contents.Frontend{{Addr: serviceAddress(i), Port: 80, ClusterIP: true, Pool: program.ClusterPool}}
		if err := engine.Set(&p); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := engine.Apply(); err != nil {
		t.Fatalf("%s: %v", r.Outcome, err)
	}
}

func serviceAddress(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{20, byte(i >> 16), byte(i >> 8), byte(i)})
}

// BenchmarkExplain shows that an explanation costs the same whatever the number of Services.
func BenchmarkExplain(b *testing.B) {
	for _, services := range []int{1000, 10000} {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			w := lab.New(b)
			engine, err := nft.Open(nft.Options{NetNS: w.Node.Fd()})
			if err != nil {
				b.Fatal(err)
			}
			defer engine.Close()
			fill(b, engine, services)
			for b.Loop() {
				w.Node.MustDo(b, func() error {
					cmd := New()
					cmd.SetFlagErrorFunc(flags.WrongValue)
					cmd.SetArgs([]string{lab.PodAddress(lab.IPv4, "a").String(), serviceAddress(services/2).String() + ":80"})
					cmd.SetOut(io.Discard)
					return cmd.Execute()
				})
			}
		})
	}
}
