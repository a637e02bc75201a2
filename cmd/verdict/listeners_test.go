//go:build !nokernel

package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/netns"
)

// TestFacesAmongStrangers: each listener of the daemon answers a probe while strangers hold 300 connections, and closes
// the oldest of theirs. An answered connection ends.
func TestFacesAmongStrangers(t *testing.T) {
	ns, dir := netns.New(t), t.TempDir()
	writeManifest(t, dir, "web.yaml", diffService("web", "10.96.0.1",
		"type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 30999", "", "10.244.0.1"))
	runDaemon(t, ns, dir, "--hostname-override=n1", "--nodeport-addresses=127.0.0.1/32", "--healthz-bind-address=127.0.0.1:10256",
		"--metrics-bind-address=127.0.0.1:10249", "--ui", "--ui-address=127.0.0.1:10250")
	for address, want := range map[string]int{
		"127.0.0.1:10256/healthz": http.StatusOK, "127.0.0.1:10249/metrics": http.StatusOK, "127.0.0.1:10250/ui/": http.StatusOK,
		"127.0.0.1:30999/": http.StatusServiceUnavailable, // no endpoint is on this node
	} {
		t.Run(address, func(t *testing.T) {
			host, path := address[:len("127.0.0.1:10256")], address[len("127.0.0.1:10256"):]
			ns.MustDo(t, func() error { return errors.Join(untilListening(host), amongStrangers(host, path, want)) })
		})
	}
}

// untilListening waits until the address accepts connections. The listeners of health check node ports open after the rules
// are in the kernel.
func untilListening(host string) error {
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", host)
		if err == nil {
			return c.Close()
		}
		if time.Now().After(end) {
			return err
		}
	}
}

// amongStrangers makes attempts until one was fast enough to tell: later, the time for a request header ends the
// connections of strangers, whatever the listener does.
func amongStrangers(host, path string, want int) error {
	for end := time.Now().Add(2 * time.Minute); ; {
		late := time.Now().Add(patienceOfProbe)
		err := attempt(host, path, want, late)
		if time.Now().Before(late) {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("each attempt takes more than %s; the last one: %w", patienceOfProbe, err)
		}
	}
}

// attempt holds 300 connections, sends a probe, and waits until some of them end.
func attempt(host, path string, want int, late time.Time) error {
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	var strangers []net.Conn
	for range 300 {
		c, err := from.Dial("tcp", host)
		if err != nil {
			return err
		}
		defer c.Close()
		strangers = append(strangers, c)
	}
	if err := probe(host, path, want); err != nil {
		return err
	}
	open := len(strangers)
	for open > 256 && time.Now().Before(late) {
		open = 0
		for _, c := range strangers {
			if waits(c, time.Millisecond) {
				open++
			}
		}
	}
	if open > 256 {
		return fmt.Errorf("strangers hold %d connections, want at most 256", open)
	}
	return nil
}

// probe sends a request as a kubelet does, but leaves the connection open.
func probe(host, path string, want int) error {
	c, err := net.DialTimeout("tcp", host, patienceOfProbe)
	if err != nil {
		return err
	}
	defer c.Close()
	client := http.Client{Timeout: patienceOfProbe, Transport: &http.Transport{
		Dial: func(string, string) (net.Conn, error) { return c, nil }, //nolint:staticcheck // there is nothing to cancel
	}}
	r, err := client.Get("http://" + host + path)
	if err != nil {
		return fmt.Errorf("the probe has no answer: %w", err)
	}
	defer r.Body.Close()
	if r.StatusCode != want || !r.Close {
		return fmt.Errorf("the probe gets %s, want %d; the connection ends: %t", r.Status, want, r.Close)
	}
	return nil
}

// patienceOfProbe is shorter than the time for a request header, which is 10 s: a stranger's connection does not end before.
const patienceOfProbe = 8 * time.Second

