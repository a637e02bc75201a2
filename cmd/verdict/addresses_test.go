//go:build !nokernel

package main

import (
	"bytes"
	numbers "encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/proxier/addresses"
)

// Addresses on the link of the node and of the clients x and y. Nobody has them but the node.
var onLink = []netip.Addr{netip.MustParseAddr("192.168.7.100"), netip.MustParseAddr("fd00:7::100")}

// linked is the manifest of a Service of both families with these addresses, an endpoint on pod b, and a check.
func linked(addresses ...netip.Addr) string {
	var list []string
	for _, a := range addresses {
		list = append(list, fmt.Sprintf("%q", a))
	}
	text := `apiVersion: v1
kind: Service
metadata: {name: web, namespace: default, annotations: {verdict-proxy.github.io/health-check: tcp interval=1s timeout=300ms rise=1 fall=1}}
spec:
  clusterIPs: [10.96.0.11, "fd00:10:96::11"]
  clusterIP: 10.96.0.11
  externalIPs: [` + strings.Join(list, ", ") + `]
  ports: [{name: http, port: 80, targetPort: 8080}]
`
	for family, pod := range map[string]string{"IPv4": "10.0.1.2", "IPv6": "fd00:10:0:1::2"} {
		text += fmt.Sprintf(`---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-%s, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: %s
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [%q]}]
`, strings.ToLower(family), family, pod)
	}
	return text
}

// link is the place of the test: a world, and what its node has on the link of the clients.
type link struct {
	*testing.T
	*lab.World
	x *lab.Namespace
}

func newLink(t *testing.T) *link {
	w := lab.New(t)
	return &link{t, w, w.At(t, "x")}
}

// entries lists the addresses of the node among those.
func (l *link) entries(of ...netip.Addr) (list []addresses.Entry) {
	l.Helper()
	l.Node.MustDo(l.T, func() (err error) {
		list, err = addresses.List(unix.AF_UNSPEC)
		return err
	})
	return slices.DeleteFunc(list, func(e addresses.Entry) bool { return !slices.Contains(of, e.Addr) })
}

// await waits until the node has exactly these addresses, and Verdict has added them.
func (l *link) await(what string, want ...netip.Addr) {
	l.Helper()
	var got []addresses.Entry
	for late := time.Now().Add(lab.Limit); time.Now().Before(late); time.Sleep(20 * time.Millisecond) {
		got = l.entries(onLink...)
		if len(got) == len(want) && !slices.ContainsFunc(got, func(e addresses.Entry) bool { return !e.Ours || !slices.Contains(want, e.Addr) }) {
			return
		}
	}
	_, stdout, stderr := inside(l.T, l.Node.Namespace, "list", "-o", "wide")
	l.Fatalf("%s: the node has %v, want %v\n%s%s", what, got, want, stdout, stderr)
}

// answers reports whether the client x gets an answer from pod b at all addresses.
func (l *link) answers(at ...netip.Addr) bool {
	l.Helper()
	for _, a := range at {
		r := l.x.Ask(lab.Question{Protocol: lab.TCP, To: netip.AddrPortFrom(a, 80), Patience: 2 * time.Second})
		if r.Outcome != lab.Answered || r.Answer.Pod != "b" {
			l.Logf("at %s: %s", a, r)
			return false
		}
	}
	return true
}

// listen receives frames at the client x until the test ends.
func (l *link) listen() (socket int) {
	l.Helper()
	l.x.MustDo(l.T, func() error {
		device, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		all := numbers.NativeEndian.Uint16(numbers.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
		if socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all)); err != nil {
			return err
		}
		l.Cleanup(func() { _ = unix.Close(socket) })
		if err := unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 20}); err != nil {
			return err
		}
		return unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: all, Ifindex: device.Index})
	})
	return socket
}

