package addresses

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// device is a link of this host.
type device struct {
	index     int
	hardware  net.HardwareAddr
	carrier   bool
	ups       uint32 // how often the link got its carrier
	announces bool   // its link has other hosts that ask for addresses
}

// find looks for a device.
func find(name string) (device, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return device{}, fmt.Errorf("find the device %s: %w", name, err)
	}
	a := link.Attrs()
	ups, err := carrierUps(a.Index)
	if err != nil {
		return device{}, fmt.Errorf("read the state of the device %s: %w", name, err)
	}
	return device{
		index: a.Index, hardware: a.HardwareAddr, carrier: a.RawFlags&unix.IFF_LOWER_UP != 0, ups: ups,
		announces: len(a.HardwareAddr) == 6 && a.Flags&net.FlagLoopback == 0 && a.RawFlags&unix.IFF_NOARP == 0,
	}, nil
}

// carrierUps reads how often a link got its carrier, so that nobody misses a short interruption.
func carrierUps(link int) (n uint32, err error) {
	header := nl.NewIfInfomsg(unix.AF_UNSPEC)
	header.Index = int32(link)
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	request.AddData(header)
	messages, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	for _, m := range messages {
		attributes, err := nl.ParseRouteAttr(m[header.Len():])
		if err != nil {
			return 0, err
		}
		for _, a := range attributes {
			if a.Attr.Type == unix.IFLA_CARRIER_UP_COUNT && len(a.Value) == 4 {
				n = nl.NativeEndian().Uint32(a.Value)
			}
		}
	}
	return n, err
}

// add adds an address.
func (d *device) add(a netip.Addr) error {
	return change(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, a, d.index)
}

// remove deletes an address. It is no error when there is none.
func remove(a netip.Addr, link int) error {
	err := change(unix.RTM_DELADDR, 0, a, link)
	if errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// change sends a request about an address. The package comment says why the address looks as it does.
func change(kind, flags int, a netip.Addr, link int) error {
	family := unix.AF_INET
	if a.Is6() {
		family = unix.AF_INET6
	}
	header := nl.NewIfAddrmsg(family)
	header.Prefixlen, header.Index = uint8(a.BitLen()), uint32(link)
	request := nl.NewNetlinkRequest(kind, flags|unix.NLM_F_ACK)
	request.AddData(header)
	request.AddData(nl.NewRtAttr(unix.IFA_LOCAL, a.AsSlice()))
	request.AddData(nl.NewRtAttr(unix.IFA_ADDRESS, a.AsSlice()))
	request.AddData(nl.NewRtAttr(attributeProtocol, []byte{mark}))
	if a.Is4() {
		header.Scope = unix.RT_SCOPE_LINK
	} else {
		header.Flags = unix.IFA_F_NODAD
		const forever = 1<<32 - 1
		life := nl.IfaCacheInfo{IfaCacheinfo: unix.IfaCacheinfo{Valid: forever}} // preferred for no time: deprecated
		request.AddData(nl.NewRtAttr(unix.IFA_CACHEINFO, life.Serialize()))
	}
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}
