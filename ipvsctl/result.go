package ipvsctl

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
)

// Result is what one Add, Remove or Tick did.
type Result struct {
	Operations Operations // those that the kernel took, in this order
	Failures   []Failure
	ByName     map[string]int // how many Operations each name of Set needed, also after Delete; missing: none
	// Released lists the addresses that Coming named before, or that were local, and that certainly are not local now. They need
	// no guard. An address that may be local after an error is not in the list. It keeps its guard until it is.
	Released []netip.Addr
}

// count notes operations for a name.
func (r *Result) count(name string, n int) {
	if n > 0 && name != "" {
		if r.ByName == nil {
			r.ByName = map[string]int{}
		}
		r.ByName[name] += n
	}
}

// error returns one error for all failures, or nil.
func (r *Result) error() error {
	switch len(r.Failures) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("IPVS: %w; the engine tries again", r.Failures[0].Err)
	}
	first, more := r.Failures[0].Err, len(r.Failures)-1
	return fmt.Errorf("IPVS: %w; %d more virtual servers failed; the engine tries again", first, more)
}

// Failure is a virtual server that the engine could not bring to the wanted state. The other virtual servers are not
// affected. The next Add tries again when the virtual server is wanted; otherwise the next Remove or Tick does.
type Failure struct {
	Name string // of the service port; "" when the virtual server is being removed
	Key  Key
	Err  error // an *OperationError or a *KeyError
}

// Why IPVS cannot serve a virtual server now.
var (
	// ErrExcluded means that the address is in a range of Options.Exclude.
	ErrExcluded = errors.New("the address is in an excluded range")
	// ErrForeign means that another tool made the virtual server with this key. The engine leaves it alone.
	ErrForeign = errors.New("another tool has made this virtual server")
	// ErrReschedules means that Set would change the scheduler of a virtual server that takes new connections. The
	// kernel refuses connections for some 10 ms while it changes the scheduler: ip_vs_edit_service unbinds the old
	// one, waits for all readers, and then binds the new one. To lose no connection, Delete the virtual server, serve
	// its frontend by other means, and Set it again after the next Remove.
	ErrReschedules = errors.New("the kernel would refuse connections while it changes the scheduler")
)

// OperationError is an operation that the kernel refused, with the cause.
type OperationError struct {
	Operation Operation
	Err       error
}

func (e *OperationError) Error() string {
	text := fmt.Sprintf("%s %s: %v", e.Operation.Kind, e.Operation.object(), e.Err)
	if kind := e.Operation.Kind; (kind == AddServer || kind == EditServer) && errors.Is(e.Err, syscall.ENOENT) {
		scheduler := e.Operation.Server.Scheduler
		text += fmt.Sprintf(" (the kernel has no scheduler %s, module %s)", scheduler, Module(scheduler))
	}
	return text
}

func (e *OperationError) Unwrap() error { return e.Err }

// KeyError is an error about one virtual server. Err is ErrExcluded, ErrForeign, ErrReschedules, or the error of a
// system call that reads.
type KeyError struct {
	Key Key
	Err error
}

func (e *KeyError) Error() string { return "virtual server " + e.Key.String() + ": " + e.Err.Error() }

func (e *KeyError) Unwrap() error { return e.Err }
