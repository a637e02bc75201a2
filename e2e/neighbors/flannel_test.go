//go:build e2e

package neighbors

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/apiserver"
	"github.com/verdict-proxy/verdict/e2e/daemon"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

// flannel connects the pods of the node with those of the remote node, and masquerades what leaves their network. It keeps
// its state in etcd.
type flannel struct {
	backend string // vxlan or host-gw
	nft     bool   // rules in nftables; otherwise in iptables
	program string
	etcd    string
	node    *lab.Process
	ready   bool // etcd and the flannel of the remote node run
}

// healthzPort is where flannel reports that its routes and rules are there.
const healthzPort = 8471

// tunnelPort is the port of VXLAN in Linux.
const tunnelPort = 8472

// TestFlannel: large answers pass the tunnel, and Verdict leaves the packets of the tunnel alone.
func TestFlannel(t *testing.T) {
	needs(t, "iptables", "nft")
	program := filepath.Join(build(t, "flannel"), "flanneld")
	binaries, err := apiserver.Build("etcd")
	lab.Must(t, err)
	for _, n := range []flannel{{backend: "vxlan", nft: true}, {backend: "host-gw"}} {
		n.program, n.etcd = program, filepath.Join(binaries, "etcd")
		t.Run(fmt.Sprintf("%s, nftables %t", n.backend, n.nft), func(t *testing.T) {
			testNeighbor(t, func() neighbor { m := n; return &m })
			t.Run("large answers", func(t *testing.T) { n.testLargeAnswers(t, newBed(t)) })
		})
	}
}

func (n *flannel) start(t *testing.T, b *bed) {
	t.Helper()
	s := b.newSystem(t)
	if !n.ready {
		n.forgetRoutes(t, b)
		n.store(t, b, s)
		n.run(t, b, lab.Remote, "eth0", "REMOTE_PODS")
	}
	n.node = n.run(t, b, lab.Node, lab.InnerLink, "NODE_PODS", "--ip-masq")
	if n.ready {
		return
	}
	n.ready, b.masqueradesRemote = true, !n.nft
	if n.backend == "vxlan" {
		n.useTunnel(t, b)
	}
}

// forgetRoutes removes the lab's routes to the pods of the remote node: flannel makes its own.
func (*flannel) forgetRoutes(t *testing.T, b *bed) {
	t.Helper()
	for _, f := range lab.Families() {
		b.Node.Must(t, "", "ip", "route", "delete", lab.MustText(f, "REMOTE_PODS"))
	}
}

// store starts etcd and writes the configuration.
func (n *flannel) store(t *testing.T, b *bed, s *system) {
	t.Helper()
	at := "http://" + net.JoinHostPort(lab.MustText(lab.IPv4, "NODE_INNER"), "2379")
	p := s.start(t, "etcd", n.etcd, "--data-dir="+filepath.Join(b.dir, "etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls="+at, "--advertise-client-urls="+at, "--listen-peer-urls=http://127.0.0.1:2380")
	config := fmt.Sprintf(`{"Network": %q, "SubnetLen": 24, "EnableIPv6": true, "IPv6Network": %q, "IPv6SubnetLen": 64,
"EnableNFTables": %t, "Backend": {"Type": %q}}`, lab.MustText(lab.IPv4, "PODS"), lab.MustText(lab.IPv6, "PODS"), n.nft, n.backend)
	coded := base64.StdEncoding.EncodeToString
	body := fmt.Sprintf(`{"key": %q, "value": %q}`, coded([]byte("/coreos.com/network/config")), coded([]byte(config)))
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DialContext: b.Node.DialContext, DisableKeepAlives: true}}
	eventually(t, "etcd has flannel's configuration", p, func() bool {
		r, err := client.Post(at+"/v3/kv/put", "application/json", bytes.NewReader([]byte(body)))
		return err == nil && r.Body.Close() == nil && r.StatusCode == http.StatusOK
	})
}

