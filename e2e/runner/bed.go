package runner

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/verdict-proxy/verdict/e2e/apiserver"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/scenario"
)

// Source is where the proxy reads objects.
type Source string

// The sources.
const (
	FromAPIServer Source = "apiserver"
	FromManifests Source = "manifests"
)

// Options say what to test.
type Options struct {
	Family lab.Family
	Source Source
	// Proxy is the program under test.
	Proxy Proxy
	// ControlPlane is the folder with the binaries of etcd and kube-apiserver.
	ControlPlane string
	// Deploy is the manifest that Verdict ships. Its RBAC objects give the proxy its permissions in the tests.
	Deploy string
	// Dir is the folder for logs and data.
	Dir string
}

// Bed is a test bed: a network with a proxy, in which scenarios of one family run one after the other. Its parts take the
// steps.
type Bed struct {
	options  Options
	world    *lab.World
	plane    *apiserver.ControlPlane
	proxy    *proxy
	objects  *objects
	clients  *clients
	node     *node
	fence    *fence
	upstream bool
}

// NewBed builds the network and starts what the source needs. The first scenario starts the proxy.
func NewBed(o Options) (*Bed, error) {
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("create the folder for logs: %w", err)
	}
	world, err := lab.NewWorld()
	if err != nil {
		return nil, err
	}
	b := assemble(o, world, &proxy{program: o.Proxy, node: world.Node, dir: o.Dir})
	if err := b.openSource(); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// assemble makes the parts of a bed.
func assemble(o Options, world *lab.World, p *proxy) *Bed {
	b := &Bed{options: o, world: world, upstream: o.Proxy.Kind == KubeProxy, proxy: p}
	b.objects = &objects{family: o.Family}
	b.clients = &clients{family: o.Family, world: world, proxy: b.proxy}
	b.node = &node{family: o.Family, world: world, clients: b.clients}
	b.fence = &fence{objects: b.objects, clients: b.clients}
	b.forget()
	return b
}

func (b *Bed) openSource() error {
	if b.options.Source == FromManifests {
		s := &manifests{filepath.Join(b.options.Dir, "manifests")}
		b.objects.source = s
		return os.MkdirAll(s.dir, 0o755)
	}
	plane, err := apiserver.StartIn(b.world, apiserver.Options{
		Binaries: b.options.ControlPlane, Dir: b.options.Dir, ServiceRanges: strings.Join(lab.Both("SERVICES"), ","),
		// New API servers refuse addresses with leading zeros, but objects that are older than this rule still have
		// them.
		Arguments: []string{"--feature-gates=StrictIPCIDRValidation=false"},
	})
	if err != nil {
		return err
	}
	b.plane = plane
	s := &apiServer{plane: plane}
	b.objects.source = s
	if b.upstream {
		s.kubeconfig, err = plane.Kubeconfig(apiserver.KubeProxy)
		return err
	}
	return s.deploy(b.options.Deploy)
}

// Close ends everything and removes it.
func (b *Bed) Close() error {
	err := b.proxy.kill()
	if b.plane != nil {
		err = errors.Join(err, b.plane.Close())
	}
	return errors.Join(err, b.world.Close())
}

// forget clears everything that belongs to one scenario.
func (b *Bed) forget() {
	b.objects.present, b.clients.flows, b.clients.loops = map[string]scenario.Object{}, map[string]*lab.Flow{}, map[string]*loop{}
	b.clients.crowds, b.clients.chosen, b.node.undo = map[string]crowd{}, map[string]string{}, nil
}

// initialObjects are the objects that exist before every scenario. An API server creates the ServiceCIDR itself.
func (b *Bed) initialObjects() []scenario.Object {
	if b.options.Source == FromAPIServer {
		return b.objects.nodes()
	}
	return append(b.objects.nodes(), b.objects.written(`
kind: ServiceCIDR
metadata: {name: kubernetes}
spec: {cidrs: [$SERVICES, $OTHER_SERVICES]}
`)...)
}

// node has settings and addresses that a scenario changes.
type node struct {
	family  lab.Family
	world   *lab.World
	clients *clients // who ask for the addresses
	undo    []func() error
}

// changeAddress adds an address to a link of the node, or removes it. The end of the scenario removes an added one.
func (n *node) changeAddress(do *scenario.Address) error {
	a := lab.Address(n.family, do.Name) // the parser knows the name
	p, node := netip.PrefixFrom(a, a.BitLen()), n.world.Node
	if do.Remove {
		return errors.Join(node.RemoveAddress(do.Link, p), n.clients.readAddresses())
	}
	n.undo = append(n.undo, func() error {
		if err := n.clients.readAddresses(); err != nil || !n.clients.addrs[a] {
			return err
		}
		return node.RemoveAddress(do.Link, p)
	})
	return errors.Join(node.AddAddress(do.Link, p), n.clients.readAddresses())
}

// sysctl changes a setting of the node. The end of the scenario restores it.
func (n *node) sysctl(do *scenario.Sysctl) error {
	name, _, _ := strings.Cut(do.Setting, "=")
	was, err := n.world.Node.Command("cat", "/proc/sys/"+strings.ReplaceAll(name, ".", "/"))
	if err != nil {
		return err
	}
	n.undo = append(n.undo, func() error { return n.world.Node.Sysctl(name + "=" + strings.TrimSpace(was)) })
	return n.world.Node.Sysctl(do.Setting)
}