// waits reports whether the other side neither sends nor closes.
func waits(c net.Conn, d time.Duration) bool {
	_ = c.SetReadDeadline(time.Now().Add(d))
	_, err := c.Read(make([]byte, 1))
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// TestAddressInUse: the daemon serves although somebody has the addresses of its listeners, and answers there when they are
// free. With --bind-address-hard-fail, it ends.
func TestAddressInUse(t *testing.T) {
	ns, dir := netns.New(t), t.TempDir()
	var taken net.Listener
	ns.MustDo(t, func() (err error) {
		taken, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	})
	defer taken.Close()
	address := taken.Addr().String()
	failing := startDaemon(t, ns, dir, "--metrics-bind-address="+address, "--bind-address-hard-fail")
	if err := failing.cmd.Wait(); err == nil || !strings.Contains(failing.log.String(), "address already in use") {
		t.Errorf("with --bind-address-hard-fail: %v\n%s", err, failing.log)
	}
	d := runDaemon(t, ns, dir, "--metrics-bind-address="+address)
	d.wait(t, "trying again")
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		c, err := ns.DialContext(t.Context(), "tcp", address)
		if err == nil {
			c.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatalf("nobody answers at %s: %v\n%s", address, err, d.log)
		}
	}
}

// TestProbesAnswer: with the flag of the DaemonSet, probes have an answer wherever the configuration file puts the health port.
func TestProbesAnswer(t *testing.T) {
	const probes = "127.0.0.1:10256"
	for _, healthz := range []string{"0.0.0.0:10256", "[::]:10256", ":10256", probes, "127.0.0.2:10256", "127.0.0.1:10300", "0.0.0.0:10300", ""} {
		t.Run(healthz, func(t *testing.T) {
			ns := netns.New(t)
			d := runDaemon(t, ns, t.TempDir(), "--healthz-bind-address="+healthz, "--probe-bind-address="+probes)
			ns.MustDo(t, func() error { return errors.Join(untilListening(probes), probe(probes, "/livez", http.StatusOK)) })
			if strings.Contains(d.log.String(), "cannot answer") {
				t.Errorf("a listener has no address:\n%s", d.log)
			}
		})
	}
}

// TestForeignNames: a page whose name leads to a loopback address reads nothing there. Health ports, and addresses that others
// reach, answer to every name.
func TestForeignNames(t *testing.T) {
	local, open := netns.New(t), netns.New(t)
	runDaemon(t, local, t.TempDir(), "--metrics-bind-address=127.0.0.1:10249", "--healthz-bind-address=127.0.0.1:10256", "--profiling")
	runDaemon(t, open, t.TempDir(), "--metrics-bind-address=0.0.0.0:10249")
	all := []string{"10249/metrics", "10249/configz", "10249/proxyMode", "10249/healthz", "10249/debug/pprof/", "10249/debug/pprof/cmdline", "10249/none"}
	for _, tt := range []struct {
		ns     *netns.Namespace
		host   string
		want   int // 0: no refusal
		places []string
	}{
		{local, "foreign.example:10249", http.StatusMisdirectedRequest, all}, {local, "192.0.2.1:10249", http.StatusMisdirectedRequest, all},
		{local, "127.0.0.1.foreign.example", http.StatusMisdirectedRequest, all}, {local, "localhost.foreign.example", http.StatusMisdirectedRequest, all},
		{local, "127.0.0.1:10249", 0, all}, {local, "localhost:8080", 0, all}, {local, "[::1]:10249", 0, all}, {local, "LOCALHOST", 0, all},
		{local, "foreign.example", http.StatusOK, []string{"10256/livez"}},
		{open, "foreign.example:10249", http.StatusOK, []string{"10249/metrics", "10249/configz"}},
	} {
		client := http.Client{Transport: &http.Transport{DialContext: tt.ns.DialContext, DisableKeepAlives: true}}
		for _, place := range tt.places {
			r, err := http.NewRequest(http.MethodGet, "http://127.0.0.1:"+place, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = tt.host
			answer, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if got := answer.StatusCode; tt.want != 0 && got != tt.want || tt.want == 0 && got == http.StatusMisdirectedRequest {
				t.Errorf("%s of host %s: %d, want %d", place, tt.host, got, tt.want)
			}
		}
	}
}
