//go:build e2e || ipvs

package deadnode

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/daemon"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/netns"
	"github.com/verdict-proxy/verdict/e2e/program"
)

var (
	binary string // the verdict under test

	rate = flag.Int("rate", defaultRate, "connections a second while a node vanishes")
)

func TestMain(m *testing.M) { os.Exit(netns.Enter(func() int { return program.Main(m, &binary) })) }

// engine is what serves the Service.
type engine struct {
	name       string
	annotation string   // of the Service
	flags      []string // of the daemon
	// lateness is how long after the death connections may begin that are late.
	lateness time.Duration
	// holdsBack: the first refusal of an endpoint does not reach the client.
	holdsBack bool
}

// bed is a world with the daemon on its node.
type bed struct {
	*lab.World
	t       testing.TB
	dir     string // of manifests and logs
	process *lab.Process
}

// vip is the address of the Service.
func vip(f lab.Family) netip.AddrPort { return lab.AddressPort(f, "VIP1", 80) }

// place is an endpoint: a pod, one of its ports, and the node that its slice names.
type place struct {
	pod  string
	port uint16
	node string
}

func (p place) addr(f lab.Family) netip.AddrPort {
	return netip.AddrPortFrom(lab.PodAddress(f, p.pod), p.port)
}

// tenEndpoints are those of the Service: three are on the remote node. Pod b plays a pod of a third node.
func tenEndpoints() (list []place) {
	for _, port := range lab.Ports() {
		list = append(list, place{"a", port, lab.NodeName})
	}
	for _, port := range lab.Ports()[:3] {
		list = append(list, place{"b", port, "node-3"})
	}
	return append(list, place{"c", 8080, lab.RemoteNodeName}, place{"d", 8080, lab.RemoteNodeName},
		place{"c", 8081, lab.RemoteNodeName})
}

func newBed(t testing.TB, annotation string, endpoints []place, flags ...string) *bed {
	t.Helper()
	return newBedAfter(t, nil, annotation, endpoints, flags...)
}

// solicit sets how often the node asks for a neighbor, once a second, before it tells clients that there is no route.
func (b *bed) solicit() {
	b.t.Helper()
	b.Node.MustDo(b.t, func() error {
		files, err := filepath.Glob("/proc/sys/net/ipv[46]/neigh/*/[mu]cast_solicit")
		if err == nil && len(files) == 0 {
			err = errors.New("no settings of neighbors")
		}
		for _, file := range files {
			err = errors.Join(err, os.WriteFile(file, []byte(strconv.Itoa(solicits)), 0o644))
		}
		return err
	})
}

// newBedAfter changes the world before the daemon starts.
func newBedAfter(t testing.TB, before func(*bed), annotation string, endpoints []place, flags ...string) *bed {
	t.Helper()
	b := &bed{World: lab.New(t), t: t, dir: t.TempDir()}
	b.solicit()
	if before != nil {
		before(b)
	}
	b.write("service.yaml", service(annotation))
	b.slices(endpoints)
	b.process = daemon.Run(t, b.Node, b.dir, append([]string{
		binary, "run", "--manifests=" + filepath.Join(b.dir, "manifests"), "--hostname-override=" + lab.NodeName, "--backend=nft",
		"--cluster-cidr=10.0.0.0/16,fd00:10::/48", "--healthz-bind-address=", "--metrics-bind-address=", "-v=4",
	}, flags...)...).Process
	return b
}

// untilAsked waits until the daemon has asked endpoints, in both families, whether they answer this node at all. It ejects no
// others. Nobody else may have connected to them before.
func (b *bed) untilAsked(endpoints []place) {
	b.t.Helper()
	questions := map[string]int{}
	for _, p := range endpoints {
		questions[p.pod] += len(lab.Families())
	}
	for pod, n := range questions {
		b.At(b.t, pod).UntilAccepted(b.t, n)
	}
}

