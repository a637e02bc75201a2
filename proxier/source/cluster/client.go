package cluster

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/verdict-proxy/verdict/proxier/source/convert"
)

// Config describes the access to the API server.
type Config struct {
	Kubeconfig string // a file; empty: the service account of the pod, unless Master is set
	Master     string // a URL, which overrides that of the kubeconfig
	QPS        float32
	Burst      int
	UserAgent  string
	// Connected is called with each address to which the client connects. It may be nil.
	Connected func(netip.AddrPort)
}

// NewClient returns a client that uses protobuf, which takes a third of the memory and CPU time of JSON.
func NewClient(c Config) (kubernetes.Interface, error) {
	config, err := restConfig(c)
	if err != nil {
		return nil, fmt.Errorf("load the configuration for the API server (kubeconfig %q, master %q): %w", c.Kubeconfig, c.Master, err)
	}
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.QPS = c.QPS
	config.Burst = c.Burst
	config.UserAgent = c.UserAgent
	if c.Connected != nil {
		tellConnections(config, c.Connected)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create a client for the API server %s: %w", config.Host, err)
	}
	return client, nil
}

// ServerHost returns the name or the address to which a client connects. In a pod it may be a cluster IP.
func ServerHost(c Config) (string, error) {
	host, _, err := server(c)
	return host, err
}

func restConfig(c Config) (*rest.Config, error) {
	if c.Kubeconfig == "" && c.Master == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.BuildConfigFromFlags(c.Master, c.Kubeconfig)
}

// resolveTimeout limits how long a name server may take.
const resolveTimeout = 30 * time.Second

// ServerAddresses returns the address and port of the API server, if the configuration names one that is not a name. The
// service account of a pod may name a cluster IP, which is no address of a server.
func ServerAddresses(c Config) []netip.AddrPort {
	if c.Kubeconfig == "" && c.Master == "" {
		return nil
	}
	host, port, err := server(c)
	addr, reason := convert.ParseAddr(host)
	if err != nil || reason != "" {
		return nil // NewClient reports the error; a name is for ResolveServer
	}
	return []netip.AddrPort{netip.AddrPortFrom(addr, port)}
}

// ResolveServer passes on the addresses of the API server, if the configuration has its name. The connections of a client
// tell only those that it uses.
func ResolveServer(ctx context.Context, c Config, found func(netip.AddrPort)) error {
	host, port, err := server(c)
	if err != nil {
		return nil // NewClient reports it
	}
	if _, reason := convert.ParseAddr(host); reason == "" {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, resolveTimeout)
	defer stop()
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return fmt.Errorf("resolve the name of the API server: %w; its addresses are kept as soon as Verdict connects to them", err)
	}
	for _, a := range addrs {
		found(netip.AddrPortFrom(a.Unmap(), port))
	}
	return nil
}

// server returns the host and the port of the API server.
func server(c Config) (host string, port uint16, err error) {
	config, err := restConfig(c)
	if err != nil {
		return "", 0, err
	}
	url, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return "", 0, err
	}
	number, err := strconv.ParseUint(cmp.Or(url.Port(), defaultPorts[url.Scheme]), 10, 16)
	return url.Hostname(), uint16(number), err
}

var defaultPorts = map[string]string{"https": "443", "http": "80"}

// tellConnections has a client pass on each address to which it connects. Connections come before TLS: an address counts
// also when somebody else answers there.
func tellConnections(config *rest.Config, connected func(netip.AddrPort)) {
	trace := &httptrace.ClientTrace{ConnectDone: func(_, address string, err error) {
		if at, bad := netip.ParseAddrPort(address); err == nil && bad == nil {
			connected(netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port()))
		}
	}}
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper { return &traced{inner, trace} })
}

// traced is a RoundTripper with a trace. A Dial function in rest.Config would give each client connections of its own.
type traced struct {
	http.RoundTripper
	trace *httptrace.ClientTrace
}

var _ utilnet.RoundTripperWrapper = (*traced)(nil)

// RoundTrip implements http.RoundTripper.
func (t *traced) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.RoundTripper.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), t.trace)))
}

// WrappedRoundTripper lets client-go find the transport.
func (t *traced) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }
