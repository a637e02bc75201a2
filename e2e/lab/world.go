package lab

import (
	"errors"
	"fmt"
	"net/netip"
)

// World is the network in which tests send packets:
//
//	                 gateway (has no further routes)
//	                    |
//	x, y, crowd ---- bridge ---- node ---- remote node ---- veth-c -- pod c
//	  (outside)                  | |                  \---- veth-d -- pod d
//	                 pod a -- veth-a br-pods -- pod b
//
// Only the proxy under test translates or masquerades, so every server sees the client's own address unless the proxy
// changes it. The default route of the node leads to the gateway, which answers "unreachable": a packet ends there when
// the proxy neither serves nor refuses nor drops it. Packets between the pods of the remote node pass the node, because
// the proxy under test runs only there.
type World struct {
	Node   *Namespace
	places map[string]*Namespace
	order  []*Namespace
	closer []func() error
}

// Close removes everything.
func (w *World) Close() error {
	var errs []error
	for _, c := range w.closer {
		errs = append(errs, c())
	}
	for _, n := range w.order {
		errs = append(errs, n.Close())
	}
	return errors.Join(errs...)
}

// Place is the namespace of that name: node, remote, x, y, or a pod.
func (w *World) Place(name string) (*Namespace, error) {
	if n, ok := w.places[name]; ok && name != gateway {
		return n, nil
	}
	return nil, fmt.Errorf("there is no place %q; there are node, remote, x, y, a, b, c, d", name)
}

// Addresses of the link of Attach.
const (
	attachedLink    = "attached"
	attachedNode    = "172.30.0.1/30"
	attachedAddress = "172.30.0.2/30"
)

// Attach makes one more namespace, for a program that only the node reaches, and returns its address.
func (w *World) Attach(name string) (*Namespace, netip.Addr, error) {
	n, err := NewNamespace(name)
	if err != nil {
		return nil, netip.Addr{}, err
	}
	w.order = append(w.order, n)
	own := netip.MustParsePrefix(attachedAddress)
	return n, own.Addr(), errors.Join(
		join(w.Node, attachedLink, n, uplink),
		w.Node.AddAddress(attachedLink, netip.MustParsePrefix(attachedNode)),
		n.AddAddress(uplink, own),
	)
}

// PlugAttached brings the link to the namespace of Attach back, or takes it away. Both ends keep their addresses.
func (w *World) PlugAttached(in bool) error {
	if in {
		return w.Node.SetUp(attachedLink)
	}
	return w.Node.SetDown(attachedLink)
}

// Plug brings the link to a place back, or takes it away. It works only for places behind a bridge: x, y and b. The
// links of the place itself stay up, so it keeps its addresses and routes.
func (w *World) Plug(place string, in bool) error {
	at, port := w.places[gateway], "to-"+place
	if place == "b" {
		at, port = w.Node, "veth-b"
	}
	if in {
		return at.SetUp(port)
	}
	return at.SetDown(port)
}
