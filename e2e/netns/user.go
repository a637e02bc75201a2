package netns

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// AsRoot are the attributes of a process that is root of a user namespace of its own, and in further new namespaces
// such as unix.CLONE_NEWNET. An ordinary user may start such a process.
func AsRoot(namespaces uintptr) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | namespaces,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
}
