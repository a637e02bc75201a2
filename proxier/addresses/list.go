package addresses

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// mark is the protocol number of addresses that Verdict adds.
const mark = 118

// attributeProtocol is IFA_PROTO of linux/if_addr.h.
const attributeProtocol = 11

// listAttempts limits how often an interrupted list is repeated without a pause.
const listAttempts = 10

// Entry is an address of this host.
type Entry struct {
	Addr  netip.Addr
	Link  int // index of the device
	Flags uint32
	Scope uint8
	Ours  bool // Verdict has added it
}

// List lists the addresses of a family (unix.AF_UNSPEC: of both) in the order of the kernel, in the network namespace of the
// calling thread.
func List(family int) ([]Entry, error) {
	var messages [][]byte
	var err error
	for range listAttempts { // some addresses may be missing if others changed meanwhile
		request := nl.NewNetlinkRequest(unix.RTM_GETADDR, unix.NLM_F_DUMP)
		request.AddData(nl.NewIfAddrmsg(family))
		messages, err = request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWADDR)
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("list the host's addresses: %w", err)
	}
	list := make([]Entry, 0, len(messages))
	for _, m := range messages {
		e, err := parse(m)
		if err != nil {
			return nil, fmt.Errorf("list the host's addresses: read the answer of the kernel: %w", err)
		}
		if e.Addr.IsValid() {
			list = append(list, e)
		}
	}
	return list, nil
}

// parse reads one address. With a peer, IFA_ADDRESS is that of the peer.
func parse(message []byte) (Entry, error) {
	header := nl.DeserializeIfAddrmsg(message)
	attributes, err := nl.ParseRouteAttr(message[header.Len():])
	if err != nil {
		return Entry{}, err
	}
	e := Entry{Link: int(header.Index), Flags: uint32(header.Flags), Scope: header.Scope}
	var local, address netip.Addr
	for _, a := range attributes {
		switch {
		case a.Attr.Type == unix.IFA_ADDRESS:
			address, _ = netip.AddrFromSlice(a.Value)
		case a.Attr.Type == unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(a.Value)
		case a.Attr.Type == unix.IFA_FLAGS && len(a.Value) == 4:
			e.Flags = nl.NativeEndian().Uint32(a.Value)
		case a.Attr.Type == attributeProtocol && len(a.Value) == 1:
			e.Ours = a.Value[0] == mark
		}
	}
	if e.Addr = local; !local.IsValid() {
		e.Addr = address
	}
	e.Addr = e.Addr.Unmap()
	return e, nil
}
