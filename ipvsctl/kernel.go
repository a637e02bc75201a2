package ipvsctl

import (
	"errors"
	"net/netip"

	"github.com/verdict-proxy/verdict/ipvsctl/wire"
	"github.com/verdict-proxy/verdict/nft/nlmsg"
)

// kernel is what the engine needs of a kernel. conn is the real one, memoryKernel the one in memory. Tests inject
// faults here.
type kernel interface {
	execute(Operation) error
	servers() ([]found, error)
	server(Key) (found, bool, error)
	reals(Key) ([]RealStatus, error)
	listAddresses() ([]netip.Addr, error)
	isLocal(netip.Addr) (bool, error)
	mark(k Key, bits uint32) error
	timeouts() (Timeouts, error)
	daemons() ([]wire.Daemon, error)
	startDaemon(wire.Daemon) error
	stopDaemon(wire.Daemon) error
	setTimeouts(Timeouts) error
	Close() error
}

// link is the engine's connection to the kernel.
type link struct {
	kernel
	dial func() (kernel, error) // opens another one when the sockets are lost; nil: there is none
	loss nlmsg.Loss
}

// reopen replaces the sockets if an error means that they are lost. What failed without them is tried again. If that fails
// for the same reason, so is this.
func (l *link) reopen(why error) {
	if _ = l.loss.Note(l.kernel, why); !l.loss.Lost() || l.dial == nil {
		return
	}
	if k, err := l.dial(); err == nil {
		l.kernel = k
		l.loss.Replaced()
	}
}

// do executes one operation.
func (l *link) do(r *Result, s *server, o Operation) error {
	if err := l.execute(o); err != nil {
		return &OperationError{Operation: o, Err: err}
	}
	s.has.record(o)
	r.Operations = append(r.Operations, o)
	return nil
}

// read returns what the kernel has of a virtual server. The error is a *KeyError. It wraps ErrForeign when another tool
// made the virtual server.
func (l *link) read(k Key) (applied, error) {
	f, exists, err := l.server(k)
	switch {
	case err != nil:
		return applied{}, &KeyError{Key: k, Err: err}
	case !exists:
		return applied{}, nil
	case !f.ours:
		return applied{}, &KeyError{Key: k, Err: ErrForeign}
	}
	reals, err := l.reals(k)
	if err != nil {
		return applied{}, &KeyError{Key: k, Err: err}
	}
	return newApplied(f, reals), nil
}

func newApplied(f found, reals []RealStatus) applied {
	has := applied{exists: true, header: f.header, adopted: f.adopted, reals: make([]RealServer, len(reals))}
	for i, r := range reals {
		has.reals[i] = r.RealServer
	}
	return has
}

// ours reports whether the kernel's virtual server with this key has the mark. The engine asks before it deletes a
// virtual server or ends a drain, because the kernel deletes by key alone: after an "ipvsadm -C" another tool may
// have the key.
func (l *link) ours(k Key) (bool, error) {
	f, exists, err := l.server(k)
	if err != nil {
		return false, &KeyError{Key: k, Err: err}
	}
	return exists && f.ours, nil
}

// intact reports whether the kernel has a virtual server as the engine knows it.
func (l *link) intact(s *server) (bool, error) {
	now, err := l.read(s.key)
	if errors.Is(err, ErrForeign) {
		return false, nil
	}
	if err != nil || !now.equal(&s.has) || !s.local {
		return err == nil && now.equal(&s.has), err
	}
	return l.isLocal(s.key.Addr)
}
