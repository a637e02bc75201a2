//go:build !nokernel

package main

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/netns"
)

// TestRepairFreesFlows: a UDP client that begins to send while another process has removed the rules reaches the Service
// after the repair, with the same socket.
func TestRepairFreesFlows(t *testing.T) {
	ns, dir := netns.New(t), t.TempDir()
	for _, own := range []string{"10.244.0.5/32", "10.244.0.1/32"} {
		if err := ns.AddAddress("lo", netip.MustParsePrefix(own)); err != nil {
			t.Fatal(err)
		}
	}
	if err := netns.Connect(ns, "outside", ns, "end"); err != nil {
		t.Fatal(err)
	}
	if err := ns.AddRoute(netns.Route{To: netip.MustParsePrefix("203.0.113.0/24"), Link: "outside", Source: netip.MustParseAddr("10.244.0.1")}); err != nil {
		t.Fatal(err)
	}
	server := listenUDP(t, ns, "10.244.0.5:8080")
	go echo(server)

	dns := strings.NewReplacer("name: http, port: 80, nodePort: 30080", "name: http, port: 80, protocol: UDP",
		"name: http, port: 8080", "name: http, port: 8080, protocol: UDP", ", {addresses: [10.244.0.6]}", "",
		"{verdict-proxy.github.io/scheduler: wlc}", "{}").Replace(balanced)
	writeManifest(t, dir, "dns.yaml", dns)
	d := runDaemon(t, ns, dir, "--table-owner=off", "--metrics-bind-address=127.0.0.1:10249")
	client := listenUDP(t, ns, "10.244.0.1:0")
	await(t, "the first cleaning of flows, which would hide the defect", func() bool {
		text := d.metrics(t)
		return strings.Contains(text, firstCleaning) && !strings.Contains(text, firstCleaning+"0\n")
	})
	lab.Must(t, lab.Suspend(d.cmd.Process.Pid))
	ns.Must(t, "", "nft", "flush", "map", "ip", "verdict", "services")
	if answered(t, client, 100*time.Millisecond) {
		t.Fatal("the Service answers without its rules: the test proves nothing")
	}
	if err := d.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	d.wait(t, "the tables are as they should be again")
	for end := time.Now().Add(3 * time.Minute); !answered(t, client, 100*time.Millisecond); {
		if time.Now().After(end) {
			t.Fatal("no answer after the repair: the flow is still not translated")
		}
	}
}

// firstCleaning begins the line of the metrics that counts cleanings of flows.
const firstCleaning = `kubeproxy_conntrack_reconciler_sync_duration_seconds_count{ip_family="IPv4"} `

// metrics returns what the daemon answers to Prometheus.
func (d *daemonProcess) metrics(t *testing.T) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true}}
	r, err := client.Get("http://127.0.0.1:10249/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func listenUDP(t *testing.T, ns *netns.Namespace, at string) (conn *net.UDPConn) {
	t.Helper()
	ns.MustDo(t, func() (err error) {
		conn, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(at)))
		return err
	})
	t.Cleanup(func() { conn.Close() })
	return conn
}

func echo(conn *net.UDPConn) {
	buffer := make([]byte, 100)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return
		}
		_, _ = conn.WriteToUDPAddrPort(buffer[:n], from)
	}
}

// answered sends a request to the Service and reports whether an answer comes.
func answered(t *testing.T, client *net.UDPConn, patience time.Duration) bool {
	t.Helper()
	if err := client.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := client.WriteToUDPAddrPort([]byte("?"), netip.MustParseAddrPort("203.0.113.80:80")); err != nil {
		return false // the error that an earlier request caused
	}
	_, _, err := client.ReadFromUDPAddrPort(make([]byte, 100))
	return err == nil
}
