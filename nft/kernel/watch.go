package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/nft/program"
)

// Interference is a commit of another process that changed our tables, or what Check found of one.
type Interference struct {
	Process string // the name of the process, as the kernel has it (at most 15 characters)
	PID     int    // in the initial process namespace of the watcher; 0: it has ended, or is not visible here
	// Structure reports that tables, chains, rules or sets changed, not only elements.
	Structure bool
	// Guard reports that the table ip verdict-loopback changed. It is no part of what Repair undoes.
	Guard bool
	// Lost reports that the kernel dropped events: anything may have changed.
	Lost bool
	// Unheard: Check found the change, and no message told of it. So there may be more.
	Unheard bool
	// Replaced: tables came or went, or sets of the program. Their elements may have gone without a word.
	Replaced bool
	Sets     map[TableSet]*Touched // the sets whose elements changed
}

// TableSet is a set in one of our tables.
type TableSet struct {
	Family program.Family
	Set    program.SetID
}

// Touched are the keys of elements that changed.
type Touched struct {
	Keys map[string]bool
	Many bool // too many to note each
}

// maxTouched bounds the keys that are noted for a set.
const maxTouched = 1024

// At is what is noted of a set.
func (i *Interference) At(set TableSet) *Touched {
	if i.Sets == nil {
		i.Sets = map[TableSet]*Touched{}
	}
	if i.Sets[set] == nil {
		i.Sets[set] = &Touched{Keys: map[string]bool{}}
	}
	return i.Sets[set]
}

// Touch notes an element.
func (t *Touched) Touch(key []byte) {
	t.Keys[string(key)] = true
	t.Many = t.Many || len(t.Keys) > maxTouched
}

// String says what changed.
func (i *Interference) String() string {
	var parts []string
	if i.Lost {
		parts = append(parts, "unknown, the kernel dropped events")
	}
	if i.Structure {
		parts = append(parts, "chains, rules or sets")
	}
	for p := range i.Sets {
		parts = append(parts, "elements of "+p.Family.String()+" "+program.TableName+" "+p.Set.Name())
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// Merge adds another interference that came after this one. The process is that of the later one.
func (i *Interference) Merge(later Interference) {
	i.Process, i.PID = later.Process, later.PID
	i.Structure, i.Lost = i.Structure || later.Structure, i.Lost || later.Lost
	i.Replaced, i.Unheard = i.Replaced || later.Replaced, i.Unheard || later.Unheard
	for at, t := range later.Sets {
		both := i.At(at)
		maps.Copy(both.Keys, t.Keys)
		both.Many = both.Many || t.Many || len(both.Keys) > maxTouched
	}
}

// Empty reports whether nothing changed in our tables.
func (i *Interference) Empty() bool { return !i.Lost && !i.Structure && len(i.Sets) == 0 }

// Watcher receives commits by other processes. One goroutine may use it, beside the one that uses the engine.
type Watcher struct {
	*nlmsg.Conn
	pending Interference // of a commit whose end has not come yet
}

// The kernel tells members of NFNLGRP_NFTABLES of every change, and at the end of a commit who made it
// (linux/netfilter/nfnetlink.h, nf_tables.h).
const (
	groupNftables = 7
	genProcPID    = 2
	genProcName   = 3
)

// watchBuffer holds the events of other processes until the watcher reads them.
const watchBuffer = 4 << 20

// Watch subscribes to commits by others than this connection.
func (c *Conn) Watch() (*Watcher, error) {
	sock, err := nlmsg.Dial("nf_tables", c.netns)
	if err != nil {
		return nil, fmt.Errorf("watch nf_tables: %w", err)
	}
	w := &Watcher{Conn: sock}
	if err := w.join(c); err != nil {
		return nil, errors.Join(fmt.Errorf("watch nf_tables: %w", err), sock.Close())
	}
	return w, nil
}

// join leaves the engine's own commits to the kernel: it would copy an event for each element that the engine writes.
func (w *Watcher) join(own *Conn) error {
	address, err := own.Getsockname()
	if err != nil {
		return fmt.Errorf("read the address of the engine's socket: %w", err)
	}
	filter, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: 12, Size: 4}, // nlmsg_pid of the first message: a datagram has the events of one commit
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: hostToNetwork(address.(*unix.SockaddrNetlink).Pid), SkipFalse: 1},
		bpf.RetConstant{Val: 0},
		bpf.RetConstant{Val: 1 << 30},
	})
	if err != nil {
		return fmt.Errorf("assemble the filter: %w", err)
	}
	if err := w.SetBPF(filter); err != nil {
		return fmt.Errorf("set the filter: %w", err)
	}
	if err := w.SetReadBuffer(watchBuffer); err != nil {
		return fmt.Errorf("size the receive buffer: %w", err)
	}
	return w.Subscribe(groupNftables)
}

