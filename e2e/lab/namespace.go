package lab

import (
	"context"
	"io"
	"net/http"
	"net/netip"

	"github.com/verdict-proxy/verdict/e2e/netns"
)

// Namespace is a network namespace in which clients ask servers.
type Namespace struct{ *netns.Namespace }

// NewNamespace makes a network namespace with its loopback link up. The caller closes it.
func NewNamespace(name string) (*Namespace, error) {
	n, err := netns.Make(name)
	if err != nil {
		return nil, err
	}
	return &Namespace{n}, nil
}

// join connects two namespaces by a pair of links.
func join(a *Namespace, linkA string, b *Namespace, linkB string) error {
	return netns.Connect(a.Namespace, linkA, b.Namespace, linkB)
}

// via routes a range over a link and a gateway.
func (n *Namespace) via(to netip.Prefix, link string, gateway netip.Addr) error {
	return n.AddRoute(netns.Route{To: to, Link: link, Gateway: gateway})
}

// direct routes a range to a link.
func (n *Namespace) direct(to netip.Prefix, link string) error {
	return n.AddRoute(netns.Route{To: to, Link: link})
}

// LimitICMP turns the kernel's limit on the rate of ICMP errors on, as it is by default, or off.
func (n *Namespace) LimitICMP(on bool) error {
	if on {
		return n.Sysctl("net.ipv4.icmp_ratelimit=1000", "net.ipv4.icmp_ratemask=6168", "net.ipv6.icmp.ratelimit=1000")
	}
	return n.Sysctl("net.ipv4.icmp_ratelimit=0", "net.ipv4.icmp_ratemask=0", "net.ipv6.icmp.ratelimit=0")
}

// Page is the answer to an HTTP request.
type Page struct {
	Code   int
	Header http.Header
	Body   string
}

// Get makes an HTTP request from inside the namespace, over a connection of its own.
func (n *Namespace) Get(ctx context.Context, url string) (p Page, err error) {
	client := http.Client{Transport: &http.Transport{DialContext: n.DialContext, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return p, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return p, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return Page{Code: answer.StatusCode, Header: answer.Header, Body: string(body)}, err
}
