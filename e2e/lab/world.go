package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// World is the place of the tests:
//
//	                 gateway (knows no way further)
//	                    |
//	x, y, crowd ---- bridge ---- node ---- remote node ---- veth-c -- pod c
//	  (outside)                  | |                  \---- veth-d -- pod d
//	                 pod a -- veth-a br-pods -- pod b
//
// Nothing but the proxy translates or masquerades, so every server sees who really asks. The node has a default route to
// the gateway, which answers "unreachable": a packet that the proxy neither serves nor refuses nor drops ends so. Replies
// between the pods of the remote node pass the node, because the test's proxy runs only there.
type World struct {
	Node   *Namespace
	places map[string]*Namespace
	order  []*Namespace
	closer []func() error
}

// The places in which clients can be.
const (
	Node    = "node"
	Remote  = "remote"
	Outside = "x"
	gateway = "gateway"
)

// Pods lists the pods by name; those on the node first.
func Pods() []string { return []string{"a", "b", "c", "d"} }

// LocalPods are the pods on the node.
func LocalPods() []string { return []string{"a", "b"} }

// hostPod is how the server in the node's own namespace calls itself.
const hostPod = "host"

// podLink is the node's link to each pod. The bridge is there so that tests can tell pods by their interface.
var podLink = map[string]string{"a": "veth-a", "b": "br-pods", "c": "veth-c", "d": "veth-d"}

// Names of links.
const (
	OutsideLink = "outside"
	InnerLink   = "inner"
	uplink      = "eth0"
)

// NewWorld builds the world and starts the servers.
func NewWorld() (*World, error) {
	w := &World{places: map[string]*Namespace{}}
	for _, step := range []func() error{w.makePlaces, w.connectOutside, w.connectRemote, w.connectPods, w.serve} {
		if err := step(); err != nil {
			return nil, errors.Join(fmt.Errorf("build the world: %w", err), w.Close())
		}
	}
	return w, nil
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
	return nil, fmt.Errorf("there is no place %q: node, remote, x, y, a, b, c, d", name)
}

func (w *World) makePlaces() error {
	for _, name := range append([]string{Node, Remote, gateway, "x", "y"}, Pods()...) {
		n, err := NewNamespace(name)
		if err != nil {
			return err
		}
		w.places[name], w.order = n, append(w.order, n)
		if err := n.Sysctl(quiet...); err != nil {
			return fmt.Errorf("settings of %s: %w", name, err)
		}
	}
	w.Node = w.places[Node]
	forward := []string{"net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"}
	// Refusals by ICMP are rate limited by default, which makes them look like drops. A scenario of its own restores that.
	eager := []string{"net.ipv4.icmp_ratelimit=0", "net.ipv4.icmp_ratemask=0", "net.ipv6.icmp.ratelimit=0"}
	crowd := []string{"net.ipv6.ip_nonlocal_bind=1"}
	return errors.Join(
		w.Node.Sysctl(append(forward, eager...)...),
		w.places[Remote].Sysctl(append(forward, eager...)...),
		w.places[gateway].Sysctl(append(forward, eager...)...),
		w.places["x"].Sysctl(crowd...),
	)
}

// void is where the gateway routes what it does not know. It answers by a rule, because the kernel's own "unreachable" is
// rate limited for the whole machine (net.ipv4.route.error_burst).
const void = "void"

func (n *Namespace) refuse(link string) error {
	_, err := n.Command("nft", "add table inet gateway; "+
		"add chain inet gateway forward { type filter hook forward priority 0; }; "+
		"add rule inet gateway forward oifname "+link+" reject with icmpx type host-unreachable")
	return err
}

