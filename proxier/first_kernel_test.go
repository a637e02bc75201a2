//go:build !nokernel

package proxier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/netns"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// firstWorld is a node with many Services, before the first pass. Its dataplane calls after whenever something went to the kernel.
type firstWorld struct {
	*world
	*dataplane.Dataplane
	ns        *netns.Namespace
	engine    *nft.Engine
	after     func(r dataplane.Result)
	pieces    []dataplane.Result // before the last transactions
	last      dataplane.Result
	interrupt bool // the process dies after the second piece
}

var errDead = errors.New("injected: the process is dead")

func (w *firstWorld) ApplyPiece() dataplane.Result {
	r := w.Dataplane.ApplyPiece()
	w.pieces = append(w.pieces, r)
	if w.after(r); w.interrupt && len(w.pieces) == 2 {
		r.Err = errDead
	}
	return r
}

func (w *firstWorld) Apply() dataplane.Result {
	if w.interrupt {
		return dataplane.Result{Outcome: kernel.Rejected, Err: errDead}
	}
	w.last = w.Dataplane.Apply()
	return w.last
}

const (
	firstServices = 2000
	widePorts     = 150 // of one more Service, with more elements than a piece of a change
)

// newFirstWorld makes a node, or goes on with one.
func newFirstWorld(t *testing.T, ns *netns.Namespace) *firstWorld {
	t.Helper()
	engine, err := nft.Open(nft.Options{NetNS: ns.Fd(), Piece: nft.Piece})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close() })
	w := &firstWorld{ns: ns, engine: engine, Dataplane: dataplane.New(dataplane.Options{Ruleset: engine}), after: func(dataplane.Result) {}}
	w.world = newWorldWith(func(o *Options) { o.Dataplane, o.Empty = w, engine.Empty })
	w.store.SetServiceCIDRs([]netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")})
	for i := range firstServices {
		w.serve(fmt.Sprintf("aaa/web-%04d", i), firstIP(i), 1)
	}
	w.serve("aaa/many", "10.96.200.1", widePorts)
	w.serve("default/kubernetes", "10.96.0.1", 1)
	w.serve("kube-system/dns", "10.96.0.10", 1)
	w.store.MarkSynced()
	return w
}

func firstIP(i int) string { return fmt.Sprintf("10.96.%d.%d", 1+i/250, 1+i%250) }

// serve adds a Service with 10 endpoints, which are addresses of the node.
func (w *firstWorld) serve(name, clusterIP string, ports int) {
	namespace, own, _ := strings.Cut(name, "/")
	svc, sl := service(own, clusterIP, 1), slice(own)
	svc.Namespace, sl.Namespace, sl.Service.Namespace = namespace, namespace, namespace
	svc.Ports, sl.Ports = nil, nil
	for i := range ports {
		port := fmt.Sprint("p", i)
		svc.Ports = append(svc.Ports, state.ServicePort{Name: port, Protocol: state.TCP, Port: uint16(80 + i)})
		sl.Ports = append(sl.Ports, state.SlicePort{Name: port, Protocol: state.TCP, Port: 8080})
	}
	for i := range 10 {
		sl.Endpoints = append(sl.Endpoints, state.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + i)}), Ready: true, Serving: true})
	}
	w.store.SetService(svc, nil)
	w.store.SetSlice(sl, nil)
}

// firstNode has the endpoints, and a server at another address.
func firstNode(t *testing.T) *netns.Namespace {
	t.Helper()
	ns := netns.New(t)
	ns.Must(t, "addr add 10.0.0.99/32 dev lo\nroute add 10.96.0.0/16 dev lo\n", "ip", "-batch", "-")
	for i := range 10 {
		ns.Must(t, "", "ip", "addr", "add", fmt.Sprintf("10.0.0.%d/32", 1+i), "dev", "lo")
	}
	for port, name := range map[int]string{8080: "an endpoint", 8081: "another proxy"} {
		ns.MustDo(t, func() error {
			l, err := net.ListenTCP("tcp", &net.TCPAddr{Port: port})
			if err != nil {
				return err
			}
			t.Cleanup(func() { l.Close() })
			go func() {
				for c, err := l.Accept(); err == nil; c, err = l.Accept() {
					_, _ = io.WriteString(c, name)
					_ = c.Close()
				}
			}()
			return nil
		})
	}
	return ns
}

