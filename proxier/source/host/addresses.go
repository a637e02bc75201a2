package host

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
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/proxier/addresses"
	"github.com/verdict-proxy/verdict/proxier/state"
)

const (
	// addressBuffer holds about 10,000 notifications. If it overflows, all addresses are listed again.
	addressBuffer = 1 << 20
	// addressPause is the pause before the next attempt to subscribe.
	addressPause = time.Second
	// listAttempts limits how often an interrupted list is repeated without a pause.
	listAttempts = 10
)

// Options are the parts of an Addresses source. All must be set.
type Options struct {
	Store *state.Store
	Log   *slog.Logger
}

// Addresses follows the devices of the host, their addresses, and which of these are the main ones, in the network namespace of
// the thread that runs it.
type Addresses struct {
	Options
	buffer int // size of the sockets' receive buffers
	synced chan struct{}
	listed sync.Once
}

// New returns a source that does nothing until Run.
func New(o Options) *Addresses {
	return &Addresses{Options: o, buffer: addressBuffer, synced: make(chan struct{})}
}

// Synced returns a channel that is closed once the addresses have been listed.
func (a *Addresses) Synced() <-chan struct{} { return a.synced }

// Run follows the addresses until the context ends. If the subscription breaks, Run subscribes and lists again. Until
// then the store keeps the addresses that it has.
func (a *Addresses) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		err := a.follow(ctx)
		if ctx.Err() == nil {
			a.Log.Warn("lost the subscription to the host's addresses; subscribing and listing again", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(addressPause):
		}
	}
	return nil
}

// follow subscribes before it lists, so that it misses no change in between.
func (a *Addresses) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	failures := make(chan error, 1)
	failed := func(err error) {
		select {
		case failures <- err:
		default:
		}
	}
	changes, ended, err := a.subscribe(ctx, failed)
	defer ended()
	defer cancel() // runs before ended, which waits for the ends of the subscriptions
	if err != nil {
		return err
	}
	for {
		if err := a.list(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-failures:
			return fmt.Errorf("receive address changes: %w", err)
		case <-changes:
		}
	}
}

// subscribe delivers a value after changes of addresses, and of routes and links that may change which address is the main
// one. The list that follows covers all of them. The caller cancels the context and then calls ended.
func (a *Addresses) subscribe(ctx context.Context, failed func(error)) (changes chan struct{}, ended func(), err error) {
	changes = make(chan struct{}, 1)
	var readers sync.WaitGroup
	addresses, routes, links := make(chan netlink.AddrUpdate, 64), make(chan netlink.RouteUpdate, 64), make(chan netlink.LinkUpdate, 64)
	err = netlink.AddrSubscribeWithOptions(addresses, ctx.Done(), netlink.AddrSubscribeOptions{ErrorCallback: failed, ReceiveBufferSize: a.buffer})
	if err != nil {
		return changes, readers.Wait, fmt.Errorf("subscribe to address changes: %w", err)
	}
	readers.Go(func() { signal(addresses, changes, failed, func(netlink.AddrUpdate) bool { return true }) })
	err = netlink.RouteSubscribeWithOptions(routes, ctx.Done(), netlink.RouteSubscribeOptions{ErrorCallback: failed, ReceiveBufferSize: a.buffer})
	if err != nil {
		return changes, readers.Wait, fmt.Errorf("subscribe to route changes: %w", err)
	}
	readers.Go(func() {
		signal(routes, changes, failed, func(u netlink.RouteUpdate) bool { return isDefault(&u.Route) })
	})
	err = netlink.LinkSubscribeWithOptions(links, ctx.Done(), netlink.LinkSubscribeOptions{ErrorCallback: failed, ReceiveBufferSize: a.buffer})
	if err != nil {
		return changes, readers.Wait, fmt.Errorf("subscribe to link changes: %w", err)
	}
	err = a.listDevices()
	readers.Go(func() { signal(links, changes, failed, a.noteLink) })
	return changes, readers.Wait, err
}

// listDevices replaces the devices of the store. Updates that the kernel has sent since the subscription follow.
func (a *Addresses) listDevices() (err error) {
	var links []netlink.Link
	for range listAttempts {
		if links, err = netlink.LinkList(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("list the host's network devices: %w", err)
	}
	devices := map[int]state.Device{}
	for _, link := range links {
		if is := link.Attrs(); is.Flags&net.FlagLoopback == 0 {
			devices[is.Index] = state.Device{Name: is.Name, Port: is.MasterIndex != 0}
		}
	}
	a.Store.SetDevices(devices)
	return nil
}

// noteLink records what became of a device. It reports whether addresses may have changed: the kernel says nothing of the routes that go
// when their link goes down.
func (a *Addresses) noteLink(u netlink.LinkUpdate) bool {
	is := u.Attrs()
	switch {
	case u.Family != unix.AF_UNSPEC || is.Flags&net.FlagLoopback != 0: // bridges report their ports a second time
	case u.Header.Type == unix.RTM_DELLINK:
		a.Store.SetDevice(is.Index, state.Device{})
	default:
		a.Store.SetDevice(is.Index, state.Device{Name: is.Name, Port: is.MasterIndex != 0})
	}
	return u.Flags&unix.IFF_UP == 0
}

// signal reads updates until the library closes the channel, and says when there was one that counts. If the library has
// reported no error before, the end is one.
func signal[T any](updates <-chan T, changes chan<- struct{}, failed func(error), counts func(T) bool) {
	for u := range updates {
		if !counts(u) {
			continue
		}
		select {
		case changes <- struct{}{}:
		default: // the list that is to come covers this one
		}
	}
	failed(errors.New("the subscription ended"))
}

func (a *Addresses) list() error {
	addrs, err := List()
	if err != nil {
		return err
	}
	primary, err := Primary()
	if err != nil {
		return err
	}
	a.Store.SetHostAddresses(addrs)
	a.Store.NotePrimary(primary)
	a.listed.Do(func() { close(a.synced) })
	return nil
}

// KubeProxyDevice is the device of kube-proxy's mode ipvs. It has the addresses of all Services.
const KubeProxyDevice = "kube-ipvs0"

// List lists the addresses of all interfaces, sorted and each once. It includes loopback and link-local
// addresses and leaves out multicast addresses, which are not local to one host. It leaves out those of KubeProxyDevice as
// well: the host has them only until Verdict has taken over from kube-proxy. Nor are those that Verdict has added for
// frontends addresses of the host.
func List() ([]netip.Addr, error) {
	except, err := FindKubeProxyDevice()
	if err != nil {
		return nil, err
	}
	list, err := addresses.List(netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	addrs := make([]netip.Addr, 0, len(list))
	for _, entry := range list {
		if !entry.Addr.IsMulticast() && (except == nil || entry.Link != except.Attrs().Index) && !entry.Ours {
			addrs = append(addrs, entry.Addr)
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs), nil
}

// FindKubeProxyDevice returns nil if there is no such device.
func FindKubeProxyDevice() (netlink.Link, error) {
	link, err := netlink.LinkByName(KubeProxyDevice)
	if _, missing := errors.AsType[netlink.LinkNotFoundError](err); missing {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for the device %s: %w", KubeProxyDevice, err)
	}
	return link, nil
}
