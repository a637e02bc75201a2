package runner

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

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

// objects are what a scenario has written.
type objects struct {
	options Options
	source  source
	present map[string]scenario.Object
	pending bool // something changed since the last fence
}

// clients make connections, and remember them.
type clients struct {
	options Options
	world   *lab.World
	proxy   *proxy
	addrs   map[netip.Addr]bool // of the node
	flows   map[string]*flow
	loops   map[string]*loop
	crowds  map[string]crowd
	chosen  map[string]string // endpoints that probes remember with "as"
}

// node has settings and addresses that a scenario changes.
type node struct {
	options Options
	world   *lab.World
	clients *clients // who ask for the addresses
	undo    []func() error
}

// source takes objects and offers them to the proxy.
type source interface {
	// Put creates or replaces an object, with its status.
	Put(scenario.Object) error
	Delete(kind, namespace, name string) error
	// Arguments are the flags that tell the proxy where to read.
	Arguments() []string
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
	b := assemble(o, world, newProxy(o.Proxy, world.Node, o.Dir))
	if err := b.openSource(); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// assemble makes the parts of a bed.
func assemble(o Options, world *lab.World, p *proxy) *Bed {
	b := &Bed{options: o, world: world, upstream: o.Proxy.Kind == KubeProxy, proxy: p}
	b.objects = &objects{options: o}
	b.clients = &clients{options: o, world: world, proxy: b.proxy}
	b.node = &node{options: o, world: world, clients: b.clients}
	b.fence = &fence{objects: b.objects, clients: b.clients}
	b.forget()
	return b
}

func (b *Bed) openSource() error {
	if b.options.Source == FromManifests {
		s, err := newManifests(filepath.Join(b.options.Dir, "manifests"))
		b.objects.source = s
		return err
	}
	plane, err := apiserver.StartIn(b.world, apiserver.Options{
		Binaries: b.options.ControlPlane, Dir: b.options.Dir, ServiceRanges: serviceRanges(),
		// New API servers refuse addresses with leading zeros, but objects that are older than this rule still have
		// them.
		Arguments: []string{"--feature-gates=StrictIPCIDRValidation=false"},
	})
	if err != nil {
		return err
	}
	b.plane = plane
	s, err := newAPIServer(plane)
	if err != nil {
		return err
	}
	b.objects.source = s
	if b.upstream {
		s.kubeconfig, err = plane.KubeProxy()
		return err
	}
	return s.deploy(b.options.Deploy)
}

func serviceRanges() string { return both("SERVICES") }

// both returns the text for a name in both families, separated by a comma.
func both(name string) string {
	v4, err4 := lab.Text(lab.IPv4, name)
	v6, err6 := lab.Text(lab.IPv6, name)
	if err := errors.Join(err4, err6); err != nil {
		panic(err) // callers in this package pass names of the address book
	}
	return v4 + "," + v6
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
	b.objects.present, b.clients.flows, b.clients.loops = map[string]scenario.Object{}, map[string]*flow{}, map[string]*loop{}
	b.clients.crowds, b.clients.chosen, b.node.undo = map[string]crowd{}, map[string]string{}, nil
}

// key identifies an object.
func key(o scenario.Object) string { return o.Kind() + "/" + o.Namespace() + "/" + o.Name() }

// readAddresses reads the addresses of the node, which may change while a scenario runs.
func (c *clients) readAddresses() error {
	list, _, err := c.world.Node.Addresses()
	c.addrs = map[netip.Addr]bool{}
	for _, p := range list {
		c.addrs[p.Addr()] = true
	}
	return err
}
