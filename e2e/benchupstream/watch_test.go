package benchupstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/mdlayher/socket"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/nft/nlmsg"
)

// watcher finds out when the kernel gets a new endpoint.
type watcher interface {
	// expect prepares for the arrival of an address.
	expect(netip.Addr) error
	// arrived waits until all expected addresses are in the kernel, and returns the times of their arrival. It fails
	// when patience ends before that.
	arrived(patience time.Duration) (map[netip.Addr]time.Time, error)
	// settle waits until the kernel's rules have not changed for a while.
	settle(quiet, patience time.Duration) error
	close() error
}

// notifications listens to nf_tables. The kernel sends a message for each change of a transaction, and at its end a
// message with the new generation. The four bytes of the address are in one of them, as data of a map or as part of a
// rule.
type notifications struct {
	sock    *socket.Conn
	buf     []byte
	waiting map[netip.Addr]bool // true: seen in a transaction whose end has not come
	found   map[netip.Addr]time.Time
	changed time.Time // the latest message that is not about the table of neighbor
}

// nfnlgrpNFTables is NFNLGRP_NFTABLES.
const nfnlgrpNFTables = 7

// receiveBuffer is large enough for the messages of a large transaction.
const receiveBuffer = 64 << 20

func watchNotifications(node *lab.Namespace) (watcher, error) {
	w := &notifications{buf: make([]byte, 1<<20), waiting: map[netip.Addr]bool{}, found: map[netip.Addr]time.Time{}}
	err := node.Do(func() (err error) {
		w.sock, err = socket.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER, "nf_tables", nil)
		return err
	})
	if err == nil {
		err = errors.Join(
			w.sock.Bind(&unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (nfnlgrpNFTables - 1)}),
			w.sock.SetReadBuffer(receiveBuffer),
		)
	}
	if err != nil {
		return nil, fmt.Errorf("listen to nf_tables: %w", err)
	}
	return w, nil
}

func (w *notifications) expect(a netip.Addr) error {
	w.waiting[a] = false
	return nil
}

func (w *notifications) arrived(patience time.Duration) (map[netip.Addr]time.Time, error) {
	for end := time.Now().Add(patience); len(w.waiting) > 0; {
		if err := w.receive(time.Until(end)); err != nil {
			return nil, fmt.Errorf("%d of the expected endpoints did not arrive in the kernel: %w", len(w.waiting), err)
		}
	}
	found := w.found
	w.found = map[netip.Addr]time.Time{}
	return found, nil
}

func (w *notifications) settle(quiet, patience time.Duration) error {
	w.changed = time.Now()
	for end := w.changed.Add(patience); time.Now().Before(end); {
		err := w.receive(time.Until(w.changed.Add(quiet)))
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		if time.Since(w.changed) >= quiet {
			return nil
		}
	}
	return fmt.Errorf("the rules still change after %s: %w", patience, context.DeadlineExceeded)
}

// receive reads one datagram.
func (w *notifications) receive(wait time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	n, _, err := w.sock.Recvfrom(ctx, w.buf, 0)
	now := time.Now()
	if errors.Is(err, unix.ENOBUFS) {
		return errors.New("the kernel dropped messages of nf_tables, because the receive buffer was full")
	}
	if err != nil {
		return err
	}
	w.read(w.buf[:n], now)
	return nil
}

// newGeneration is the type of the message that ends a transaction.
const newGeneration = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN

// read handles the messages of a datagram.
func (w *notifications) read(datagram []byte, now time.Time) {
	for m := nlmsg.NewMessages(datagram); m.Next(); {
		if m.Kind == newGeneration {
			w.finish(now)
		} else {
			w.look(m.Body)
			if !bytes.Contains(m.Body, []byte(neighborTable)) {
				w.changed = now
			}
		}
	}
}

// look searches a message for expected addresses.
func (w *notifications) look(message []byte) {
	for a, seen := range w.waiting {
		bits := a.As4()
		if !seen && bytes.Contains(message, bits[:]) {
			w.waiting[a] = true
		}
	}
}

// finish notes the arrival of the addresses of a transaction.
func (w *notifications) finish(now time.Time) {
	for a, seen := range w.waiting {
		if seen {
			w.found[a] = now
			delete(w.waiting, a)
		}
	}
}

func (w *notifications) close() error { return w.sock.Close() }
