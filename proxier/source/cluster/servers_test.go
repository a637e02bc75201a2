package cluster

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestServerAddresses: a name is no address, and the service account of a pod may name a cluster IP.
func TestServerAddresses(t *testing.T) {
	for master, want := range map[string]string{
		"": "[]", "https://192.0.2.9:6443": "[192.0.2.9:6443]", "https://[2001:db8::9]": "[[2001:db8::9]:443]",
		"192.0.2.9:8080": "[192.0.2.9:8080]", "https://server.example:6443": "[]",
	} {
		if got := fmt.Sprint(ServerAddresses(Config{Master: master})); got != want {
			t.Errorf("--master=%s: %s, want %s", master, got, want)
		}
	}
}

// told collects addresses of API servers.
type told struct {
	mu   sync.Mutex
	list []netip.AddrPort
}

func (l *told) add(at netip.AddrPort) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, at)
}

// TestServerBehindAName: the client tells where it connects, also if nobody answers there in TLS, and the name itself is
// resolved.
func TestServerBehindAName(t *testing.T) {
	s := startAPIServerAt(t, "127.0.0.1:0", clusterObjects()) // an address of localhost
	at := netip.MustParseAddrPort(s.addr)
	_, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		scheme string
		fails  bool
	}{{"http", false}, {"https", true}} {
		var connected, resolved told
		c := Config{Master: tt.scheme + "://localhost:" + port, QPS: 1000, Burst: 1000, Connected: connected.add}
		client, err := NewClient(c)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.CoreV1().Services("").List(t.Context(), metav1.ListOptions{})
		if (err != nil) != tt.fails {
			t.Errorf("%s: %v", tt.scheme, err)
		}
		if !slices.Contains(connected.list, at) {
			t.Errorf("%s: connected to %v, want %s", tt.scheme, connected.list, at)
		}
		if err := ResolveServer(t.Context(), c, resolved.add); err != nil || !slices.Contains(resolved.list, at) {
			t.Errorf("%s: localhost is at %v (error %v), want %s", tt.scheme, resolved.list, err, at)
		}
	}
}

// TestNameWithoutAddress: what cannot be resolved is an error that says what follows. An address needs no name server.
func TestNameWithoutAddress(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	var found told
	err := ResolveServer(ended, Config{Master: "https://server.invalid:6443"}, found.add)
	if err == nil || !strings.Contains(err.Error(), "resolve the name of the API server") {
		t.Errorf("error %v", err)
	}
	if err := ResolveServer(ended, Config{Master: "https://192.0.2.9:6443"}, found.add); err != nil || len(found.list) > 0 {
		t.Errorf("found %v, error %v", found.list, err)
	}
}