// ask connects to a Service, and returns who answers.
func (w *firstWorld) ask(t *testing.T, clusterIP string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, err := w.ns.DialContext(ctx, "tcp", clusterIP+":80")
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	answer, err := io.ReadAll(c)
	if err != nil {
		return err.Error()
	}
	return string(answer)
}

// begin sends the first packet of a connection. The function that it returns waits for the end of the attempt.
func (w *firstWorld) begin(t *testing.T, clusterIP string) (end func() error) {
	t.Helper()
	var fd int
	w.ns.MustDo(t, func() (err error) {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if err = unix.Connect(fd, &unix.SockaddrInet4{Port: 80, Addr: netip.MustParseAddr(clusterIP).As4()}); !errors.Is(err, unix.EINPROGRESS) {
			return fmt.Errorf("the attempt ended at once: %w", err)
		}
		return nil
	})
	return func() error {
		defer unix.Close(fd)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 20_000)
		if err != nil || n == 0 {
			return fmt.Errorf("no end: %w", err)
		}
		if code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); err != nil || code != 0 {
			return errors.Join(err, unix.Errno(code))
		}
		return nil
	}
}

// served counts the service ports of each Service in the kernel.
func (w *firstWorld) served(t *testing.T) map[string]int {
	t.Helper()
	listing, err := inspect.List(kernel.Options{NetNS: w.ns.Fd()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for i := range listing.Frontends {
		counts[serviceOf(listing.Frontends[i].Name).String()]++
	}
	return counts
}

// TestFirstPassInPieces: on an empty node, the Services of the cluster answer after the first of several transactions. Each has a
// bounded number of elements and whole Services. A connection to a Service that is not there yet is not refused: its next packet
// finds the Service. No observer hears of a pass before all Services are there.
func TestFirstPassInPieces(t *testing.T) {
	w := newFirstWorld(t, firstNode(t))
	late := firstIP(firstServices - 1)
	var ends []func() error
	w.after = func(r dataplane.Result) {
		if r.Err != nil || r.Transactions != [3]int{1} || r.Added > 2*firstPiece || r.Deleted > 2 {
			t.Errorf("piece %d: %v, transactions %d, %d elements added and %d deleted", len(w.pieces), r.Err, r.Transactions, r.Added, r.Deleted)
		}
		if got := w.ask(t, "10.96.0.1"); got != "an endpoint" {
			t.Errorf("piece %d: at default/kubernetes answers %q", len(w.pieces), got)
		}
		served := w.served(t)
		if served["kube-system/dns"] != 1 || served["aaa/many"] != 0 && served["aaa/many"] != widePorts || served[fmt.Sprintf("aaa/web-%04d", firstServices-1)] != 0 {
			t.Errorf("piece %d: of kube-system/dns %d ports are served, of aaa/many %d, and %d of the last Service", len(w.pieces),
				served["kube-system/dns"], served["aaa/many"], served[fmt.Sprintf("aaa/web-%04d", firstServices-1)])
		}
		if len(w.watcher.passes) > 0 || w.pendingServices() != firstServices+3 || w.flows.cleans > 0 {
			t.Errorf("piece %d counts as a pass", len(w.pieces))
		}
		ends = append(ends, w.begin(t, late))
	}
	w.mustApply(t)
	if len(w.pieces) < 5 || len(w.watcher.passes) != 1 || !w.watcher.passes[0].Result.Full || w.pendingServices() != 0 || w.continues() {
		t.Errorf("%d pieces, %d passes, %d Services pending", len(w.pieces), len(w.watcher.passes), w.pendingServices())
	}
	if n := len(w.served(t)); n != firstServices+3 {
		t.Errorf("%d Services are served", n)
	}
	for i, end := range ends {
		if err := end(); err != nil {
			t.Errorf("a connection that began after piece %d: %v", i+1, err)
		}
	}
}

// TestFirstPassBesideAnotherProxy: until a Service is there, the rules of another proxy serve it.
func TestFirstPassBesideAnotherProxy(t *testing.T) {
	w := newFirstWorld(t, firstNode(t))
	if err := w.ns.Load(`table ip kube-proxy {
		chain nat-output { type nat hook output priority -100; ip daddr 10.96.0.0/16 tcp dport 80 dnat to 10.0.0.99:8081; }
	}`); err != nil {
		t.Fatal(err)
	}
	others := 0
	w.after = func(dataplane.Result) {
		served := w.served(t)
		for i := 0; i < firstServices; i += 97 {
			want := "another proxy"
			if served[fmt.Sprintf("aaa/web-%04d", i)] > 0 {
				want = "an endpoint"
			} else {
				others++
			}
			if got := w.ask(t, firstIP(i)); got != want {
				t.Errorf("piece %d: at Service %d answers %q, want %s", len(w.pieces), i, got, want)
			}
		}
	}
	if w.mustApply(t); others < 20 {
		t.Errorf("in %d pieces, the other proxy served %d connections", len(w.pieces), others)
	}
}

// TestFirstPassOverTables: what an earlier process left, be it all or a part because it died in between, changes in one transaction.
func TestFirstPassOverTables(t *testing.T) {
	for name, interrupt := range map[string]bool{"all": false, "a part": true} {
		t.Run(name, func(t *testing.T) {
			w := newFirstWorld(t, firstNode(t))
			w.interrupt = interrupt
			if err := w.pass(); errors.Is(err, errDead) != interrupt || len(w.pieces) < 2 {
				t.Fatalf("%v, %d pieces", err, len(w.pieces))
			}
			if n := len(w.served(t)); interrupt == (n > firstServices) {
				t.Fatalf("%d Services are served", n)
			}
			if err := w.engine.Close(); err != nil {
				t.Fatal(err)
			}
			again := newFirstWorld(t, w.ns)
			again.serve("aaa/zzz", "10.96.250.1", 1)
			if again.mustApply(t); len(again.pieces) != 0 || again.last.Transactions != [3]int{1} {
				t.Errorf("%d pieces, and then the transactions %d", len(again.pieces), again.last.Transactions)
			}
			if n := len(again.served(t)); n != firstServices+4 {
				t.Errorf("%d Services are served", n)
			}
		})
	}
}

// TestFirstPassMeetsAFlush: another process deletes the tables between two pieces. The next one is refused, and all Services come with
// the transaction after it.
func TestFirstPassMeetsAFlush(t *testing.T) {
	w := newFirstWorld(t, firstNode(t))
	w.after = func(dataplane.Result) {
		if len(w.pieces) == 2 {
			if err := w.ns.Load("flush ruleset"); err != nil {
				t.Error(err)
			}
		}
	}
	w.mustApply(t)
	if n := len(w.served(t)); len(w.pieces) != 3 || w.pieces[2].Err == nil || n != firstServices+3 {
		t.Errorf("%d pieces, %d Services are served", len(w.pieces), n)
	}
}

// TestFirstPassHasNoThief: in no piece has a Service an address that another one has by precedence, although that comes later.
func TestFirstPassHasNoThief(t *testing.T) {
	w := newFirstWorld(t, firstNode(t))
	thief, victim := service("thief", "10.96.201.1", 1, "10.96.201.2", "192.0.2.7"), service("victim", "10.96.201.2", 2)
	older := service("zzz", "10.96.201.3", 0, "192.0.2.7")
	thief.Namespace, victim.Namespace, older.Namespace = "aaa", "zzz", "zzz"
	thief.Name.Name = "a-thief" // in the first piece
	for _, svc := range []*state.Service{thief, victim, older} {
		w.store.SetService(svc, nil)
	}
	seen := false
	w.after = func(dataplane.Result) {
		listing, err := inspect.List(kernel.Options{NetNS: w.ns.Fd()}, func(name string) bool { return strings.HasPrefix(name, "aaa/a-thief:") })
		if err != nil {
			t.Fatal(err)
		}
		for i := range listing.Frontends {
			fe := &listing.Frontends[i]
			if seen = true; slices.Contains([]string{"10.96.201.2", "192.0.2.7"}, fe.Addr.String()) {
				t.Errorf("piece %d: the thief has %s", len(w.pieces), fe.Addr)
			}
		}
	}
	if w.mustApply(t); !seen || len(w.pieces) < 2 {
		t.Errorf("in %d pieces, the thief was seen: %t", len(w.pieces), seen)
	}
}
