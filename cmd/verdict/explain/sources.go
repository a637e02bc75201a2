package explain

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
	"github.com/verdict-proxy/verdict/cmd/verdict/snapshot"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/source/cluster"
)

// An address outside of every cluster, from the ranges for documentation and benchmarks (RFC 2544, RFC 3849).
const (
	outsideIPv4 = "198.18.0.1"
	outsideIPv6 = "2001:db8::1"
)

// from fills in the source of a question whose destination is known.
func (q *question) from(ctx context.Context, k kernel, c cluster.Config, text string) (err error) {
	switch {
	case text == "node":
		return q.fromNode(k)
	case text == "outside":
		return q.fromOutside(k)
	case strings.HasPrefix(text, "pod/"):
		q.src, err = podAddress(ctx, c, strings.TrimPrefix(text, "pod/"), q.family())
		return err
	}
	if at, err := netip.ParseAddrPort(text); err == nil {
		q.src, q.srcPort = at.Addr().Unmap(), at.Port()
	} else if q.src, err = netip.ParseAddr(text); err != nil {
		return flags.Wrong(fmt.Errorf("source %q must be %s", text, sourceForm))
	}
	q.src = q.src.Unmap()
	if program.FamilyOf(q.src) != q.family() {
		return flags.Wrong(fmt.Errorf("source %s and destination %s must be of the same address family", q.src, q.dst))
	}
	return nil
}

func (q *question) fromNode(k kernel) error {
	r, err := k.Route(q.dst.Addr())
	if err != nil {
		return err
	}
	if !r.source.IsValid() {
		return fmt.Errorf("this node has no route to %s, so its source address is not known; give an address as source", q.dst.Addr())
	}
	q.src = r.source
	return nil
}

// fromOutside is a client on the way of the default route.
func (q *question) fromOutside(k kernel) error {
	q.src = netip.MustParseAddr(outsideIPv4)
	if q.family() == program.IPv6 {
		q.src = netip.MustParseAddr(outsideIPv6)
	}
	r, err := k.Route(q.src)
	q.link = r.link
	return err
}

// podPatience is how long the API server may take to answer.
const podPatience = 10 * time.Second

// podAddress asks the API server.
func podAddress(ctx context.Context, c cluster.Config, name string, f program.Family) (netip.Addr, error) {
	namespace, pod, ok := strings.Cut(name, "/")
	if !ok || namespace == "" || pod == "" {
		return netip.Addr{}, flags.Wrong(fmt.Errorf("source %q must be pod/NAMESPACE/NAME", "pod/"+name))
	}
	c.QPS, c.Burst, c.UserAgent = 50, 100, "verdict-explain"
	client, err := cluster.NewClient(c)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("ask the API server for pod %s: %w; "+
			"give the address of the pod as source, or --kubeconfig FILE", name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, podPatience)
	defer cancel()
	p, err := client.CoreV1().Pods(namespace).Get(ctx, pod, metav1.GetOptions{})
	if err != nil {
		return netip.Addr{}, fmt.Errorf("ask the API server for pod %s: %w; give the address of the pod as source", name, err)
	}
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil && program.FamilyOf(a) == f {
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("pod %s has no address of the family of the destination", name)
}

// frontendsOf lists the frontends of a Service, or of one of its ports.
func frontendsOf(name string) (out []question, err error) {
	if namespace, rest, ok := strings.Cut(name, "/"); !ok || namespace == "" || rest == "" || strings.Contains(rest, "/") {
		return nil, flags.Wrong(fmt.Errorf("--service %q must be NAMESPACE/NAME or NAMESPACE/NAME:PORT", name))
	}
	places, err := snapshot.Places(name)
	if err != nil {
		return nil, fmt.Errorf("list the frontends of %s: %w", name, err)
	}
	for _, p := range places {
		out = append(out, question{dst: netip.AddrPortFrom(p.Address, p.Port), protocol: p.Protocol})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("the kernel has no frontend of %s: the Service does not exist, has no cluster IP, "+
			"or is not served; the log of the daemon and the Events of the Service say why", name)
	}
	return out, nil
}
