package addresses

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// lookPeriod is how often the engine compares the host with what is wanted: others may add and delete addresses.
const lookPeriod = 5 * time.Second

// Engine keeps addresses on a device. One goroutine uses it, in the network namespace of its thread.
type Engine struct {
	device     string // empty: no address is wanted
	log        *slog.Logger
	services   map[state.Name][]netip.Addr
	wanted     map[netip.Addr]int // by how many Services
	withdrawn  bool               // none is wanted now
	held       map[netip.Addr]int // that Verdict has added, with the device that has them
	foreign    map[netip.Addr]bool
	changed    map[netip.Addr]bool   // perhaps to be added or deleted
	announcing map[netip.Addr]int    // how often
	faults     map[netip.Addr]string // why the device does not have an address that is wanted
	news       bool                  // a fault came or went
	gaveUp     string                // why no address is added any more; "": some are
	absent     bool                  // the device, at the last look
	looked     time.Time             // zero: the addresses of the host are not known
	host       host
}

// host is the kernel's side.
type host struct {
	list       func(family int) ([]Entry, error)
	keepsMarks bool
	carrier    carrier // at the last look at the device
}

// carrier changes when a link gets its carrier.
type carrier struct {
	link int // 0: nobody has looked
	ups  uint32
}

// Failure is a change that the kernel did not make: of an address, or of a virtual server.
type Failure struct {
	Service state.Name // the zero Name: no Service wants the object any more, or several do
	Object  string     // the virtual server, or "address 192.0.2.10 of the device eth0"
	Err     error      // says operation and cause
	Next    string
}

// New returns an engine that has done nothing yet. Without a device, it only deletes what an earlier process has added.
func New(device string, log *slog.Logger) *Engine {
	return &Engine{
		device: device, log: log, services: map[state.Name][]netip.Addr{}, wanted: map[netip.Addr]int{},
		held: map[netip.Addr]int{}, foreign: map[netip.Addr]bool{}, faults: map[netip.Addr]string{}, changed: map[netip.Addr]bool{}, announcing: map[netip.Addr]int{},
		host: host{list: List},
	}
}

// Set notes the addresses that a Service wants on the device. None: the Service wants none any more.
func (e *Engine) Set(service state.Name, list []netip.Addr) {
	before := e.services[service]
	if e.device == "" || slices.Equal(before, list) {
		return
	}
	for _, a := range list {
		e.wanted[a]++
		e.changed[a] = true
	}
	for _, a := range before {
		if e.wanted[a]--; e.wanted[a] == 0 {
			delete(e.wanted, a)
		}
		e.changed[a] = true
	}
	if e.services[service] = list; len(list) == 0 {
		delete(e.services, service)
	}
}

// Withdraw takes all addresses off the device while it is on.
func (e *Engine) Withdraw(on bool) {
	if e.withdrawn != on {
		e.withdrawn = on
		for a := range e.wanted {
			e.changed[a] = true
		}
	}
}

func (e *Engine) wants(a netip.Addr) bool { return e.wanted[a] > 0 && !e.withdrawn }

// Missing says that the device does not have an address, and why: the engine knows if there is no other reason. It returns nothing
// if the device has the address or is about to get it, and if nobody wants addresses.
func (e *Engine) Missing(a netip.Addr, why string) string {
	why = cmp.Or(e.gaveUp, why, e.faults[a])
	if why == "" || e.device == "" && e.gaveUp == "" || e.withdrawn {
		return ""
	}
	return fmt.Sprintf("this host does not have %s: %s", a, why)
}

// Changed returns the Services with addresses if Missing may say something else than before.
func (e *Engine) Changed() []state.Name {
	if !e.news {
		return nil
	}
	e.news = false
	return slices.Collect(maps.Keys(e.services))
}

// fault notes why an address could not be added; nil: it was.
func (e *Engine) fault(a netip.Addr, err error) {
	before := e.faults[a]
	if delete(e.faults, a); err != nil {
		e.faults[a] = err.Error()
	}
	e.news = e.news || e.faults[a] != before
}

