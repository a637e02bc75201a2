// Package claim lets one process of Verdict serve a network namespace.
package claim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"syscall"
	"time"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/nft/kernel"
)

// claimName is an abstract Unix socket, whose name exists once in each network namespace. It tells who serves the
// namespace, also to earlier versions of Verdict, which have no other claim. The kernel frees the name when the process ends
// for any reason. Any user can bind it, so it decides only between processes that trust each other.
const claimName = "@verdict-proxy"

// Patience is how long a process waits for the previous one, because two processes may overlap in a rolling
// update.
const Patience = 20 * time.Second

// CleanupPatience is how long a clean-up waits for a daemon that was just told to end.
const CleanupPatience = 5 * time.Second

// Claim keeps other processes of Verdict from changing this network namespace, because two processes that write the tables
// would undo each other's changes for ever. Only a process that may write the tables can hold it.
type Claim struct {
	lock kernel.Claim // holds nothing if the kernel has no such claim
	name net.Listener // nil: a process of another user has the name
}

// Close gives the claim up.
func (c *Claim) Close() error {
	err := c.lock.Close()
	if c.name != nil {
		err = errors.Join(err, c.name.Close())
	}
	return err
}

// errServed means that another process of Verdict serves the network namespace.
var errServed = errors.New("another process of Verdict serves this network namespace")

// Take waits until no other process of Verdict serves this network namespace. The caller closes what it returns.
func Take(ctx context.Context, patience time.Duration, log *slog.Logger) (*Claim, error) {
	const every = 100 * time.Millisecond
	said := false
	for deadline := time.Now().Add(patience); ; {
		c, err := tryClaim(ctx, log)
		if !errors.Is(err, errServed) {
			return c, err
		}
		holder, _ := Holder()
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("another process of Verdict (pid %d) serves this network namespace; stop it first", holder)
		}
		if !said {
			log.Warn("another process of Verdict serves this network namespace; waiting for it to end", "pid", holder, "patience", patience)
			said = true
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(every):
		}
	}
}

// tryClaim claims the network namespace. A stranger that has the name does not hinder it: without that, every user could
// keep Verdict from starting.
func tryClaim(ctx context.Context, log *slog.Logger) (*Claim, error) {
	held, err := kernel.ClaimNamespace(kernel.Options{})
	switch {
	case errors.Is(err, kernel.ErrClaimed):
		return nil, errServed
	case errors.Is(err, errors.ErrUnsupported):
		log.Debug("the kernel has no claim that only Verdict can hold; the name of a socket is the only one", "error", err)
	case err != nil:
		return nil, fmt.Errorf("claim this network namespace: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", claimName)
	if err == nil {
		go hangUp(l)
		return &Claim{held, l}, nil
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		return nil, errors.Join(fmt.Errorf("claim this network namespace (abstract socket %s): %w", claimName, err), held.Close())
	}
	pid, trusted := Holder()
	if trusted {
		return nil, errors.Join(errServed, held.Close())
	}
	log.Warn("a process that is not Verdict has the name by which processes of Verdict find each other; going on without it",
		"name", claimName, "pid", pid)
	return &Claim{held, nil}, nil
}

// hangUp closes connections. A process that connects only wants the process id, which it gets from the kernel.
func hangUp(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_ = c.Close()
	}
}

// Holder returns the id of the process that has the socket, or 0 if it is unknown. It is trusted if it belongs to root
// or to the user of this process.
func Holder() (pid int, trusted bool) {
	c, err := net.Dial("unix", claimName)
	if err != nil {
		return 0, false
	}
	defer c.Close()
	return socket.Peer(c)
}
