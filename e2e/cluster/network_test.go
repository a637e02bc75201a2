//go:build e2e

package cluster

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/netns"
)

// Ranges of the cluster.
const (
	podRanges     = "10.244.0.0/16,fd00:244::/48"
	serviceRanges = "10.96.0.0/16,fd00:10:96::/112"
)

// Host numbers in the network of the nodes.
const (
	planeHost   = 1
	outsideHost = 2
	nodeHost    = 10 // node 1 has 11
)

// hosts returns the addresses of a host in the network of the nodes.
func hosts(number int) []netip.Prefix {
	return []netip.Prefix{
		netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 251, 0, byte(number)}), 24),
		netip.MustParsePrefix(fmt.Sprintf("fd00:251::%x/64", number)),
	}
}

// podsOf returns the ranges of the pods of a node.
func podsOf(number int) []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix(fmt.Sprintf("10.244.%d.0/24", number)),
		netip.MustParsePrefix(fmt.Sprintf("fd00:244:0:%x::/64", number)),
	}
}

const uplink = "eth0"

// newPlace makes a namespace that ends with the cluster.
func (c *cluster) newPlace(name string) (*lab.Namespace, error) {
	ns, err := lab.NewNamespace(name)
	if err != nil {
		return nil, err
	}
	c.cleanup(ns.Close)
	return ns, errors.Join(ns.Quiet(), ns.Sysctl("net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"))
}

// makePlane makes the namespace of the control plane. It has the bridge to which all others are connected.
func (c *cluster) makePlane() (err error) {
	if c.place, err = c.newPlace("control plane"); err != nil {
		return err
	}
	if err := c.place.Bridge(bridge); err != nil {
		return err
	}
	for _, a := range hosts(planeHost) {
		if err := c.place.AddAddress(bridge, a); err != nil {
			return err
		}
	}
	return nil
}

const bridge = "br0"

// plug connects a namespace with the bridge, and gives it addresses, and routes by way of the control plane.
func (c *cluster) plug(ns *lab.Namespace, port string, number int) error {
	if err := netns.Connect(c.place.Namespace, port, ns.Namespace, uplink); err != nil {
		return err
	}
	if err := c.place.AddPort(bridge, port); err != nil {
		return err
	}
	for i, a := range hosts(number) {
		everywhere := netip.PrefixFrom(a.Addr(), 0).Masked()
		err := errors.Join(
			ns.AddAddress(uplink, a),
			ns.AddRoute(netns.Route{To: everywhere, Link: uplink, Gateway: hosts(planeHost)[i].Addr()}),
		)
		if err != nil {
			return err
		}
	}
	return nil
}

// route makes the pods of each node known to all other places.
func (c *cluster) route() error {
	for _, to := range c.nodes {
		places := []*lab.Namespace{c.place, c.outside}
		for _, n := range c.nodes {
			if n != to {
				places = append(places, n.ns)
			}
		}
		for _, from := range places {
			for i, pods := range podsOf(to.number) {
				if err := from.AddRoute(netns.Route{To: pods, Gateway: to.addresses()[i]}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