// connectOutside joins the node and the clients by a bridge in the gateway.
func (w *World) connectOutside() error {
	net, x, y := w.places[gateway], w.places["x"], w.places["y"]
	err := errors.Join(
		join(net, "to-node", w.Node, OutsideLink), join(net, "to-x", x, uplink), join(net, "to-y", y, uplink),
		net.bridge("bridge", "to-node", "to-x", "to-y"),
	)
	if err != nil {
		return err
	}
	if err := errors.Join(join(net, void, net, void+"-end"), net.refuse(void)); err != nil {
		return err
	}
	for _, f := range Families() {
		err := errors.Join(
			w.Node.AddAddress(OutsideLink, inNetwork(f, "NODE")),
			w.Node.AddAddress(OutsideLink, inNetwork(f, "NODE_SECOND")),
			net.AddAddress("bridge", inNetwork(f, "GATEWAY")),
			net.route(everywhere(f), void, netip.Addr{}),
			x.AddAddress(uplink, inNetwork(f, "X")),
			y.AddAddress(uplink, inNetwork(f, "Y")),
			x.own(prefix(f, "CROWD")),
			net.route(prefix(f, "CROWD"), "bridge", address(f, "X")),
			net.route(prefix(f, "PODS"), "bridge", address(f, "NODE")),
			w.Node.route(prefix(f, "CROWD"), OutsideLink, address(f, "X")),
			w.Node.routeFrom(address(f, "NODE"), everywhere(f), OutsideLink, address(f, "GATEWAY")),
			x.route(everywhere(f), uplink, address(f, "NODE")),
			y.route(everywhere(f), uplink, address(f, "NODE")),
		)
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *World) connectRemote() error {
	remote := w.places[Remote]
	if err := join(w.Node, InnerLink, remote, uplink); err != nil {
		return err
	}
	for _, f := range Families() {
		err := errors.Join(
			w.Node.AddAddress(InnerLink, inNetwork(f, "NODE_INNER")),
			remote.AddAddress(uplink, inNetwork(f, "REMOTE")),
			remote.route(everywhere(f), uplink, address(f, "NODE_INNER")),
			remote.routeIn(viaNode, everywhere(f), uplink, address(f, "NODE_INNER")),
			w.Node.route(prefix(f, "REMOTE_PODS"), InnerLink, address(f, "REMOTE")),
			w.Node.route(prefix(f, "MANY"), InnerLink, address(f, "REMOTE")),
		)
		if err != nil {
			return err
		}
	}
	return nil
}

// viaNode is the remote node's routing table for what its pods send.
const viaNode = 100

func (w *World) connectPods() error {
	if err := join(w.Node, "veth-b", w.places["b"], uplink); err != nil {
		return err
	}
	if err := errors.Join(w.Node.bridge("br-pods", "veth-b"), w.Node.reflect("veth-b")); err != nil {
		return err
	}
	for _, pod := range Pods() {
		if err := w.connectPod(pod); err != nil {
			return fmt.Errorf("pod %s: %w", pod, err)
		}
	}
	c, remote := w.places["c"], w.places[Remote]
	for _, f := range Families() {
		many := prefix(f, "MANY")
		if err := errors.Join(remote.route(many, podLink["c"], address(f, "C")), c.own(many)); err != nil {
			return err
		}
	}
	return nil
}

// connectPod gives a pod its address, reachable by its node only, as CNI plug-ins do that route.
func (w *World) connectPod(name string) error {
	pod, at, link := w.places[name], w.Node, podLink[name]
	isRemote := name == "c" || name == "d"
	if isRemote {
		at = w.places[Remote]
	}
	if name != "b" {
		if err := join(at, link, pod, uplink); err != nil {
			return err
		}
	}
	if isRemote {
		if err := at.divert(link, viaNode); err != nil {
			return err
		}
	}
	for _, f := range Families() {
		own, gw := address(f, upper(name)), address(f, "POD_GATEWAY")
		if isRemote {
			gw = nth(prefix(f, "REMOTE_PODS"), 254)
		}
		err := errors.Join(
			at.AddAddress(link, host(gw)),
			at.route(host(own), link, netip.Addr{}),
			pod.AddAddress(uplink, host(own)),
			pod.route(everywhere(f), uplink, gw),
		)
		if err != nil {
			return err
		}
	}
	return nil
}

func upper(pod string) string { return string(pod[0] - 'a' + 'A') }

// PodAddress is the address of a pod; "host" is one that uses the node's own network.
func PodAddress(f Family, pod string) netip.Addr {
	if pod == hostPod {
		return address(f, "NODE")
	}
	return address(f, upper(pod))
}

// Names of the Nodes.
const (
	NodeName       = "node-1"
	RemoteNodeName = "node-2"
)

// NodeOf is the name of the Node that a pod runs on.
func NodeOf(pod string) string {
	if pod == hostPod || slices.Contains(LocalPods(), pod) {
		return NodeName
	}
	return RemoteNodeName
}

// Addresses of the link between the node and the control plane.
const (
	controlPlaneLink    = "cplane"
	controlPlaneNode    = "172.30.0.1/30"
	controlPlaneAddress = "172.30.0.2/30"
)

// NewControlPlane starts a control plane that the node can reach.
func (w *World) NewControlPlane(o ControlPlaneOptions) (*ControlPlane, error) {
	ns, err := NewNamespace("control plane")
	if err != nil {
		return nil, err
	}
	w.order = append(w.order, ns)
	own := netip.MustParsePrefix(controlPlaneAddress)
	err = errors.Join(
		join(w.Node, controlPlaneLink, ns, uplink),
		w.Node.AddAddress(controlPlaneLink, netip.MustParsePrefix(controlPlaneNode)),
		ns.AddAddress(uplink, own),
	)
	if err != nil {
		return nil, fmt.Errorf("connect the control plane: %w", err)
	}
	o.Namespace, o.Address = ns, own.Addr()
	return NewControlPlane(o)
}
