package ipvsctl

import (
	"errors"
	"net/netip"

	"github.com/verdict-proxy/verdict/ipvsctl/wire"
)

// Kernel is IPVS and the local routes of a network namespace. Package wire documents the methods about IPVS.
type Kernel interface {
	Change(wire.Command, Key, wire.Header, RealServer) error
	Servers() ([]wire.Server, error)
	Server(Key) (wire.Server, bool, error)
	Reals(Key) ([]RealStatus, error)
	SetAdopted(k Key, adopted bool) error
	Timeouts() (Timeouts, error)
	SetTimeouts(Timeouts) error
	Daemons() ([]wire.Daemon, error)
	StartDaemon(wire.Daemon) error
	StopDaemon(wire.Daemon) error
	// AddAddress makes an address local, and DeleteAddress undoes that. It is no error when it is so already.
	AddAddress(netip.Addr) error
	DeleteAddress(netip.Addr) error
	ListAddresses() ([]netip.Addr, error)
	IsLocal(netip.Addr) (bool, error)
	Close() error
}

// kernel executes operations. Tests inject faults here.
type kernel interface {
	execute(Operation) error
	Kernel
}

type conn struct{ Kernel }

// sockets reach the kernel. Only one goroutine at a time may use them.
type sockets struct {
	*addresses
	*wire.Socket
}

// ErrNoIPVS means that the kernel has no IPVS and cannot load it.
var ErrNoIPVS = wire.ErrNoIPVS

// Dial opens sockets to the kernel. When it has no IPVS the error is ErrNoIPVS.
func Dial(ns int) (Kernel, error) {
	s, err := wire.Dial(ns)
	if err != nil {
		return nil, err
	}
	a, err := openAddresses(ns)
	if err != nil {
		s.Close()
		return nil, err
	}
	return &sockets{addresses: a, Socket: s}, nil
}

func dial(ns int) (kernel, error) {
	k, err := Dial(ns)
	return conn{k}, err
}

// withKernel opens sockets of its own.
func withKernel[T any](o Options, do func(kernel) (T, error)) (T, error) {
	c, err := dial(o.NetNS)
	if err != nil {
		var none T
		return none, err
	}
	defer c.Close()
	return do(c)
}

// Close closes the sockets.
func (s *sockets) Close() error {
	s.close()
	s.Socket.Close()
	return nil
}

func (c conn) execute(o Operation) error {
	switch o.Kind {
	case AddAddress:
		return c.AddAddress(o.Server.Addr)
	case DeleteAddress:
		return c.DeleteAddress(o.Server.Addr)
	}
	return c.Change(kinds()[o.Kind].command, o.Server.Key, o.Server.header(), o.Real)
}

// link is the engine's connection to the kernel.
type link struct{ kernel kernel }

// do executes one operation.
func (l link) do(r *Result, s *managed, o Operation) error {
	if err := l.kernel.execute(o); err != nil {
		return &OperationError{Operation: o, Err: err}
	}
	s.has.record(o)
	r.Operations = append(r.Operations, o)
	return nil
}

// doer returns what changes the addresses of virtual servers.
func (l link) doer(r *Result) doer {
	return func(s *managed, kind OperationKind) error {
		return l.do(r, s, Operation{Kind: kind, Server: s.value()})
	}
}

// read returns what the kernel has of a virtual server. The error is a *KeyError. It wraps ErrForeign when another tool
// made the virtual server.
func (l link) read(k Key) (applied, error) {
	f, exists, err := l.kernel.Server(k)
	switch {
	case err != nil:
		return applied{}, &KeyError{Key: k, Err: err}
	case !exists:
		return applied{}, nil
	case !f.Ours:
		return applied{}, &KeyError{Key: k, Err: ErrForeign}
	}
	reals, err := l.kernel.Reals(k)
	if err != nil {
		return applied{}, &KeyError{Key: k, Err: err}
	}
	return newApplied(f, reals), nil
}

// ours reports whether the kernel's virtual server with this key has the mark. The engine asks before it deletes a
// virtual server or ends a drain, because the kernel deletes by key alone: after an "ipvsadm -C" another tool may
// have the key.
func (l link) ours(k Key) (bool, error) {
	f, exists, err := l.kernel.Server(k)
	if err != nil {
		return false, &KeyError{Key: k, Err: err}
	}
	return exists && f.Ours, nil
}

// intact reports whether the kernel has a virtual server as the engine knows it.
func (l link) intact(s *managed) (bool, error) {
	now, err := l.read(s.key)
	if errors.Is(err, ErrForeign) {
		return false, nil
	}
	if err != nil || !now.equal(&s.has) || !s.local {
		return err == nil && now.equal(&s.has), err
	}
	return l.kernel.IsLocal(s.key.Addr)
}
