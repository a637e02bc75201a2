//go:build !nokernel

package proxier

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/proxier/activecheck"
	"github.com/verdict-proxy/verdict/proxier/prober"
	"github.com/verdict-proxy/verdict/proxier/state"
)

const serveForBenchmark = "VERDICT_TEST_SERVE"

// serveChecks is the server of BenchmarkActiveChecks, in a process of its own, so that its work is not counted.
func serveChecks(kind string) {
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		panic(err) // ends the child; the benchmark sees no address
	}
	port := l.Addr().(*net.TCPAddr).Port
	if kind == "dns" {
		go answerDNS(port)
	}
	fmt.Println(port)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // the benchmark closes it when it ends
		os.Exit(0)
	}()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }))
	s.Listener = l
	if kind == "https" {
		s.TLS = &tls.Config{Certificates: []tls.Certificate{selfSigned()}}
		s.StartTLS()
	} else {
		s.Start()
	}
	select {} // until then
}

// selfSigned makes a certificate with the kind of key that most servers of a cluster have.
func selfSigned() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err) // ends the child; the benchmark sees no address
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// answerDNS answers each question with its own bytes and the bit of a response.
func answerDNS(port int) {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{Port: port})
	if err != nil {
		panic(err) // the benchmark sees failing checks
	}
	for buf := make([]byte, 1232); ; {
		n, from, err := conn.ReadFromUDPAddrPort(buf)
		if err != nil || n < 3 {
			continue
		}
		buf[2] |= 0x80
		_, _ = conn.WriteToUDPAddrPort(buf[:n], from) // a lost answer is a failing check
	}
}

// BenchmarkActiveChecks asks 5,000 endpoints every 5 seconds, over loopback, and reports how much of a core this takes.
// The endpoints are addresses of a server in another process. What the kernel does for the server's side of a connection
// is counted, too: over loopback, the client's process does it.
func BenchmarkActiveChecks(b *testing.B) {
	for _, text := range []string{"tcp", "http", "https", "dns"} {
		b.Run(text, func(b *testing.B) {
			port := serve(b, text)
			check, err := state.ParseHealthCheck(text)
			if err != nil {
				b.Fatal(err)
			}
			r := newCheckedRig(shop(func(s *state.Service) { s.Check = &check }), 5000, 0, OutlierOptions{
				Check: func(ctx context.Context, t activecheck.Target, c *state.HealthCheck) activecheck.Result {
					a := t.At.Addr().As4()
					t.At = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, a[2], a[3] | 1}), port)
					if c.Kind == state.CheckDNS { // the server's answers come from one address
						t = activecheck.Target{Protocol: state.UDP, At: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)}
					}
					return prober.Check(ctx, t, c)
				},
			})
			r.plan()
			ctx, stop := context.WithCancel(b.Context())
			done := make(chan error, 1)
			go func() { done <- r.Run(ctx) }()
			time.Sleep(check.Interval) // the first questions
			before, began := cpuTime(b), time.Now()
			for b.Loop() {
				time.Sleep(check.Interval)
			}
			b.ReportMetric(100*(cpuTime(b)-before).Seconds()/time.Since(began).Seconds(), "%-of-a-core")
			stop()
			<-done
			all, failing := r.checker.Counts()
			if b.ReportMetric(0, "ns/op"); all != 5000 || failing > 0 {
				b.Fatalf("%d of %d checks fail", failing, all)
			}
		})
	}
}

// serve starts the server of TestMain, and returns its port.
func serve(b *testing.B, kind string) (port uint16) {
	b.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), serveForBenchmark+"="+kind)
	in, err := child.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := child.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = in.Close()
		_ = child.Wait() // it has done its work
	})
	if _, err := fmt.Fscan(out, &port); err != nil {
		b.Fatal(err)
	}
	return port
}

// cpuTime is the time that this process has worked.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