// Remove deletes addresses that are not wanted any more.
func (e *Engine) Remove() (failures []Failure) {
	if !e.looked.IsZero() && len(e.unwanted()) == 0 {
		return nil
	}
	if err := e.look(time.Now()); err != nil {
		return []Failure{e.failure(netip.Addr{}, err)}
	}
	var done []netip.Addr
	for _, a := range e.unwanted() {
		if err := remove(a, e.held[a]); err != nil {
			failures = append(failures, e.failure(a, fmt.Errorf("delete it: %w", err)))
			continue
		}
		delete(e.held, a)
		delete(e.announcing, a)
		done = append(done, a)
	}
	e.tell("addresses removed", done)
	return failures
}

// unwanted lists, of the addresses that changed, those to be deleted.
func (e *Engine) unwanted() (list []netip.Addr) {
	for a := range e.changed {
		if _, held := e.held[a]; held && !e.wants(a) {
			list = append(list, a)
		}
	}
	return list
}

// missing lists, of the addresses that changed, those to be added. It forgets those with which nothing is to be done.
func (e *Engine) missing() (list []netip.Addr) {
	for a := range e.changed {
		_, held := e.held[a]
		switch wants := e.wants(a); {
		case held == wants || wants && e.foreign[a]:
			delete(e.changed, a)
			e.fault(a, nil)
		case wants:
			list = append(list, a)
		}
	}
	return list
}

// Add adds addresses that are wanted, and announces them.
func (e *Engine) Add() []Failure {
	if len(e.missing()) == 0 {
		return nil
	}
	if err := e.look(time.Now()); err != nil {
		return []Failure{e.failure(netip.Addr{}, err)}
	}
	missing := e.missing()
	if len(missing) == 0 {
		return nil
	}
	on, failure := find(e.device)
	var done []netip.Addr
	for _, a := range missing {
		err := failure
		if err == nil {
			err = e.add(&on, a)
		}
		e.fault(a, err)
		if errors.Is(err, errUnmarked) {
			return []Failure{e.giveUp(a, err)}
		}
		if err != nil {
			continue // it is a Problem of its Services, and tried again every second
		}
		done = append(done, a)
		e.held[a], e.announcing[a] = on.index, announcements
		delete(e.changed, a)
	}
	e.tell("addresses added", done)
	return e.announce()
}

var errUnmarked = errors.New("the kernel does not keep who added an address, so a restart would not know it; Linux 5.18 and newer do")

// add adds an address. The first time, it makes sure that the kernel keeps the mark.
func (e *Engine) add(on *device, a netip.Addr) error {
	if err := on.add(a); err != nil || e.host.keepsMarks {
		return err
	}
	list, err := e.host.list(unix.AF_UNSPEC)
	if err == nil && !slices.ContainsFunc(list, func(f Entry) bool { return f.Ours && f.Addr == a }) {
		err = errUnmarked
	}
	if err != nil {
		return errors.Join(err, remove(a, on.index))
	}
	e.host.keepsMarks = true
	return nil
}

// giveUp wants no address from now on.
func (e *Engine) giveUp(a netip.Addr, err error) Failure {
	f := e.failure(a, err)
	f.Next = "this process adds no addresses, and does not try again"
	e.device, e.gaveUp = "", err.Error()
	clear(e.wanted)
	clear(e.changed)
	return f
}

// Tick announces addresses again, looks at the host from time to time, and tries again what failed.
func (e *Engine) Tick(now time.Time) (failures []Failure) {
	if e.device != "" && now.Sub(e.looked) >= lookPeriod {
		if err := e.look(now); err != nil {
			return []Failure{e.failure(netip.Addr{}, err)}
		}
	}
	failures = append(e.announce(), e.Remove()...)
	return append(failures, e.Add()...)
}