func (b *bed) write(name, text string) {
	b.t.Helper()
	dir := filepath.Join(b.dir, "manifests")
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = lab.WriteFile(dir, name, []byte(text))
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

func service(annotation string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {namespace: shop, name: web, annotations: {%s}}
spec:
  clusterIPs: ["%s", "%s"]
  ipFamilies: [IPv4, IPv6]
  ports: [{name: http, port: 80}]
`, annotation, vip(lab.IPv4).Addr(), vip(lab.IPv6).Addr())
}

const eject = `verdict-proxy.github.io/outlier-detection: "eject"`

// slices writes the EndpointSlices: one for each family and port.
func (b *bed) slices(endpoints []place) {
	var text strings.Builder
	for _, f := range lab.Families() {
		for _, port := range append(lab.Ports(), 9) {
			rows := ""
			for _, p := range endpoints {
				if p.port == port {
					rows += fmt.Sprintf("- {addresses: [%q], nodeName: %s, conditions: {ready: true}}\n", p.addr(f).Addr(), p.node)
				}
			}
			if rows != "" {
				fmt.Fprintf(&text, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: shop, name: web-%d-%d, labels: {kubernetes.io/service-name: web}}
addressType: %s
ports: [{name: http, port: %d}]
endpoints:
%s`, f, port, f, port, rows)
			}
		}
	}
	b.write("slices.yaml", text.String())
}

// rule adds a rule to a chain of its own in a place.
func (b *bed) rule(at, hook string, priority int, rule string) {
	b.t.Helper()
	b.At(b.t, at).Must(b.t, "table inet alarm-"+hook+" {\nchain c {\ntype filter hook "+hook+" priority "+
		map[int]string{0: "0", -300: "-300"}[priority]+";\n"+rule+"\n}\n}\n", "nft", "-f", "-")
}

// waitFor waits for a text in the log.
func (b *bed) waitFor(text string) {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); !b.logged(text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("the log does not say %q", text)
		}
	}
}

func (b *bed) logged(text string) bool { return strings.Contains(b.process.Log(100_000), text) }

// attempt is one connection of a load.
type attempt struct {
	began time.Duration // since the load began
	took  time.Duration
	err   error
}

// load makes connections from a place, all of them with this patience, and returns them in order.
type load struct {
	from     *lab.Namespace
	to       netip.AddrPort
	rate     int // a second
	patience time.Duration
	began    time.Time
	stop     chan struct{}
	wait     sync.WaitGroup
	mu       sync.Mutex
	attempts []attempt
}

func (b *bed) load(from string, to netip.AddrPort, rate int) *load {
	l := &load{from: b.At(b.t, from), to: to, rate: rate, patience: defaultPatience, began: time.Now(), stop: make(chan struct{})}
	l.wait.Go(l.run)
	return l
}

func (l *load) run() {
	tick := time.NewTicker(time.Second / time.Duration(l.rate))
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C:
		}
		began := time.Now()
		fd, err := l.open()
		l.wait.Go(func() {
			if err == nil {
				err = firstByte(fd, began.Add(l.patience))
				_ = unix.Close(fd)
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			l.attempts = append(l.attempts, attempt{began: began.Sub(l.began), took: time.Since(began), err: err})
		})
	}
}

// open begins a connection, and does not wait for it.
func (l *load) open() (fd int, err error) {
	doErr := l.from.Do(func() error {
		domain, to := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(l.to.Port()), Addr: l.to.Addr().As16()})
		if l.to.Addr().Is4() {
			domain, to = unix.AF_INET, &unix.SockaddrInet4{Port: int(l.to.Port()), Addr: l.to.Addr().As4()}
		}
		if fd, err = unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if err = unix.Connect(fd, to); err == unix.EINPROGRESS {
			err = nil
		}
		return nil
	})
	if doErr != nil {
		return 0, doErr
	}
	return fd, err
}

// firstByte waits until the server has spoken.
func firstByte(fd int, deadline time.Time) error {
	for {
		rest := time.Until(deadline)
		if rest <= 0 {
			return unix.ETIMEDOUT
		}
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(rest/time.Millisecond)+1)
		if err != nil && err != unix.EINTR {
			return err
		}
		if n, err := unix.Read(fd, make([]byte, 1)); n > 0 {
			return nil
		} else if err != unix.EAGAIN && err != unix.ENOTCONN {
			return fmt.Errorf("read: %w", err)
		}
	}
}

// end stops the load, and waits for the end of each connection.
func (l *load) end() []attempt {
	close(l.stop)
	l.wait.Wait()
	slices.SortFunc(l.attempts, func(a, b attempt) int { return int(a.began - b.began) })
	return l.attempts
}
