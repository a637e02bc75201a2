package takeover

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/verdict-proxy/verdict/proxier/source/host"
)

// Device is the device of the mode ipvs. It has the addresses of all Services.
const Device = host.KubeProxyDevice

// Places are the addresses at which the mode ipvs has virtual servers: those of the device, with the value true, and
// those of other devices, for node ports. There are none without the device.
func Places() (map[netip.Addr]bool, error) {
	device, err := findDevice()
	if device == nil || err != nil {
		return nil, err
	}
	list, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list the addresses of this node: %w", err)
	}
	places := make(map[netip.Addr]bool, len(list))
	for _, a := range list {
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			addr = addr.Unmap()
			places[addr] = a.LinkIndex == device.Attrs().Index
		}
	}
	return places, nil
}

// findDevice returns nil if there is no such device.
func findDevice() (netlink.Link, error) {
	link, err := netlink.LinkByName(Device)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for the device %s: %w", Device, err)
	}
	return link, nil
}

// RemoveDevice removes the device and its addresses. Virtual servers at these addresses get no packets after that, unless
// something else makes the addresses local.
func RemoveDevice() error {
	device, err := findDevice()
	if device == nil || err != nil {
		return err
	}
	if err := netlink.LinkDel(device); err != nil {
		return fmt.Errorf("remove the device %s: %w", Device, err)
	}
	return nil
}