// look reads the addresses of the host, and notes where they differ from what is wanted.
func (e *Engine) look(now time.Time) error {
	list, err := e.host.list(unix.AF_UNSPEC)
	if err != nil {
		return err
	}
	on, failure := find(e.device)
	if failure != nil {
		on.index = 0 // what is not wanted goes, on any device; the rest stays where it is
	}
	clear(e.held)
	clear(e.foreign)
	for _, f := range list {
		switch _, wanted := e.wanted[f.Addr]; {
		case f.Ours && (on.index == 0 || f.Link == on.index):
			e.held[f.Addr] = f.Link
			e.host.keepsMarks = true
		case f.Ours: // an earlier process had another device
			if err := remove(f.Addr, f.Link); err != nil {
				return fmt.Errorf("delete %s from another device: %w", f.Addr, err)
			}
		case wanted:
			e.foreign[f.Addr] = true
		}
	}
	maps.DeleteFunc(e.announcing, func(a netip.Addr, _ int) bool { _, held := e.held[a]; return !held }) // others may have it now
	for a := range e.held {
		e.changed[a] = true
	}
	for a := range e.wanted {
		e.changed[a] = true
	}
	e.looked = now
	if before := e.absent; e.device != "" {
		if e.absent = failure != nil; e.absent && !before {
			e.log.Warn("the device cannot have addresses; it gets them as soon as it can, and what other devices have stays there until then",
				"flag", "--manage-addresses", "error", failure, "stays", slices.SortedFunc(maps.Keys(e.held), netip.Addr.Compare))
		}
	}
	return nil
}

// announce announces each address that is still to be announced. While the link has no carrier, it waits.
func (e *Engine) announce() []Failure {
	if e.device == "" || len(e.held) == 0 {
		return nil
	}
	on, err := find(e.device)
	if err != nil {
		return nil // look has said so
	}
	// If the link got its carrier, all addresses are announced again: what was sent without one is lost, and a switch may have
	// forgotten where they are.
	now := carrier{on.index, on.ups}
	if e.host.carrier.link == now.link && e.host.carrier != now {
		for a := range e.held {
			e.announcing[a] = announcements
		}
	}
	e.host.carrier = now
	switch {
	case len(e.announcing) == 0:
		return nil
	case !on.announces:
		clear(e.announcing)
	case on.carrier:
		list := slices.SortedFunc(maps.Keys(e.announcing), netip.Addr.Compare)
		if err = on.announce(list); err != nil {
			break
		}
		for _, a := range list {
			if e.announcing[a]--; e.announcing[a] == 0 {
				delete(e.announcing, a)
			}
		}
	}
	if err == nil {
		return nil
	}
	f := e.failure(slices.MinFunc(slices.Collect(maps.Keys(e.announcing)), netip.Addr.Compare), err)
	if errors.Is(err, unix.EPERM) {
		f.Next = "hosts of the link may find the addresses late; announcements need the capability NET_RAW"
		clear(e.announcing)
	}
	return []Failure{f}
}

func (e *Engine) failure(a netip.Addr, err error) Failure {
	f := Failure{Object: "the addresses of the device " + e.device, Err: err, Next: "tried again every second"}
	if a.IsValid() {
		f.Object = fmt.Sprintf("address %s of the device %s", a, e.device)
	}
	return f
}

// tell logs what was done, in one line however much it was.
func (e *Engine) tell(what string, list []netip.Addr) {
	if len(list) == 0 {
		return
	}
	slices.SortFunc(list, netip.Addr.Compare)
	const most = 10
	e.log.Info(what, "device", e.device, "number", len(list), "addresses", list[:min(len(list), most)]) //nolint:sloglint // the texts are constants of this package
}

// CleanUp deletes all addresses that a process of Verdict has added.
func CleanUp(log *slog.Logger) error {
	e := New("", log)
	failures := e.Remove()
	if len(failures) > 0 {
		return fmt.Errorf("%s: %w; %d could not be deleted", failures[0].Object, failures[0].Err, len(failures))
	}
	return nil
}
