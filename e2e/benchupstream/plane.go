package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/verdict-proxy/verdict/e2e/apiserver"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/measure"
)

// planeAddress is the address of the API server, on the loopback link of its namespace.
const planeAddress = "10.252.0.1"

// plane is an API server in its own namespace. Nodes are connected to it one after the other.
type plane struct {
	ns      *lab.Namespace
	control *apiserver.ControlPlane
	nodes   int // connected so far
}

// newPlane starts an API server on the etcd folder inside dir.
func newPlane(binaries, dir string) (*plane, error) {
	ns, err := lab.NewNamespace("control-plane")
	if err != nil {
		return nil, err
	}
	p := &plane{ns: ns}
	addr := netip.MustParseAddr(planeAddress)
	if err := ns.AddAddress("lo", netip.PrefixFrom(addr, 32)); err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	p.control, err = apiserver.Start(apiserver.Options{
		Binaries: binaries, Dir: dir, Namespace: ns, Address: addr, ServiceRanges: serviceRange,
	})
	if err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	return p, nil
}

func (p *plane) client() kubernetes.Interface { return p.control.Client }

// connect connects a node to the API server.
func (p *plane) connect(node *lab.Namespace) error {
	p.nodes++
	link := fmt.Sprintf("node-%d", p.nodes)
	here, there := fmt.Sprintf("10.252.%d.1", p.nodes), fmt.Sprintf("10.252.%d.2", p.nodes)
	return errors.Join(
		measure.Link(p.ns, node, link, here+"/24", there+"/24"),
		measure.Route(node, planeAddress+"/32", here),
	)
}

// addNode creates the Node object of the proxies.
func (p *plane) addNode() error {
	ctx, nodes := context.Background(), p.client().CoreV1().Nodes()
	node, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ownNode}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create the Node: %w", err)
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: measure.NodeAddress}}
	if _, err := nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("set the address of the Node: %w", err)
	}
	return nil
}

func (p *plane) close() error { return errors.Join(p.control.Close(), p.ns.Close()) }

// onPlane runs work against an API server that has a cluster with this number of Services.
func onPlane(binaries string, services int, work func(*plane, string) error) (err error) {
	dir, err := os.MkdirTemp("", "verdict-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	p, err := newPlane(binaries, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := errors.Join(p.addNode(), fill(p, services)); err != nil {
		return fmt.Errorf("prepare a cluster of %d Services: %w", services, err)
	}
	return work(p, dir)
}
