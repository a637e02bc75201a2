//go:build !nokernel

package host

import (
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/verdict-proxy/verdict/e2e/netns"
)

func TestMain(m *testing.M) { os.Exit(netns.Main(m)) }

// namespace is a network namespace whose links and addresses a test changes.
type namespace struct {
	t *testing.T
	*netns.Namespace
}

// newNamespace makes a namespace without any address: the tests also look at those of the loopback link.
func newNamespace(t *testing.T) *namespace {
	t.Helper()
	return &namespace{t, netns.Bare(t)}
}

func (n *namespace) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// link adds a link that is up. It is one end of a pair, since not every kernel has dummy links.
func (n *namespace) link(name string) {
	n.t.Helper()
	n.must(netns.Connect(n.Namespace, name, n.Namespace, name+"-peer"))
}

func (n *namespace) up(name string) {
	n.t.Helper()
	n.must(n.SetUp(name))
}

func (n *namespace) deleteLink(name string) {
	n.t.Helper()
	n.must(n.DeleteLink(name))
}

func (n *namespace) address(link, address string, change ...func(*netlink.Addr)) {
	n.t.Helper()
	n.must(n.AddAddress(link, netip.MustParsePrefix(address), change...))
}

func (n *namespace) deleteAddress(link, address string) {
	n.t.Helper()
	n.must(n.RemoveAddress(link, netip.MustParsePrefix(address)))
}

// defaultRoute adds a default route over a link. The source may be empty.
func (n *namespace) defaultRoute(to, link string, metric int, source string) {
	n.t.Helper()
	r := netns.Route{To: netip.MustParsePrefix(to), Link: link, Metric: metric}
	if source != "" {
		r.Source = netip.MustParseAddr(source)
	}
	n.must(n.AddRoute(r))
}
