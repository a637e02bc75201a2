package lab

import (
	"errors"
	"fmt"

	"github.com/verdict-proxy/verdict/e2e/netns"
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

func (w *World) makePlaces() error {
	for _, name := range append([]string{Node, Remote, gateway, Outside, outsideToo}, Pods()...) {
		n, err := NewNamespace(name)
		if err != nil {
			return err
		}
		w.places[name], w.order = n, append(w.order, n)
		if err := n.Quiet(); err != nil {
			return err
		}
	}
	w.Node = w.places[Node]
	for _, name := range []string{Node, Remote, gateway} {
		n := w.places[name]
		// The kernel limits the rate of ICMP errors by default, and then a refusal looks like a drop. One scenario
		// restores it.
		err := errors.Join(n.Sysctl("net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"), n.LimitICMP(false))
		if err != nil {
			return err
		}
	}
	return w.places[Outside].Sysctl("net.ipv6.ip_nonlocal_bind=1") // for the crowd
}

// void is the link to which the gateway routes all unknown addresses. A rule answers there, because the kernel's own
// "unreachable" has a rate limit for the whole machine (net.ipv4.route.error_burst).
const (
	void   = "void"
	refuse = "add table inet gateway\n" +
		"add chain inet gateway forward { type filter hook forward priority 0; }\n" +
		"add rule inet gateway forward oifname " + void + " reject with icmpx type host-unreachable\n"
)

// connectOutside joins the node and the clients by a bridge in the gateway.
func (w *World) connectOutside() error {
	g, x, y := w.places[gateway], w.places[Outside], w.places[outsideToo]
	err := errors.Join(
		join(g, "to-node", w.Node, OutsideLink), join(g, "to-x", x, uplink), join(g, "to-y", y, uplink),
		g.Bridge("bridge", "to-node", "to-x", "to-y"), join(g, void, g, void+"-end"), g.Load(refuse),
	)
	if err != nil {
		return err
	}
	for _, f := range Families() {
		node := Address(f, "NODE")
		err := errors.Join(
			w.Node.AddAddress(OutsideLink, inNetwork(f, "NODE")),
			w.Node.AddAddress(OutsideLink, inNetwork(f, "NODE_SECOND")),
			g.AddAddress("bridge", inNetwork(f, "GATEWAY")),
			g.direct(prefix(f, "EVERYWHERE"), void),
			x.AddAddress(uplink, inNetwork(f, "X")),
			y.AddAddress(uplink, inNetwork(f, "Y")),
			x.Own(prefix(f, "CROWD")),
			g.via(prefix(f, "CROWD"), "bridge", Address(f, "X")),
			g.via(prefix(f, "PODS"), "bridge", node),
			w.Node.via(prefix(f, "CROWD"), OutsideLink, Address(f, "X")),
			w.Node.AddRoute(netns.Route{To: prefix(f, "EVERYWHERE"), Link: OutsideLink, Gateway: Address(f, "GATEWAY"), Source: node}),
			x.via(prefix(f, "EVERYWHERE"), uplink, node),
			y.via(prefix(f, "EVERYWHERE"), uplink, node),
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
			remote.via(prefix(f, "EVERYWHERE"), uplink, Address(f, "NODE_INNER")),
			remote.AddRoute(netns.Route{To: prefix(f, "EVERYWHERE"), Link: uplink, Gateway: Address(f, "NODE_INNER"), Table: viaNode}),
			w.Node.via(prefix(f, "REMOTE_PODS"), InnerLink, Address(f, "REMOTE")),
			w.Node.via(prefix(f, "MANY"), InnerLink, Address(f, "REMOTE")),
		)
		if err != nil {
			return err
		}
	}
	return nil
}

// viaNode is the remote node's routing table for packets from its pods.
const viaNode = 100

// ConnectNeighbors has pods of the remote node reach each other without the node, as in a cluster.
func (w *World) ConnectNeighbors() error {
	var errs []error
	for _, f := range Families() {
		for _, pod := range []string{"c", "d"} {
			errs = append(errs, w.places[Remote].AddRoute(netns.Route{To: host(PodAddress(f, pod)), Link: podLink(pod), Table: viaNode}))
		}
	}
	return errors.Join(errs...)
}

func (w *World) connectPods() error {
	if err := join(w.Node, "veth-b", w.places["b"], uplink); err != nil {
		return err
	}
	if err := errors.Join(w.Node.Bridge("br-pods", "veth-b"), w.Node.Hairpin("veth-b")); err != nil {
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
		if err := errors.Join(remote.via(many, podLink("c"), Address(f, "C")), c.Own(many)); err != nil {
			return err
		}
	}
	return nil
}

// connectPod gives a pod its address. The pod reaches everything through its node, as network plugins arrange it.
func (w *World) connectPod(name string) error {
	pod, at, link := w.places[name], w.Node, podLink(name)
	isRemote := NodeOf(name) == RemoteNodeName
	if isRemote {
		at = w.places[Remote]
	}
	if name != "b" {
		if err := join(at, link, pod, uplink); err != nil {
			return err
		}
	}
	if isRemote {
		if err := at.Divert(link, viaNode); err != nil {
			return err
		}
	}
	for _, f := range Families() {
		own, gw := PodAddress(f, name), Address(f, "POD_GATEWAY")
		if isRemote {
			gw = nth(prefix(f, "REMOTE_PODS"), 254)
		}
		err := errors.Join(
			at.AddAddress(link, host(gw)),
			at.direct(host(own), link),
			pod.AddAddress(uplink, host(own)),
			pod.via(prefix(f, "EVERYWHERE"), uplink, gw),
		)
		if err != nil {
			return err
		}
	}
	return nil
}
