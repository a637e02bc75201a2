package dryrun

import (
	"math"
	"net/netip"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/ipvsctl/wire"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/nft/program"
)

// The engines decide what to write. These kernels take it and do nothing. So an engine that has read what a kernel has
// says what is pending, and one that has read nothing says what there would be.

// noTables is nf_tables without our tables. An engine over it asks for nothing else.
type noTables struct{ kernel.NFTables }

func (noTables) SurveyTable(program.Family) (kernel.Existing, error) { return kernel.Existing{}, nil }
func (noTables) Survey(program.Family) (kernel.Existing, error)      { return kernel.Existing{}, nil }

// unwritten is nf_tables that takes each transaction and does nothing.
type unwritten struct {
	kernel.NFTables
	note  func(*program.Transaction)
	noted *program.Transaction // the latest one; a large one comes in several batches
}

func (u *unwritten) Send(b *kernel.Batch) (kernel.Outcome, *nlmsg.Ack, error) {
	if b.Tx != u.noted {
		u.noted = b.Tx
		u.note(b.Tx)
	}
	return kernel.Applied, nil, nil
}

func (*unwritten) Capacity() int { return math.MaxInt }

// unchanged is IPVS that takes each change and does nothing.
type unchanged struct{ ipvsctl.Kernel }

func (unchanged) Change(wire.Command, ipvsctl.Key, wire.Header, ipvsctl.RealServer) error { return nil }
func (unchanged) AddAddress(netip.Addr) error                                             { return nil }
func (unchanged) DeleteAddress(netip.Addr) error                                          { return nil }

// noServers is IPVS that had nothing when the engine opened it. Later, what the engine asks about is what it made.
type noServers struct{ ipvsctl.Kernel }

func (noServers) ListAddresses() ([]netip.Addr, error) { return nil, nil }
func (noServers) Servers() ([]wire.Server, error)      { return nil, nil }
func (noServers) Server(k ipvsctl.Key) (wire.Server, bool, error) {
	return wire.Server{Key: k, Ours: true}, true, nil
}

// recorded writes down what the IPVS engine did.
type recorded struct {
	*ipvsctl.Engine
	journal *strings.Builder
}

func (r recorded) Add(now time.Time) (ipvsctl.Result, error) { return r.note(r.Engine.Add(now)) }

func (r recorded) Remove(now time.Time) (ipvsctl.Result, error) { return r.note(r.Engine.Remove(now)) }

func (r recorded) note(done ipvsctl.Result, err error) (ipvsctl.Result, error) {
	r.journal.WriteString(done.Operations.String())
	return done, err
}