// run starts flannel in a place and waits until it is ready. The file of an earlier run names the range of the place.
func (n *flannel) run(t *testing.T, b *bed, place, link, pods string, flags ...string) *lab.Process {
	t.Helper()
	file := "/run/flannel/" + place + ".env"
	if !b.system.succeeds("test", "-e", file) {
		nth := func(f lab.Family) string {
			return fmt.Sprintf("%s/%d", lab.Member(f, pods, 1), map[lab.Family]int{lab.IPv4: 24, lab.IPv6: 64}[f])
		}
		b.system.write(t, file, fmt.Sprintf("FLANNEL_NETWORK=%s\nFLANNEL_SUBNET=%s\nFLANNEL_IPV6_NETWORK=%s\nFLANNEL_IPV6_SUBNET=%s\n",
			lab.MustText(lab.IPv4, "PODS"), nth(lab.IPv4), lab.MustText(lab.IPv6, "PODS"), nth(lab.IPv6)))
	}
	command := append([]string{n.program, "--etcd-endpoints=http://" + net.JoinHostPort(lab.MustText(lab.IPv4, "NODE_INNER"), "2379"),
		"--iface=" + link, "--subnet-file=" + file, "--healthz-ip=127.0.0.1", fmt.Sprint("--healthz-port=", healthzPort)}, flags...)
	p, err := lab.NewProcess(lab.ProcessOptions{Name: "flannel-" + place, Namespace: b.At(t, place), Dir: b.dir, Command: b.system.wrap(command)})
	lab.Must(t, err)
	t.Cleanup(func() {
		_ = p.Kill() // that of the node has ended before
		if t.Failed() {
			t.Logf("the log of flannel on %s ends:\n%s", place, p.Log(20))
		}
	})
	eventually(t, "flannel is ready on "+place, p, func() bool {
		page, err := b.At(t, place).Get(t.Context(), fmt.Sprintf("http://127.0.0.1:%d/readyz", healthzPort))
		return err == nil && page.Code == http.StatusOK
	})
	return p
}

// useTunnel sends the packets of the remote pods to the node by the tunnel. The lab has no proxy on the remote node, so the
// node serves their connections. The pods get the MTU of the tunnel, as flannel's plugin gives it.
func (*flannel) useTunnel(t *testing.T, b *bed) {
	t.Helper()
	remote := b.At(t, lab.Remote)
	for link, gateway := range map[string]string{"flannel.1": "10.0.1.0", "flannel-v6.1": "fd00:10:0:1::"} {
		remote.Must(t, "", "ip", "route", "replace", "default", "via", gateway, "dev", link, "onlink", "table", "100")
	}
	for _, pod := range lab.Pods() {
		b.At(t, pod).Must(t, "", "ip", "link", "set", "eth0", "mtu", "1430")
	}
}

// large is the size of an answer that needs many full packets.
const large = 1 << 20

// testLargeAnswers has pod c of the remote node answer with much, through a cluster IP. Rules then have not touched the
// packets of the tunnel, which are packets of the node's own.
func (n flannel) testLargeAnswers(t *testing.T, b *bed) {
	daemon.WriteFile(t, b.objects, "large.yaml", alone(t, "large", "VIP5", lab.PodAddress(lab.IPv4, "c"), lab.PodAddress(lab.IPv6, "c"), 9000))
	b.startVerdict(t)
	n.start(t, b)
	b.watchPriorities(t)
	for _, f := range lab.Families() {
		l := answerLarge(t, b.At(t, "c"), f)
		for _, place := range []string{"a", "d", lab.Node, lab.Outside} {
			conn, err := b.At(t, place).DialContext(t.Context(), "tcp", lab.AddressPort(f, "VIP5", servicePort).String())
			if err != nil {
				t.Errorf("connect from %s to the cluster IP: %v", place, err)
				continue
			}
			_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
			if got, err := io.Copy(io.Discard, conn); err != nil || got != large {
				t.Errorf("%s got %d of %d bytes from a pod of the remote node: %v", place, got, large, err)
			}
			_ = conn.Close()
		}
		_ = l.Close()
		b.expectTunnel(t, f, n.backend == "vxlan")
	}
	b.expectPriorities(t)
}

// answerLarge answers each connection to a pod with zeros.
func answerLarge(t *testing.T, pod *lab.Namespace, f lab.Family) (l net.Listener) {
	t.Helper()
	err := pod.Do(func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(lab.PodAddress(f, "c"), 9000).String())
		return err
	})
	lab.Must(t, err)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			_, _ = conn.Write(make([]byte, large))
			_ = conn.Close()
		}
	}()
	return l
}

// expectTunnel looks for the flows of the tunnel: from node to node, and not translated.
func (b *bed) expectTunnel(t *testing.T, f lab.Family, used bool) {
	t.Helper()
	flows, err := b.Node.Flows(f)
	lab.Must(t, err)
	found := false
	for _, flow := range flows {
		if flow.Protocol == lab.UDP && flow.To.Port() == tunnelPort {
			found = true
			if flow.Server.Addr() != flow.To.Addr() {
				t.Errorf("%s: a packet of the tunnel is translated: %+v", f, flow)
			}
		}
	}
	if found != used {
		t.Errorf("%s: packets pass a tunnel: %t, want %t", f, found, used)
	}
}

// reload restarts flannel, which has no other way to read its configuration again.
func (n *flannel) reload(t *testing.T, b *bed) {
	t.Helper()
	n.stop(t, b)
	n.start(t, b)
}

func (n *flannel) stop(t *testing.T, _ *bed) {
	t.Helper()
	stop(t, n.node)
}

func (*flannel) trace() string { return "flannel" }

// drops: routes, devices and flows stay while flannel does not run.
func (*flannel) drops() bool { return false }
