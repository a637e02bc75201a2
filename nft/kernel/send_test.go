package kernel

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestSendFailure(t *testing.T) {
	for errno, want := range map[unix.Errno]Outcome{
		unix.EMSGSIZE: Rejected, unix.EPERM: Rejected, unix.ENOMEM: Rejected,
		unix.ENOBUFS: Unknown, unix.EINTR: Unknown, unix.ECONNREFUSED: Unknown,
	} {
		if got := sendFailure(errno); got != want {
			t.Errorf("%v: %s, wanted %s", errno, got, want)
		}
	}
}
