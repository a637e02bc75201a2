package inspect

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// Suspect is an endpoint that the kernel noticed within the latest seconds.
type Suspect struct {
	Endpoint netip.AddrPort
	// Refusing: the endpoint answered with resets. Otherwise it did not answer.
	Refusing bool
	// Packets counts its repeated packets, or its resets, since the element was made.
	Packets uint64
}

// SuspectReader reads the endpoints that the kernel noticed. It has a socket of its own: a goroutine may read while
// another one uses the engine.
type SuspectReader struct {
	conn     *kernel.Conn
	families []program.Family
}

// OpenSuspects connects to the kernel.
func OpenSuspects(o kernel.Options) (*SuspectReader, error) {
	c, err := kernel.Dial(o.NetNS)
	if err != nil {
		return nil, err
	}
	return &SuspectReader{conn: c, families: o.Served()}, nil
}

// Close closes the socket.
func (r *SuspectReader) Close() error { return r.conn.Close() }

// Read returns the endpoints that the sets have now. Sets that do not exist are empty. Refusing is whether to read
// the set of refusing endpoints, too.
func (r *SuspectReader) Read(refusing bool) (list []Suspect, err error) {
	for _, f := range r.families {
		if list, err = r.read(list, f, program.Unanswered.Name(), false); err == nil && refusing {
			list, err = r.read(list, f, program.Refusing.Name(), true)
		}
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (r *SuspectReader) read(list []Suspect, f program.Family, set string, refusing bool) ([]Suspect, error) {
	err := r.conn.DumpElements(f, set, func(e kernel.Found) {
		if at, ok := program.EndpointOf(f, e.Key); ok {
			list = append(list, Suspect{Endpoint: at, Packets: e.Packets, Refusing: refusing})
		}
	})
	if errors.Is(err, unix.ENOENT) {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("read set %s of table %s %s: %w", set, f, program.TableName, err)
	}
	return list, err
}
