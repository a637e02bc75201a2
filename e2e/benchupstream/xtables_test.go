package benchupstream

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// entries watches the nat table of legacy iptables. The kernel sends no messages about its changes, so entries asks
// again and again for the number of entries. A new endpoint is a new chain, which increases that number. Only one
// change can be expected at a time.
type entries struct {
	fd      int
	waiting netip.Addr
	before  tableInfo
}

// tableInfo is what the kernel says about a table without listing it.
type tableInfo struct{ entries, size uint32 }

// pollPeriod is the pause between two requests. An answer takes some microseconds.
const pollPeriod = 200 * time.Microsecond

func watchEntries(node *lab.Namespace) (watcher, error) {
	w := &entries{}
	err := node.Do(func() (err error) {
		w.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open a socket for iptables: %w", err)
	}
	return w, nil
}

// iptGetInfo is struct ipt_getinfo of linux/netfilter_ipv4/ip_tables.h.
type iptGetInfo struct {
	name       [32]byte
	validHooks uint32
	hookEntry  [5]uint32
	underflow  [5]uint32
	numEntries uint32
	size       uint32
}

const iptSoGetInfo = 64

func (w *entries) info() (tableInfo, error) {
	var i iptGetInfo
	copy(i.name[:], "nat")
	length := uint32(unsafe.Sizeof(i))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(w.fd), unix.IPPROTO_IP, iptSoGetInfo,
		uintptr(unsafe.Pointer(&i)), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return tableInfo{}, fmt.Errorf("ask iptables for the nat table: %w", errno)
	}
	return tableInfo{i.numEntries, i.size}, nil
}

func (w *entries) expect(a netip.Addr) (err error) {
	if w.waiting.IsValid() {
		return errors.New("expect a change of iptables: another one is expected already, and the two could not be told apart")
	}
	w.waiting = a
	w.before, err = w.info()
	return err
}

func (w *entries) arrived(patience time.Duration) (map[netip.Addr]time.Time, error) {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(pollPeriod) {
		now, err := w.info()
		if err != nil {
			return nil, err
		}
		if now != w.before {
			found := map[netip.Addr]time.Time{w.waiting: time.Now()}
			w.waiting = netip.Addr{}
			return found, nil
		}
	}
	return nil, fmt.Errorf("the nat table of iptables has not changed within %s: %w", patience, context.DeadlineExceeded)
}

func (w *entries) settle(quiet, patience time.Duration) error {
	last, err := w.info()
	since := time.Now()
	for end := since.Add(patience); err == nil && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var now tableInfo
		if now, err = w.info(); now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) >= quiet {
			return nil
		}
	}
	return errors.Join(err, fmt.Errorf("the rules still change after %s: %w", patience, context.DeadlineExceeded))
}

func (w *entries) close() error { return unix.Close(w.fd) }
