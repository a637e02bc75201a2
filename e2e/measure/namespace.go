package measure

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// Descriptor opens a file descriptor of a namespace, for those who take one. The caller closes it.
func Descriptor(n *lab.Namespace) (f *os.File, err error) {
	err = n.Do(func() error {
		f, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	return f, err
}

// Load has the nft program read a script inside a namespace.
func Load(n *lab.Namespace, script string) error {
	cmd := exec.Command("nft", "-f", "-")
	var errs strings.Builder
	cmd.Stdin, cmd.Stderr = strings.NewReader(script), &errs
	err := n.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return fmt.Errorf("load a script into %s: %w: %s", n.Name, err, errs.String())
	}
	return nil
}

// Join connects two namespaces by a pair of links of the same name.
func Join(a, b *lab.Namespace, name, addrA, addrB string) error {
	peer, err := Descriptor(b)
	if err != nil {
		return err
	}
	err = a.Do(func() error {
		pair := netlink.NewVeth(netlink.LinkAttrs{Name: name})
		pair.PeerName, pair.PeerNamespace = name, netlink.NsFd(int(peer.Fd()))
		return netlink.LinkAdd(pair)
	})
	if err != nil {
		return errors.Join(fmt.Errorf("connect %s and %s: %w", a.Name, b.Name, err), peer.Close())
	}
	return errors.Join(peer.Close(), address(a, name, addrA), address(b, name, addrB))
}

// address gives a link an address and sets it up.
func address(n *lab.Namespace, link, addr string) error {
	err := n.Do(func() error {
		l, err := netlink.LinkByName(link)
		if err != nil {
			return err
		}
		a, err := netlink.ParseAddr(addr)
		if err != nil {
			return err
		}
		return errors.Join(netlink.AddrAdd(l, a), netlink.LinkSetUp(l))
	})
	if err != nil {
		return fmt.Errorf("give link %s of %s the address %s: %w", link, n.Name, addr, err)
	}
	return nil
}

// Route sends a destination through a gateway.
func Route(n *lab.Namespace, destination, gateway string) error {
	_, to, err := net.ParseCIDR(destination)
	if err == nil {
		err = n.Do(func() error { return netlink.RouteAdd(&netlink.Route{Dst: to, Gw: net.ParseIP(gateway)}) })
	}
	if err != nil {
		return fmt.Errorf("route %s via %s in %s: %w", destination, gateway, n.Name, err)
	}
	return nil
}
