package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/mdlayher/socket"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/nft/nlmsg"
)

// monitor notes who commits to nf_tables in the node, and when. The kernel tells it at the end of each commit.
type monitor struct {
	sock  *socket.Conn
	ended chan struct{}

	mu      sync.Mutex
	commits []commit // the latest ones
	changed chan struct{}
}

// commit is a commit to nf_tables.
type commit struct {
	at     time.Time
	thread int
	name   string // of the thread
}

// Numbers of the kernel (linux/netfilter/nfnetlink.h, nf_tables.h).
const (
	groupNftables = 7
	newGeneration = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN
	genProcPID    = 2
	genProcName   = 3
)

const keptCommits = 10_000

func startMonitor(node *lab.Namespace) (*monitor, error) {
	sock, err := socket.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER, "nf_tables commits", &socket.Config{NetNS: node.Fd()})
	if err != nil {
		return nil, fmt.Errorf("watch nf_tables: %w", err)
	}
	m := &monitor{sock: sock, ended: make(chan struct{}), changed: make(chan struct{})}
	if err := m.join(); err != nil {
		return nil, errors.Join(fmt.Errorf("watch nf_tables: %w", err), sock.Close())
	}
	go m.run()
	return m, nil
}

// join takes only the ends of commits. The kernel drops the events of elements before it copies them.
func (m *monitor) join() error {
	var kind [2]byte
	kind[0], kind[1] = byte(newGeneration&0xff), byte(newGeneration>>8) // netlink uses the byte order of the host
	filter, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: 4, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(kind[0])<<8 | uint32(kind[1]), SkipFalse: 1},
		bpf.RetConstant{Val: 1 << 30},
		bpf.RetConstant{Val: 0},
	})
	if err != nil {
		return err
	}
	return errors.Join(
		m.sock.SetBPF(filter), m.sock.SetReadBuffer(4<<20), m.sock.Bind(&unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		m.sock.SetsockoptInt(unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, groupNftables),
	)
}

func (m *monitor) run() {
	defer close(m.ended)
	buffer := make([]byte, 1<<16)
	for {
		n, _, err := m.sock.Recvfrom(context.Background(), buffer, 0)
		if err != nil {
			return // closed
		}
		for msg := nlmsg.NewMessages(buffer[:n]); msg.Next(); {
			if msg.Kind == newGeneration {
				m.add(msg.Attributes())
			}
		}
	}
}

func (m *monitor) add(a nlmsg.Attributes) {
	c := commit{at: time.Now()}
	for a.Next() {
		switch a.Kind {
		case genProcPID:
			c.thread = int(a.Uint32())
		case genProcName:
			c.name = a.Text()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.commits) == keptCommits {
		m.commits = append(m.commits[:0], m.commits[keptCommits/2:]...)
	}
	m.commits = append(m.commits, c)
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *monitor) close() error {
	err := m.sock.Close()
	<-m.ended
	return err
}

// since lists the commits after a time, and returns a channel that is closed at the next one.
func (m *monitor) since(at time.Time) (list []commit, next <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.commits {
		if c.at.After(at) {
			list = append(list, c)
		}
	}
	return list, m.changed
}

// repair waits for a commit of nft after a time, and for one of the daemon after that. It returns the time between the
// two.
func (m *monitor) repair(from time.Time, patience time.Duration) (took time.Duration, ok bool) {
	deadline := time.After(patience)
	for {
		list, next := m.since(from)
		var edited time.Time
		for _, c := range list {
			switch {
			case c.name == "nft":
				edited = c.at
			case !edited.IsZero():
				return c.at.Sub(edited), true
			}
		}
		select {
		case <-next:
		case <-deadline:
			return 0, false
		}
	}
}

// wroteSince reports whether a process has committed since a time.
func (m *monitor) wroteSince(at time.Time, pid int) bool {
	list, _ := m.since(at)
	for _, c := range list {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d/task/%d", pid, c.thread)); err == nil {
			return true
		}
	}
	return false
}
