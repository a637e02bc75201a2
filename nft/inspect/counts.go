package inspect

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/nft/program"
)

// AffinityEntries is how many entries an affinity map has, and how many it can have. Entries is -1 if the kernel does
// not count the elements of its sets; Linux 6.16 and newer do.
type AffinityEntries struct {
	Family        program.Family
	Entries, Size int
}

// ReadAffinity asks the kernel for the affinity map of each family that has a table. It does not read the entries. It
// opens its own socket, so any goroutine may call it.
func ReadAffinity(o kernel.Options) (list []AffinityEntries, err error) {
	c, err := kernel.Dial(o.NetNS)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	for _, f := range program.Families() {
		a := AffinityEntries{Family: f, Entries: -1}
		err := c.Ask(unix.NFT_MSG_GETSET, unix.NLM_F_ACK, f, func(w *nlmsg.Writer) {
			w.Text(unix.NFTA_SET_TABLE, program.TableName)
			w.Text(unix.NFTA_SET_NAME, program.Affinity.Name())
		}, a.read)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return list, fmt.Errorf("read %s %s %s: %w", f, program.TableName, program.Affinity.Name(), err)
		}
		list = append(list, a)
	}
	return list, nil
}

func (s *AffinityEntries) read(a nlmsg.Attributes) {
	for a.Next() {
		switch a.Kind {
		case unix.NFTA_SET_DESC:
			for d := a.Nested(); d.Next(); {
				if d.Kind == unix.NFTA_SET_DESC_SIZE {
					s.Size = int(d.Uint32())
				}
			}
		case kernel.SetCountAttribute:
			s.Entries = int(a.Uint32())
		}
	}
}

// Traffic is what the kernel counted at one frontend.
type Traffic struct {
	Family program.Family
	Set    string // which map or set has the frontend: services, nodeports, or one of those for refusals
	Key    string // of the frontend; only good for comparisons
	Name   string // of the service port
	// Packets are first packets of connections, or packets that were refused.
	Packets uint64
}

// ReadTraffic reads the counters of all frontends. It gives up after the time. It opens its own socket, so any goroutine
// may call it.
func ReadTraffic(o kernel.Options, within time.Duration) (list []Traffic, err error) {
	err = readEach(o, within, func(c *kernel.Conn, f program.Family) error {
		for _, d := range (program.Program{Family: f}).Sets() {
			if !d.Counter {
				continue
			}
			err := c.DumpElements(f, d.Name, func(e kernel.Found) {
				list = append(list, Traffic{Family: f, Set: d.Name, Key: string(e.Key), Name: e.Comment, Packets: e.Packets})
			})
			if err != nil && !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("read the counters of %s %s %s: %w", f, program.TableName, d.Name, err)
			}
		}
		return nil
	})
	return list, err
}

// readEach reads the tables of both families over a socket of its own. It gives up after the time.
func readEach(o kernel.Options, within time.Duration, read func(*kernel.Conn, program.Family) error) (err error) {
	c, err := kernel.Dial(o.NetNS)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	c.GiveUpAfter(within)
	for _, f := range program.Families() {
		if err := read(c, f); err != nil {
			return err
		}
	}
	return nil
}

// IPVSFrontend is a frontend that IPVS serves.
type IPVSFrontend struct {
	Family   program.Family
	Protocol uint8
	Addr     netip.Addr // not valid: a node port
	Port     uint16
	Name     string // of the service port
}

// ReadIPVSFrontends lists the frontends that IPVS serves, without an order. It gives up after the time. It opens its own
// socket, so any goroutine may call it.
func ReadIPVSFrontends(o kernel.Options, within time.Duration) (list []IPVSFrontend, err error) {
	err = readEach(o, within, func(c *kernel.Conn, f program.Family) error {
		l := newLister(c, f, kernel.Existing{}, nil)
		for _, set := range []string{program.IPVSFrontends.Name(), program.IPVSNodePorts.Name()} {
			err := c.DumpElements(f, set, func(e kernel.Found) {
				if k, ok := l.frontendKey(e.Key, set == program.IPVSNodePorts.Name()); ok {
					list = append(list, IPVSFrontend{Family: f, Protocol: k.protocol, Addr: k.addr, Port: k.port, Name: e.Comment})
				}
			})
			if err != nil && !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("read %s %s %s: %w", f, program.TableName, set, err)
			}
		}
		return nil
	})
	return list, err
}

// HasFrontends reports whether the elements of a set are frontends whose connections or refused packets are counted.
func HasFrontends(set string) bool {
	switch set {
	case program.Services.Name(), program.NodePorts.Name(), program.RangeServices.Name(), program.IPVSFrontends.Name(), program.IPVSNodePorts.Name():
		return true
	}
	return RefusalOf(set) != program.NoRefusal
}

// RefusalOf returns what happens to packets to the frontends of a set.
func RefusalOf(set string) program.Refusal {
	switch set {
	case program.NoEndpoints.Name(), program.NoEndpointsNodePorts.Name(), program.RangeNoEndpoints.Name():
		return program.Reject
	case program.NoLocalEndpoints.Name(), program.NoLocalEndpointsNodePorts.Name(), program.RangeNoLocalEndpoints.Name():
		return program.Drop
	}
	return program.NoRefusal
}
