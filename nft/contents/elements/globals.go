package elements

import (
	"net/netip"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/ledger"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/serviceport"
)

// settings are what belongs to no service port.
type settings struct {
	account *ledger.Account
	wanted  contents.Globals // the rules are always written for these
	given   program.Program  // what follows from Options
	devices []string         // those of the flowtable
}

// program is the program under the wanted globals.
func (s *settings) program(f program.Family, lengths program.LengthGroups) program.Program {
	p := s.wanted.Program(f)
	p.AffinityShare, p.Circles, p.Lengths = s.given.AffinityShare, s.given.Circles, lengths
	return p
}

// records makes the elements. It does not look at the globals that rules depend on: if those change, the engine compares the
// whole table.
func (s *settings) records(b *ledger.Builder, f program.Family) {
	b.Reset()
	for _, a := range s.wanted.NodePortAddresses {
		if program.FamilyOf(a) == f {
			b.Begin(program.NodePortAddresses)
			b.Addr(a)
			b.End()
		}
	}
	for _, name := range s.devices {
		b.Begin(program.FastPathDevices)
		b.Device(name)
		b.End()
	}
	rangeRecords(b, program.ServiceCIDRs, serviceport.WithoutNested(s.wanted.ServiceCIDRs, f))
	rangeRecords(b, program.PodCIDRs, serviceport.WithoutNested(s.wanted.PodCIDRs, f))
	rangeRecords(b, program.NodePodCIDRs, serviceport.WithoutNested(s.wanted.NodePodCIDRs, f))
}

// rangeRecords makes the two elements of each range: its first address, and the first address after it. A range that
// includes the last address of the family has only the first one.
func rangeRecords(b *ledger.Builder, id program.SetID, list []netip.Prefix) {
	for _, p := range list {
		b.Begin(id)
		b.Addr(p.Addr())
		b.End()
		if behind := program.LastAddr(p).Next(); behind.IsValid() {
			b.Begin(id)
			b.Addr(behind)
			b.EndOfRange()
		}
	}
}
