package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// claimName is an abstract Unix socket, whose name exists once in each network namespace. Every process claims it,
// because two processes that write the tables would undo each other's changes for ever. The kernel frees the name when
// the process ends for any reason.
const claimName = "@verdict-proxy"

// claimPatience is how long a process waits for the previous one, because two processes may overlap in a rolling
// update.
const claimPatience = 20 * time.Second

// claimNode waits until no other process of Verdict serves this network namespace. The caller closes what it returns.
func claimNode(ctx context.Context, patience time.Duration, log *slog.Logger) (net.Listener, error) {
	const every = 100 * time.Millisecond
	said := false
	for deadline := time.Now().Add(patience); ; {
		l, err := (&net.ListenConfig{}).Listen(ctx, "unix", claimName)
		if err == nil {
			go hangUp(l)
			return l, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("claim this network namespace (abstract socket %s): %w", claimName, err)
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("another process of Verdict (pid %d) serves this network namespace; stop it first", claimant())
		}
		if !said {
			log.Warn("another process of Verdict serves this network namespace; waiting for it to end", "pid", claimant(), "patience", patience)
			said = true
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(every):
		}
	}
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

// claimant returns the id of the process that has the socket, or 0 if it is unknown.
func claimant() int {
	c, err := net.Dial("unix", claimName)
	if err != nil {
		return 0
	}
	defer c.Close()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	_ = raw.Control(func(fd uintptr) {
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(peer.Pid)
		}
	})
	return pid
}
