package conntrack

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Reason explains an error of a cleaning in terms of what an administrator can change.
func Reason(err error) string {
	switch {
	case errors.Is(err, unix.EPERM):
		return "the process lacks the capability NET_ADMIN"
	case errors.Is(err, unix.EINVAL):
		// nfnetlink answers this when nobody has registered the subsystem of connection tracking.
		return "the kernel probably lacks the module nf_conntrack_netlink"
	case errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.ENOMEM):
		return "the kernel is short of memory"
	}
	return "unexpected; the kernel may be busy"
}
