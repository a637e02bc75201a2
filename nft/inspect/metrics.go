package inspect

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/serviceport"
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
	err = kernel.With(o, func(c *kernel.Conn) error {
		c.Deadline = time.Now().Add(time.Minute)
		for _, f := range program.Families() {
			a := AffinityEntries{Family: f, Entries: -1}
			switch err := askSet(c, f, program.Affinity, a.read); {
			case err == nil:
				list = append(list, a)
			case !errors.Is(err, unix.ENOENT):
				return fmt.Errorf("read %s %s %s: %w", f, program.TableName, program.Affinity, err)
			}
		}
		return nil
	})
	return list, err
}

// askSet asks for a set without its elements.
func askSet(c *kernel.Conn, f program.Family, set program.SetID, read func(nlmsg.Attributes)) error {
	return c.Ask(unix.NFT_MSG_GETSET, unix.NLM_F_ACK, f, func(w *nlmsg.Writer) {
		w.Text(unix.NFTA_SET_TABLE, program.TableName)
		w.Text(unix.NFTA_SET_NAME, set.Name())
	}, read)
}

func (s *AffinityEntries) read(a nlmsg.Attributes) {
	s.Size = int(a.Find(unix.NFTA_SET_DESC).Nested().Find(unix.NFTA_SET_DESC_SIZE).Uint32())
	if count := a.Find(kernel.SetCountAttribute); count.Value != nil {
		s.Entries = int(count.Uint32())
	}
}

// ReadSuspects returns the endpoints that the kernel noticed within the latest seconds. Sets that do not exist are empty. Refusing is whether to read
// the set of refusing endpoints, too.
func ReadSuspects(c *kernel.Conn, families []program.Family, refusing bool) (list []serviceport.Suspicion, err error) {
	sets := []program.SetID{program.Unanswered, program.Refusing}
	if !refusing {
		sets = sets[:1]
	}
	for _, f := range families {
		t := table{kernel: c, family: f}
		for _, set := range sets {
			if isEmpty(c, f, set) {
				continue
			}
			err := t.each(set, func(e kernel.Found) {
				if at, ok := program.EndpointOf(f, e.Key); ok {
					list = append(list, serviceport.Suspicion{Endpoint: at, Packets: e.Packets, Refusing: set == program.Refusing})
				}
			})
			if err != nil {
				return nil, fmt.Errorf("read table %s %s: %w", f, program.TableName, err)
			}
		}
	}
	return list, nil
}

// isEmpty reports whether the kernel knows that a set is empty. To list it, the kernel would walk over as many buckets as the set
// can have elements.
func isEmpty(c *kernel.Conn, f program.Family, set program.SetID) bool {
	a := AffinityEntries{Entries: -1}
	err := askSet(c, f, set, a.read)
	return err == nil && a.Entries == 0 // a list tells what is wrong
}
