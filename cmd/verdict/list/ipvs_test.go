//go:build ipvs

package list

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/cmd/verdict/snapshot"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/ipvsctl/wire"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// director is a bench whose node also has IPVS.
type director struct {
	*bench
	ipvs *ipvsctl.Engine
}

func newDirector(t *testing.T) *director {
	t.Helper()
	d := &director{bench: newBench(t)}
	err := d.world.Node.Do(func() (err error) {
		if _, err = ipvsctl.SetSysctls(ipvsctl.ProcSys, ipvsctl.Sysctls(false)); err != nil {
			return err
		}
		d.ipvs, err = ipvsctl.Open(ipvsctl.Options{GracefulPeriod: time.Minute})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.ipvs.Close)
	return d
}

// serve makes IPVS and the tables serve a Service port, as the dataplane does.
func (d *director) serve(f lab.Family, name string, p ipvsctl.Protocol, frontends []contents.Frontend, servers ...ipvsctl.VirtualServer) {
	d.Helper()
	for i := range frontends {
		frontends[i].IPVS = true
	}
	if err := d.ipvs.Set(d.owner(f, name), servers); err != nil {
		d.Fatal(err)
	}
	d.pass()
	d.set(contents.Port{Family: familyOf(f), Name: name, Protocol: uint8(p), Frontends: frontends})
}

func (d *director) owner(f lab.Family, name string) string { return f.String() + " " + name }

func (d *director) pass() {
	d.Helper()
	now := time.Now()
	for _, step := range []func(time.Time) (ipvsctl.Result, error){d.ipvs.Add, d.ipvs.Remove} {
		if _, err := step(now); err != nil {
			d.Fatal(err)
		}
	}
}

func (d *director) server(at netip.AddrPort, p ipvsctl.Protocol, scheduler string, reals ...ipvsctl.RealServer) ipvsctl.VirtualServer {
	return ipvsctl.VirtualServer{Key: ipvsctl.Key{Addr: at.Addr(), Port: at.Port(), Protocol: p}, Scheduler: scheduler, Local: true, RealServers: reals}
}

func real(f lab.Family, pod string, weight uint16) ipvsctl.RealServer {
	return ipvsctl.RealServer{Addr: netip.AddrPortFrom(lab.PodAddress(f, pod), 8080), Weight: weight}
}

// TestBesideIpvsadm compares the output for virtual servers with that of ipvsadm.
func TestBesideIpvsadm(t *testing.T) {
	d := newDirector(t)
	g := contents.Globals{IPVS: true}
	for _, f := range lab.Families() {
		g.NodePortAddresses = append(g.NodePortAddresses, lab.Address(f, "NODE"))
	}
	d.engine.SetGlobals(g)
	for _, f := range lab.Families() {
		t.Run(f.String(), func(t *testing.T) { d.in(t).checkFamily(f) })
	}
	t.Run("foreign", func(t *testing.T) { d.in(t).checkForeign() })
	t.Run("leaving", func(t *testing.T) { d.in(t).checkLeaving() })
}

// in returns the director for a subtest. Everything that the subtest opens is closed when the subtest ends.
func (d *director) in(t *testing.T) *director { return &director{d.bench.in(t), d.ipvs} }

func (d *director) checkFamily(f lab.Family) {
	at := func(name string, port uint16) netip.AddrPort { return netip.AddrPortFrom(lab.Address(f, name), port) }
	frontend := func(name string) []contents.Frontend {
		return []contents.Frontend{{Addr: lab.Address(f, name), Port: 80, ClusterIP: true}}
	}

	weighted := d.server(at("VIP1", 80), ipvsctl.TCP, "wrr", real(f, "a", 3), real(f, "b", 1), real(f, "c", 0))
	d.serve(f, "shop/weights:http", ipvsctl.TCP, frontend("VIP1"), weighted)
	sticky := d.server(at("VIP2", 80), ipvsctl.TCP, "wlc", real(f, "a", 1), real(f, "c", 1))
	sticky.Persistence = time.Hour
	d.serve(f, "shop/sticky:http", ipvsctl.TCP, frontend("VIP2"), sticky)
	hash := d.server(at("VIP3", 80), ipvsctl.TCP, "sh", real(f, "a", 1), real(f, "d", 1))
	hash.Flags = wire.HashPort
	d.serve(f, "shop/hash:http", ipvsctl.TCP, frontend("VIP3"), hash)
	d.serve(f, "shop/names:dns", ipvsctl.UDP, frontend("VIP1"), d.server(at("VIP1", 80), ipvsctl.UDP, "rr", real(f, "a", 1)))
	node := d.server(at("NODE", 30090), ipvsctl.TCP, "lc", real(f, "b", 1), real(f, "d", 1))
	node.Local = false
	d.serve(f, "shop/node:http", ipvsctl.TCP, []contents.Frontend{{Port: 30090}}, node)
	d.serve(f, "shop/lost:http", ipvsctl.TCP, frontend("VIP5"))

	first, closed := d.open("x", lab.TCP, at("VIP1", 80), 1)
	_, stay := d.open("x", lab.TCP, at("VIP1", 80), 7)
	d.open("y", lab.TCP, at("VIP2", 80), 3)
	d.open("x", lab.TCP, at("VIP3", 80), 4)
	d.open("x", lab.TCP, at("NODE", 30090), 2)
	d.open("x", lab.UDP, at("VIP1", 80), 2)
	first[0].Close()
	d.compare(at("VIP1", 80), at("VIP2", 80), at("VIP3", 80), at("NODE", 30090))

	d.want("TCP "+at("VIP1", 80).String(), fmt.Sprintf("ipvs shop/weights:http wrr a=3,%d,%d b=1,%d,%d c=0,0,0",
		stay["a"], closed["a"], stay["b"], closed["b"]))
	if stay["a"]+closed["a"] != 6 {
		d.Errorf("%v and %v: not 3 to 1", stay, closed)
	}
	d.want("UDP "+at("VIP1", 80).String(), "ipvs shop/names:dns rr a=1,0,2")
	d.want("TCP "+at("NODE", 30090).String(), "ipvs shop/node:http lc node-port b=1,1,0 d=1,1,0")
	d.want("TCP "+at("VIP5", 80).String(), "ipvs shop/lost:http - no-virtual-server")
	if got := d.picture(d.json("shop/sticky"), "TCP "+at("VIP1", 80).String()); got != "not listed" {
		d.Errorf("with a filter for another Service: %s", got)
	}
}

// compare converts both outputs into one form, and waits until they agree.
func (d *director) compare(places ...netip.AddrPort) {
	d.Helper()
	var ours, theirs string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		out, _, err := d.list()
		if err != nil {
			d.Fatal(err)
		}
		admin, err := d.world.Node.Command("ipvsadm", "-Ln")
		if err != nil {
			d.Fatal(err)
		}
		if ours, theirs = linesOfOurs(out), linesOfIpvsadm(admin); ours == theirs {
			d.Logf("verdict list:\n%s\nipvsadm -Ln:\n%s", out, admin)
			break
		}
	}
	if ours != theirs {
		d.Errorf("verdict list prints\n%s\nipvsadm -Ln prints\n%s", ours, theirs)
	}
	for _, at := range places {
		if !strings.Contains(theirs, " "+at.String()+" ") {
			d.Errorf("%s is not among the virtual servers:\n%s", at, theirs)
		}
	}
}

