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
	sets := []program.SetID{program.Affinity}
	err = readEach(o, time.Minute, sets, func(c *kernel.Conn, f program.Family, set program.SetID) error {
		a := AffinityEntries{Family: f, Entries: -1}
		err := c.Ask(unix.NFT_MSG_GETSET, unix.NLM_F_ACK, f, func(w *nlmsg.Writer) {
			w.Text(unix.NFTA_SET_TABLE, program.TableName)
			w.Text(unix.NFTA_SET_NAME, set.Name())
		}, a.read)
		if err == nil {
			list = append(list, a)
		}
		return err
	})
	return list, err
}

func (s *AffinityEntries) read(a nlmsg.Attributes) {
	s.Size = int(a.Find(unix.NFTA_SET_DESC).Nested().Find(unix.NFTA_SET_DESC_SIZE).Uint32())
	if count := a.Find(kernel.SetCountAttribute); count.Value != nil {
		s.Entries = int(count.Uint32())
	}
}

// Traffic is what the kernel counted at one frontend. The packets to a frontend of IPVS are counted there.
type Traffic struct {
	Family   program.Family
	Set      program.SetID // which has the frontend
	Addr     netip.Addr    // not valid: a node port
	Protocol uint8
	Port     uint16
	Name     string // of the service port
	// Packets are first packets of connections, or packets that were refused.
	Packets uint64
}

// ReadTraffic reads all frontends with their counters. It gives up after the time. It opens its own socket, so any goroutine
// may call it.
func ReadTraffic(o kernel.Options, within time.Duration) (list []Traffic, err error) {
	var sets []program.SetID
	for set := range program.SetCount {
		if set.Says().Counted() {
			sets = append(sets, set)
		}
	}
	err = readEach(o, within, sets, func(c *kernel.Conn, f program.Family, set program.SetID) error {
		t := newTable(c, f)
		return c.DumpElements(f, set.Name(), func(e kernel.Found) {
			if p, ok := t.place(e.Key, set.HasNodePorts()); ok {
				list = append(list, Traffic{f, set, p.addr, p.protocol, p.port, e.Comment, e.Packets})
			}
		})
	})
	return list, err
}

// readEach reads sets of both families over a socket of its own. A set that does not exist is empty. It gives up after the
// time.
func readEach(
	o kernel.Options, within time.Duration, sets []program.SetID, read func(*kernel.Conn, program.Family, program.SetID) error,
) error {
	return kernel.With(o, func(c *kernel.Conn) error {
		c.GiveUpAfter(within)
		for _, f := range program.Families() {
			for _, set := range sets {
				if err := read(c, f, set); err != nil && !errors.Is(err, unix.ENOENT) {
					return fmt.Errorf("read %s %s %s: %w", f, program.TableName, set, err)
				}
			}
		}
		return nil
	})
}

// Suspect is an endpoint that the kernel noticed within the latest seconds.
type Suspect struct {
	Endpoint netip.AddrPort
	// Refusing: the endpoint answered with resets. Otherwise it did not answer.
	Refusing bool
	// Packets counts its repeated packets, or its resets, since the element was made.
	Packets uint64
}

// ReadSuspects returns the endpoints that the kernel noticed. Sets that do not exist are empty. Refusing is whether to read
// the set of refusing endpoints, too.
func ReadSuspects(c *kernel.Conn, families []program.Family, refusing bool) (list []Suspect, err error) {
	sets := []program.SetID{program.Unanswered, program.Refusing}
	if !refusing {
		sets = sets[:1]
	}
	for _, f := range families {
		for _, set := range sets {
			err := c.DumpElements(f, set.Name(), func(e kernel.Found) {
				if at, ok := program.EndpointOf(f, e.Key); ok {
					list = append(list, Suspect{Endpoint: at, Packets: e.Packets, Refusing: set == program.Refusing})
				}
			})
			if err != nil && !errors.Is(err, unix.ENOENT) {
				return nil, fmt.Errorf("read set %s of table %s %s: %w", set.Name(), f, program.TableName, err)
			}
		}
	}
	return list, nil
}
