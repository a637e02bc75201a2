package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/verdict-proxy/verdict/proxier/state"
)

const (
	// addressBuffer holds some 10,000 address notes; when it overflows all the same, everything is listed again.
	addressBuffer = 1 << 20
	// addressPause keeps a subscription that cannot be had from being asked for in a busy loop.
	addressPause = time.Second
	// listAttempts bounds how often an interrupted list is asked for at once.
	listAttempts = 10
)

// AddressesOptions are the parts of an address source; all must be set.
type AddressesOptions struct {
	Store *state.Store
	Log   *slog.Logger
}

// Addresses follows the addresses of the host's interfaces, in the network namespace of the thread that runs it.
type Addresses struct {
	store  *state.Store
	log    *slog.Logger
	buffer int // size of the socket's receive buffer
	synced chan struct{}
	listed sync.Once
}

// NewAddresses returns a source that does nothing until Run.
func NewAddresses(o AddressesOptions) *Addresses {
	return &Addresses{store: o.Store, log: o.Log, buffer: addressBuffer, synced: make(chan struct{})}
}

// Synced is closed when the addresses have been listed once.
func (a *Addresses) Synced() <-chan struct{} { return a.synced }

// Run follows the addresses until the context ends. A subscription that breaks is made anew and everything listed
// again; meanwhile the store keeps what it has.
func (a *Addresses) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		err := a.follow(ctx)
		if ctx.Err() == nil {
			a.log.Warn("lost track of the host's addresses; listing them again", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(addressPause):
		}
	}
	return nil
}

// follow subscribes first and lists then, so that no change falls between.
func (a *Addresses) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failures := make(chan error, 1)
	updates := make(chan netlink.AddrUpdate, 64)
	err := netlink.AddrSubscribeWithOptions(updates, ctx.Done(), netlink.AddrSubscribeOptions{
		ErrorCallback: func(err error) {
			select {
			case failures <- err:
			default:
			}
		},
		ReceiveBufferSize: a.buffer,
	})
	if err != nil {
		return fmt.Errorf("subscribe to address changes: %w", err)
	}
	defer drain(updates)
	defer cancel() // before draining, which ends with the subscription
	for {
		if err := a.list(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-failures:
			return fmt.Errorf("receive address changes: %w", err)
		case _, open := <-updates:
			if !open {
				return fmt.Errorf("receive address changes: %w", <-failures) // the library never ends without one
			}
			discard(updates)
		}
	}
}

// discard drops updates that came in the meantime: the list made next holds them all.
func discard(updates <-chan netlink.AddrUpdate) {
	for {
		select {
		case _, open := <-updates:
			if !open {
				return
			}
		default:
			return
		}
	}
}

// drain lets the library's goroutine end: it blocks on a channel that nobody reads.
func drain(updates <-chan netlink.AddrUpdate) {
	for range updates {
	}
}

func (a *Addresses) list() error {
	addrs, err := HostAddresses()
	if err != nil {
		return err
	}
	a.store.SetHostAddresses(addrs)
	a.listed.Do(func() { close(a.synced) })
	return nil
}

// HostAddresses lists the addresses of all interfaces, loopback and link-local ones included, sorted, each once.
// Multicast addresses are nothing that is local to one host.
func HostAddresses() ([]netip.Addr, error) {
	list, err := listAddresses(netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	addrs := make([]netip.Addr, 0, len(list))
	for _, entry := range list {
		if addr, ok := addrOf(entry.IPNet); ok && !addr.IsMulticast() {
			addrs = append(addrs, addr)
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs), nil
}

// listAddresses asks again when addresses changed while the kernel listed them: such a list may lack some.
func listAddresses(family int) (list []netlink.Addr, err error) {
	for range listAttempts {
		list, err = netlink.AddrList(nil, family)
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("list the host's addresses: %w", err)
	}
	return list, nil
}

func addrOf(n *net.IPNet) (netip.Addr, bool) {
	if n == nil {
		return netip.Addr{}, false
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	return addr.Unmap(), ok
}
