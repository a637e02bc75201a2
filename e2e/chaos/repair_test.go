//go:build e2e

package chaos

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// editor changes the ruleset, and measures how long the daemon takes to repair it.
type editor struct {
	node    *lab.Namespace
	monitor *monitor
	ledger  *ledger
	oracle  *oracle
	daemon  *daemon
	churn   *churn
	repairs []time.Duration
}

// repairPatience is how long an edit may stay when the daemon runs and has nothing else to do. The aim is 100 ms.
const repairPatience = 5 * time.Second

// edit changes the ruleset. In half of the cases it stops the churn and measures how long the repair takes; then the
// next commit of the daemon can only be the repair.
func (e *editor) edit(r *rand.Rand, script string) error {
	measured := r.IntN(2) == 0 && e.daemon.repairs() && !strings.Contains(script, "affinity") // clients fill that map
	var before []string
	if measured {
		e.churn.hold()
		defer e.churn.release()
		time.Sleep(slower(quiet)) // until the daemon has followed the last changes
		var err error
		if before, err = e.oracle.kernel(); err != nil {
			return err
		}
	}
	w, from := e.ledger.open(), time.Now()
	e.ledger.note("edit: %s", strings.TrimSpace(script[:min(300, len(script))]))
	if err := e.node.Load(script); err != nil {
		e.ledger.note("nft refuses the edit: %v", err) // another fault had removed what it edits
		return nil
	}
	if measured {
		return e.measureRepair(w, from, before)
	}
	return nil
}

// measureRepair waits for the commit that repairs an edit. The window ends there if the kernel then holds what it held
// before; otherwise it ends with the round.
func (e *editor) measureRepair(w *window, from time.Time, before []string) error {
	took, ok := e.monitor.repair(from, slower(repairPatience))
	if !ok {
		if err := e.oracle.holds(before, 0); err != nil {
			return fmt.Errorf("the daemon did not repair an edit within %s: %w", slower(repairPatience), err)
		}
		return nil // the edit had changed nothing, such as a flush of an empty set
	}
	e.repairs = append(e.repairs, took)
	e.ledger.note("repaired after %s", took)
	if err := e.oracle.holds(before, slower(time.Second)); err != nil {
		e.ledger.note("the kernel is not as before the edit: %v", err)
		return nil
	}
	if err := e.forgetUntranslated(); err != nil {
		return err
	}
	e.ledger.close(w, time.Now())
	return nil
}

// forgetUntranslated removes what the node's connection tracking has noted of connections that clients began while rules
// were missing. Such an entry lives for two minutes, and a new connection from the same port would not be translated.
func (e *editor) forgetUntranslated() error {
	frontends := map[netip.AddrPort]bool{}
	for _, f := range lab.Families() {
		for _, t := range targets(f, lab.Node) {
			frontends[t.to] = true
		}
	}
	return e.node.ForgetUntranslated(frontends)
}

// monitor notes who commits to nf_tables in the node, and when. The kernel tells it at the end of each commit.
type monitor struct {
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

const keptCommits = 10_000

// startMonitor starts a monitor that ends with the test.
func startMonitor(t testing.TB, node *lab.Namespace) *monitor {
	t.Helper()
	conn, err := nftables.New(nftables.WithNetNSFd(node.Fd()), nftables.WithSockOptions(onlyCommits))
	lab.Must(t, err)
	watch := nftables.NewMonitor()
	events, err := conn.AddGenerationalMonitor(watch)
	lab.Must(t, err)
	m := &monitor{changed: make(chan struct{})}
	var ended sync.WaitGroup
	ended.Go(func() {
		for e := range events {
			if g, is := e.GeneratedBy.Data.(*nftables.Gen); is && g != nil {
				m.add(commit{at: time.Now(), thread: int(g.ProcPID), name: g.ProcComm})
			}
		}
	})
	t.Cleanup(func() {
		lab.Must(t, watch.Close())
		ended.Wait()
	})
	return m
}

// onlyCommits has the kernel drop the events of elements before it copies them.
func onlyCommits(conn *netlink.Conn) error {
	kind := binary.NativeEndian.AppendUint16(nil, unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN)
	filter, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: 4, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(binary.BigEndian.Uint16(kind)), SkipFalse: 1},
		bpf.RetConstant{Val: 1 << 30},
		bpf.RetConstant{Val: 0},
	})
	if err != nil {
		return err
	}
	return errors.Join(conn.SetBPF(filter), conn.SetReadBuffer(4<<20))
}

func (m *monitor) add(c commit) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.commits) == keptCommits {
		m.commits = append(m.commits[:0], m.commits[keptCommits/2:]...)
	}
	m.commits = append(m.commits, c)
	close(m.changed)
	m.changed = make(chan struct{})
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