// hears waits for the announcement of an address: a request of ARP for itself, or an advertisement to all nodes.
func (l *link) hears(socket int, a netip.Addr) {
	l.Helper()
	frame := make([]byte, 2048)
	for {
		n, _, err := unix.Recvfrom(socket, frame, 0)
		if errors.Is(err, unix.EINTR) {
			continue // the process was stopped for a moment
		}
		if err != nil {
			l.Fatalf("no announcement of %s: %v", a, err)
		}
		kind, body, own := numbers.BigEndian.Uint16(frame[12:]), frame[14:n], a.AsSlice()
		switch {
		case a.Is4() && kind == unix.ETH_P_ARP && len(body) >= 28 && bytes.Equal(frame[:6], []byte("\xff\xff\xff\xff\xff\xff")) &&
			bytes.Equal(body[14:18], own) && bytes.Equal(body[24:28], own):
			return
		case a.Is6() && kind == unix.ETH_P_IPV6 && len(body) >= 64 && body[6] == unix.IPPROTO_ICMPV6 && body[40] == 136 &&
			bytes.Equal(frame[:6], []byte("\x33\x33\x00\x00\x00\x01")) && bytes.Equal(body[48:64], own):
			return
		}
	}
}

// TestManagedAddresses: a client on the same link reaches the addresses of a Service while its endpoint is good, also a client
// that remembers another host for them. They leave with the last good endpoint, and come back.
func TestManagedAddresses(t *testing.T) {
	l, dir := newLink(t), t.TempDir()
	if l.answers(onLink[0]) {
		t.Fatal("somebody has the address already: the test shows nothing")
	}
	const stranger = "02:00:00:00:00:99"
	remember := func() {
		for _, a := range onLink {
			l.x.Must(t, "", "ip", "neigh", "replace", a.String(), "lladdr", stranger, "dev", "eth0", "nud", "stale")
		}
	}
	remember()
	socket := l.listen()
	writeManifest(t, dir, "web.yaml", linked(onLink...))
	d := runDaemon(t, l.Node.Namespace, dir, "--manage-addresses=outside")
	l.await("the Service has a good endpoint", onLink...)
	for _, a := range onLink {
		l.hears(socket, a)
	}
	if !l.answers(onLink...) {
		t.Errorf("no answer; the client knows %s\n%s", l.x.Must(t, "", "ip", "neigh"), d.log)
	}
	if known := l.x.Must(t, "", "ip", "neigh"); strings.Contains(known, stranger) {
		t.Errorf("the client has not believed the announcement:\n%s", known)
	}
	l.At(t, "b").UntilAccepted(t, 8) // only a check that has passed can fail: until then, a network policy may be the reason
	if err := l.Plug("b", false); err != nil {
		t.Fatal(err)
	}
	l.await("the endpoint fails its check")
	remember()
	socket = l.listen()
	if err := l.Plug("b", true); err != nil {
		t.Fatal(err)
	}
	l.await("the endpoint is good again", onLink...)
	for _, a := range onLink {
		l.hears(socket, a)
	}
	if !l.answers(onLink...) {
		t.Errorf("no answer after the endpoint is back\n%s", d.log)
	}
	l.Node.Must(t, "", "ip", "addr", "flush", "dev", "outside", "to", "192.168.7.100/32")
	l.await("somebody has deleted one", onLink...)
	writeManifest(t, dir, "web.yaml", linked(onLink[1]))
	l.await("the Service wants only one", onLink[1])
	if log := d.log.String(); strings.Contains(log, "level=ERROR") {
		t.Errorf("the log has errors:\n%s", log)
	}
}