// hostToNetwork gives a number as a filter loads it from a field in host byte order.
func hostToNetwork(v uint32) uint32 {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], v)
	return binary.BigEndian.Uint32(b[:])
}

// Next waits for a commit of another process that changed our tables, or the guard of 127.0.0.0/8. After an error the watcher is of no use any more.
func (w *Watcher) Next(ctx context.Context) (Interference, error) {
	for {
		m, err := w.Hear(ctx)
		switch {
		case errors.Is(err, unix.ENOBUFS):
			w.pending = Interference{}
			return Interference{Lost: true}, nil
		case err != nil:
			return Interference{}, fmt.Errorf("read events of nf_tables: %w", err)
		}
		if i, complete := w.read(m); complete && (i.Guard || !i.Empty()) {
			return i, nil
		}
	}
}

// read adds the events of a datagram. At the end of a commit it returns what the commit changed.
func (w *Watcher) read(m nlmsg.Messages) (i Interference, complete bool) {
	for m.Next() {
		if m.Kind>>8 != unix.NFNL_SUBSYS_NFTABLES || len(m.Body) < nlmsg.FamilySize {
			continue
		}
		if kind := m.Kind & 0xff; kind != unix.NFT_MSG_NEWGEN {
			w.pending.event(kind, program.Family(m.Body[0]), m.Attributes())
			continue
		}
		author := m.Attributes()
		w.pending.PID, w.pending.Process = int(author.Find(genProcPID).Uint32()), author.Find(genProcName).Text()
		i, complete, w.pending = w.pending, true, Interference{}
	}
	return i, complete
}

// Kinds of events that package unix does not have: "nft destroy" makes them (Linux 6.3 and newer).
const (
	msgDestroyChain       = 27
	msgDestroyRule        = 28
	msgDestroySet         = 29
	msgDestroySetElements = 30
	msgDestroyObject      = 31
	msgDestroyFlowtable   = 32
)

// event notes a change of our tables. In all events, attribute 1 names the table, and in those of sets attribute 2 names
// the set.
func (i *Interference) event(kind uint16, f program.Family, a nlmsg.Attributes) {
	table, second := a.Find(1).Text(), a.Find(2).Text()
	i.Guard = i.Guard || f == program.IPv4 && table == program.LoopbackTableName
	if table != program.TableName || f != program.IPv4 && f != program.IPv6 {
		return
	}
	switch kind {
	case unix.NFT_MSG_NEWSETELEM, unix.NFT_MSG_DELSETELEM, msgDestroySetElements:
		i.elementEvent(f, second, a.Find(unix.NFTA_SET_ELEM_LIST_ELEMENTS).Nested())
	default:
		i.structureEvent(kind, second)
	}
}

// structureEvent notes a change of something that is no element.
func (i *Interference) structureEvent(kind uint16, name string) {
	switch kind {
	case unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_DELCHAIN, msgDestroyChain, unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE, msgDestroyRule:
	case unix.NFT_MSG_NEWSET, unix.NFT_MSG_DELSET, msgDestroySet:
		_, ours := program.SetNamed(name)
		i.Replaced = i.Replaced || ours
	case unix.NFT_MSG_NEWTABLE: // of a table that went before, or a change of flags
	case unix.NFT_MSG_NEWOBJ, unix.NFT_MSG_DELOBJ, msgDestroyObject,
		unix.NFT_MSG_NEWFLOWTABLE, unix.NFT_MSG_DELFLOWTABLE, msgDestroyFlowtable:
		if name != program.FastPathTable {
			return // they change nothing as long as no rule uses them
		}
	default:
		i.Replaced = true
	}
	i.Structure = true
}

// elementEvent notes elements that changed. The sets of rules of others are not ours.
func (i *Interference) elementEvent(f program.Family, name string, elements nlmsg.Attributes) {
	switch id, ours := program.SetNamed(name); {
	case id.FilledByRules():
	case ours:
		for t := i.At(TableSet{Family: f, Set: id}); elements.Next() && !t.Many; {
			found := decodeElement(elements.Nested())
			t.Touch(found.Key)
		}
	default:
		i.Structure = true
	}
}