// linesOfOurs returns the virtual servers in the output of "verdict list", without the columns that ipvsadm does not
// have.
func linesOfOurs(text string) string {
	var out []string
	ipvs := false
	for line := range strings.Lines(text) {
		w := strings.Fields(line)
		switch {
		case w[0] == "->" && w[1] != headEndpoint && ipvs:
			out[len(out)-1] += "\n  " + strings.Join(w[:5], " ")
		case slices.Contains([]string{"TCP", "UDP", "SCTP"}, w[0]):
			if ipvs = w[3] == snapshot.IPVS && w[2] != "-"; ipvs {
				out = append(out, strings.Join(append(w[:3:3], withoutOwn(w[5:])...), " "))
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func withoutOwn(flags []string) []string {
	return slices.DeleteFunc(slices.Clone(flags), func(w string) bool { return w == "node-port" })
}

func linesOfIpvsadm(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		w := strings.Fields(line)
		switch {
		case len(w) == 6 && w[0] == "->" && w[2] == "Masq":
			out[len(out)-1] += "\n  " + strings.Join(slices.Delete(w, 2, 3), " ")
		case slices.Contains([]string{"TCP", "UDP", "SCTP"}, w[0]):
			out = append(out, strings.Join(w, " "))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// checkForeign adds a virtual server with another tool.
func (d *director) checkForeign() {
	foreign := netip.AddrPortFrom(lab.Address(lab.IPv4, "EXT1"), 80)
	d.command("ipvsadm", "-A", "-t", foreign.String(), "-s", "rr")
	if got := d.picture(d.json(), "TCP "+foreign.String()); got != "not listed" {
		d.Errorf("another tool's virtual server: %s", got)
	}
	d.command("ipvsadm", "-D", "-t", foreign.String())
}

func (d *director) command(name string, args ...string) {
	d.Helper()
	if _, err := d.world.Node.Command(name, args...); err != nil {
		d.Fatal(err)
	}
}

// checkLeaving removes a Service port that still has connections, and later the tables.
func (d *director) checkLeaving() {
	to := netip.AddrPortFrom(lab.Address(lab.IPv4, "VIP4"), 80)
	at := "TCP " + to.String()
	frontends := []contents.Frontend{{Addr: to.Addr(), Port: 80, ClusterIP: true}}
	d.serve(lab.IPv4, "shop/leaving:http", ipvsctl.TCP, frontends, d.server(to, ipvsctl.TCP, "wlc", real(lab.IPv4, "a", 2)))
	d.open("x", lab.TCP, to, 3)
	d.want(at, "ipvs shop/leaving:http wlc a=2,3,0")
	d.engine.Delete(program.IPv4, "shop/leaving:http")
	d.set()
	d.ipvs.Delete(d.owner(lab.IPv4, "shop/leaving:http"))
	d.pass()
	d.want(at, "ipvs - wlc a=0,3,0")
	if got := d.picture(d.json("shop"), at); got != "not listed" {
		d.Errorf("the Service of the virtual server is unknown, but it is listed as shop's: %s", got)
	}
	d.command("nft", "flush", "ruleset")
	table := d.json()
	unknown := func(fe snapshot.Frontend) bool { return fe.Service == "" && fe.Engine == snapshot.IPVS }
	if len(table.Frontends) != 11 || slices.ContainsFunc(table.Frontends, func(fe snapshot.Frontend) bool { return !unknown(fe) }) {
		d.Errorf("without tables, want eleven virtual servers of unknown Services, got %+v", table.Frontends)
	}
}