// TestManagedAddressesOutliveTheProcess: addresses stay without a process and are taken over by the next one, which removes
// those of a Service that is gone, on any device. A clean-up removes all. None removes an address that somebody else has added.
func TestManagedAddressesOutliveTheProcess(t *testing.T) {
	l, dir := newLink(t), t.TempDir()
	foreign := netip.MustParseAddr("192.168.7.101")
	l.Node.Must(t, "", "ip", "addr", "add", foreign.String()+"/24", "dev", "outside")
	stays := func(when string) {
		t.Helper()
		if list := l.entries(foreign); len(list) != 1 || list[0].Ours {
			t.Errorf("%s, the foreign address is %v", when, list)
		}
	}
	const flag = "--manage-addresses=outside"
	writeManifest(t, dir, "web.yaml", linked(onLink[0], onLink[1], foreign))
	d := runDaemon(t, l.Node.Namespace, dir, flag)
	l.await("running", onLink...)
	stays("while a Service has it")
	before := l.entries(onLink...)
	d.end(syscall.SIGKILL)
	l.await("after a crash", onLink...)
	d = runDaemon(t, l.Node.Namespace, dir, flag)
	socket := l.listen()
	writeManifest(t, dir, "more.yaml", strings.NewReplacer("web", "more", "0.11", "0.12", "::11", "::12").Replace(linked(netip.MustParseAddr("192.168.7.102"))))
	l.hears(socket, netip.MustParseAddr("192.168.7.102"))
	d.wait(t, "addresses added")
	if after := l.entries(onLink...); !slices.Equal(before, after) || strings.Count(d.log.String(), "addresses added") != 1 {
		t.Errorf("the next process changed %v to %v\n%s", before, after, d.log)
	}
	d.end(syscall.SIGKILL)
	writeManifest(t, dir, "web.yaml", linked(onLink[0], foreign))
	if err := os.Remove(filepath.Join(dir, "more.yaml")); err != nil {
		t.Fatal(err)
	}
	d = runDaemon(t, l.Node.Namespace, dir, flag)
	l.await("one is gone from the manifests", onLink[0])
	if list := l.entries(netip.MustParseAddr("192.168.7.102")); len(list) > 0 {
		t.Errorf("the address of a Service that is gone stays: %v", list)
	}
	stays("after two crashes")
	d.end(syscall.SIGTERM)
	d = runDaemon(t, l.Node.Namespace, dir, "--manage-addresses=inner")
	l.await("on another device", onLink[0])
	if list := l.entries(onLink[0]); list[0].Link == before[0].Link {
		t.Errorf("the address is still on the former device: %v", list)
	}
	d.end(syscall.SIGTERM)
	d = runDaemon(t, l.Node.Namespace, dir)
	l.await("without the flag")
	d.end(syscall.SIGTERM)
	runDaemon(t, l.Node.Namespace, dir, flag).end(syscall.SIGTERM)
	l.await("with the flag again", onLink[0])
	if exit, _, stderr := inside(t, l.Node.Namespace, "cleanup"); exit != 0 {
		t.Errorf("the clean-up ends with %d: %s", exit, stderr)
	}
	l.await("after a clean-up")
	stays("after a clean-up")
}

