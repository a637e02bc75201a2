package proxier

import (
	"fmt"
	"math"
	"slices"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Schedulers carry the names that IPVS gives them (ipvsadm(8)); random is Verdict's own and the default.
const schedulerRandom = "random"

// Scheduling decides which engine serves a service port and how endpoints are picked.
type Scheduling struct {
	Backend config.Backend
	// Standard is the scheduler of Services that name none, with backend ipvs.
	Standard string
	// Available are the schedulers of IPVS that the kernel has; none when IPVS is not used.
	Available []string
	// Unavailable says why IPVS is not used; for people.
	Unavailable string
}

// method is how a service port is balanced.
type method struct {
	ipvs      bool
	scheduler string // of IPVS
	flags     ipvsctl.Flags
	nft       nft.Method // for what nft serves of it, all or a part
	heaviest  bool       // nft serves only the endpoints of the greatest weight
	problem   string     // what of the request is not honored
}

// choose finds the method for a request of a Service.
func (s *Scheduling) choose(asked state.Balancing) method {
	if asked == (state.Balancing{}) && s.Backend != config.BackendIPVS {
		return method{} // nearly all Services
	}
	m := method{scheduler: asked.Scheduler}
	if m.scheduler != "" && m.scheduler != schedulerRandom && !slices.Contains(ipvsctl.Schedulers(), m.scheduler) {
		m.problem = fmt.Sprintf("unknown scheduler %q; the default is used", m.scheduler)
		m.scheduler = ""
	}
	if m.scheduler == "" && s.Backend == config.BackendIPVS && len(s.Available) > 0 {
		m.scheduler = s.Standard // which may take flags
	}
	s.parseFlags(&m, asked.Flags)
	s.chooseEngine(&m)
	if !m.ipvs {
		m.approximate(s.Unavailable)
	}
	m.nft, m.heaviest = nearest(m.scheduler)
	return m
}

func (s *Scheduling) parseFlags(m *method, list string) {
	if list == "" {
		return
	}
	flags, err := ipvsctl.ParseFlags(m.scheduler, list)
	if err != nil {
		m.note("scheduler flags ignored: " + err.Error())
		return
	}
	m.flags = flags
}

// note adds to what is not honored.
func (m *method) note(problem string) {
	if m.problem != "" {
		problem = m.problem + "; " + problem
	}
	m.problem = problem
}

// chooseEngine says whether IPVS serves it, and with which scheduler.
func (s *Scheduling) chooseEngine(m *method) {
	if len(s.Available) == 0 {
		return
	}
	everything := s.Backend == config.BackendIPVS
	switch {
	case everything && m.scheduler == schedulerRandom:
		m.note(fmt.Sprintf("IPVS has no scheduler random; %s is used", s.Standard))
		m.scheduler = s.Standard
	case !everything && !m.needsIPVS():
		return
	}
	if !slices.Contains(s.Available, m.scheduler) {
		m.note(fmt.Sprintf("the kernel has no scheduler %s (module %s)", m.scheduler, ipvsctl.Module(m.scheduler)))
		if !everything {
			return
		}
		m.note(s.Standard + " is used")
		m.scheduler, m.flags = s.Standard, 0
	}
	m.ipvs = true
}

// needsIPVS is what the nft program cannot do, or not exactly: "numgen inc" counts for all pools of a class together, so
// that rr and wrr are even there but not in strict turn.
func (m *method) needsIPVS() bool {
	switch m.scheduler {
	case "", schedulerRandom:
		return false
	case "sh", "mh":
		return m.flags&ipvsctl.HashPort != 0
	}
	return true
}

// approximate says what nft does instead of what IPVS would do.
func (m *method) approximate(why string) {
	if why != "" {
		why = " (" + why + ")"
	}
	switch {
	case m.flags&ipvsctl.HashPort != 0:
		m.note(fmt.Sprintf("the flag %s-port needs IPVS%s; clients are told apart by address only", m.scheduler, why))
	case m.scheduler == "rr" || m.scheduler == "wrr":
	case m.scheduler == "fo":
		m.note(fmt.Sprintf("scheduler fo needs IPVS%s; the endpoints of the greatest weight are picked at random", why))
	case m.needsIPVS():
		m.note(fmt.Sprintf("scheduler %s needs IPVS%s; endpoints are picked at random, by weight", m.scheduler, why))
	}
}

// nearest is the scheduler of nft that comes next to one of IPVS.
func nearest(scheduler string) (m nft.Method, heaviest bool) {
	switch scheduler {
	case "sh", "mh":
		return nft.SourceHash, false
	case "rr", "wrr":
		return nft.InTurn, false
	case "fo":
		return nft.Random, true
	}
	return nft.Random, false
}

// heaviest lists the endpoints of the greatest weight.
func heaviest(list []plan.Endpoint) []plan.Endpoint {
	var greatest uint16
	for _, e := range list {
		greatest = max(greatest, e.Weight)
	}
	return slices.DeleteFunc(slices.Clone(list), func(e plan.Endpoint) bool { return e.Weight < greatest })
}

// maxShares bounds the slots that weights may cost a pool, as a multiple of its endpoints (and at least slotFloor), as far as
// a pool can have so many (poolSlots).
const (
	maxShares = 16
	slotFloor = 256
	poolSlots = 65536
)

// slots turns weights into numbers of slots in the same proportion, as small as they can be. Weights whose proportion
// would need too many slots are rounded; every endpoint keeps at least one.
func slots(list []plan.Endpoint) []uint16 {
	divisor, total := 0, 0
	for _, e := range list {
		divisor = gcd(divisor, int(e.Weight))
		total += int(e.Weight)
	}
	out := make([]uint16, len(list))
	// Rounding up may cost one slot more for each endpoint.
	limit := max(0, min(max(slotFloor, maxShares*len(list)), poolSlots-len(list)))
	for i, e := range list {
		share := float64(e.Weight) / float64(max(divisor, 1))
		if total/max(divisor, 1) > limit {
			share = float64(e.Weight) * float64(limit) / float64(total)
		}
		out[i] = uint16(max(1, math.Round(share)))
	}
	return out
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
