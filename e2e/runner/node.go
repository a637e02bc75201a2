package runner

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/scenario"
)

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
	var was []byte
	err := n.world.Node.Do(func() (err error) {
		was, err = os.ReadFile("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
		return err
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	n.undo = append(n.undo, func() error { return n.world.Node.Sysctl(name + "=" + strings.TrimSpace(string(was))) })
	return n.world.Node.Sysctl(do.Setting)
}