// TestOutage: when no endpoint of a Service is good, everybody who could be asked says so, and which addresses have left for it.
// The manifests are in order, so a reload succeeds.
func TestOutage(t *testing.T) {
	l, dir := newLink(t), t.TempDir()
	// A slow machine must not be an outage.
	writeManifest(t, dir, "web.yaml", strings.Replace(linked(onLink...), "timeout=300ms rise=1 fall=1", "timeout=1s rise=1 fall=3", 1))
	writeManifest(t, dir, "other.yaml", balancer("other", "192.168.7.105", "  check: off\n"))
	d := runDaemon(t, l.Node.Namespace, dir, "--manage-addresses=outside", "--metrics-bind-address=127.0.0.1:10249")
	l.await("the Service has a good endpoint", onLink...)
	l.At(t, "b").UntilAccepted(t, 8)
	says := func(what string, wants bool, part string, command ...string) {
		t.Helper()
		if _, stdout, stderr := inside(t, l.Node.Namespace, command...); strings.Contains(stdout+stderr, part) != wants {
			t.Errorf("%s: %v says %q: %t, want %t\n%s%s", what, command, part, !wants, wants, stdout, stderr)
		}
	}
	each := func(what string, outage bool) {
		t.Helper()
		if exit, _, stderr := inside(t, l.Node.Namespace, "reload"); exit != 0 {
			t.Errorf("%s: the reload ends with %d: %s", what, exit, stderr)
		}
		says(what, outage, "10.96.0.11:80", "list", "--problem")
		says(what, outage, "but none of them is good", "explain", "10.0.1.1", "10.96.0.11:80")
		says(what, outage, "endpoints: this host does not have 192.168.7.100: none of its ports has a good endpoint here", "explain", "10.0.1.1", "10.96.0.11:80")
		var line string
		l.Node.MustDo(t, func() error {
			status, err := socket.NewClient().Status()
			line = status.Line()
			return err
		})
		if strings.HasPrefix(line, "serving 1 of 5 frontends") != outage {
			t.Errorf("%s: the status is %q", what, line)
		}
		metric := `verdict_problems{field="endpoints",kind="Service"} 3`
		has := func() bool {
			return strings.Contains(l.Node.Must(t, "", "curl", "-fsS", "http://127.0.0.1:10249/metrics"), metric)
		}
		for late := time.Now().Add(lab.Limit); has() != outage; { // a scrape gets the answer to one that was a moment ago
			if time.Now().After(late) {
				t.Fatalf("%s: the metrics have %s: %t", what, metric, !outage)
			}
		}
	}
	each("all is well", false)
	if err := l.Plug("b", false); err != nil {
		t.Fatal(err)
	}
	l.await("the endpoint fails its check")
	each("an outage", true)
	d.wait(t, `field=endpoints reason="all endpoints of default/web:http fail their checks or do not answer (on-all-down is keep)"`)
	if err := l.Plug("b", true); err != nil {
		t.Fatal(err)
	}
	l.await("the endpoint is good again", onLink...)
	each("it is over", false)
	if t.Failed() {
		t.Errorf("the log is\n%s", d.log)
	}
}

// TestMissingDevice: without the device, the start says once what stays where, each Service has a Problem, and nothing is said again.
// A device that comes gets the addresses.
func TestMissingDevice(t *testing.T) {
	l, dir := newLink(t), t.TempDir()
	writeManifest(t, dir, "web.yaml", linked(onLink[0]))
	runDaemon(t, l.Node.Namespace, dir, "--manage-addresses=outside").end(syscall.SIGTERM)
	l.await("an earlier process", onLink[0])
	writeManifest(t, dir, "web.yaml", linked(onLink...))
	d := runDaemon(t, l.Node.Namespace, dir, "--manage-addresses=eth7")
	const problem = "field=spec.externalIPs reason=\"this host does not have fd00:7::100: find the device eth7: Link not found\""
	d.wait(t, problem)
	l.await("on the former device", onLink[0])
	if exit, _, stderr := inside(t, l.Node.Namespace, "reload"); exit != 1 || !strings.Contains(stderr, "find the device eth7") {
		t.Errorf("the reload ends with %d: %s", exit, stderr)
	}
	for range 3 { // each change of a manifest has it try again
		writeManifest(t, dir, "more.yaml", balancer("more", "192.168.7.105", "  sourceRanges: [192.0.2.0/24]\n"))
		inside(t, l.Node.Namespace, "reload")
		if err := os.Remove(filepath.Join(dir, "more.yaml")); err != nil {
			t.Fatal(err)
		}
		inside(t, l.Node.Namespace, "reload")
	}
	log := d.log.String()
	const said = `error="find the device eth7: Link not found" stays=[192.168.7.100]`
	if strings.Count(log, said) != 1 || strings.Count(log, problem) != 1 || strings.Contains(log, "the kernel did not make a change") {
		t.Errorf("the log is\n%s", log)
	}
	l.Node.Must(t, "", "ip", "link", "add", "eth7", "type", "veth", "peer", "name", "eth8")
	l.Node.Must(t, "", "ip", "link", "set", "eth7", "up")
	l.await("the device is there", onLink...)
	if exit, _, stderr := inside(t, l.Node.Namespace, "reload"); exit != 0 {
		t.Errorf("the reload ends with %d: %s", exit, stderr)
	}
}
