package conntrack

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Unanswered are the TCP connections from some frontends to one endpoint that never had an answer. They may be deleted:
// neither end has a connection yet, and the next packet of the client begins another one, to an endpoint of that time.
type Unanswered struct {
	Endpoint  netip.AddrPort
	Frontends []Frontend
}

// DeleteUnanswered deletes such connections, and returns how many there were. Node ports answer at nodePorts. It reads
// the whole table once for each family.
//
// IPVS has its own entry for a connection that it carries, and sends the client's next packet elsewhere when the endpoint
// has weight 0 (net.ipv4.vs.expire_nodest_conn). While connection tracking has the connection as well, IPVS drops that
// packet first, and a client that repeats its packets after 1, 2 and 4 seconds loses 4 seconds.
func DeleteUnanswered(o Options, list []Unanswered, nodePorts []netip.Addr) (deleted int, err error) {
	k, err := dial(o.NetNS)
	if err != nil {
		return 0, err
	}
	for _, family := range []state.Family{state.IPv4, state.IPv6} {
		if wanted := unansweredOf(list, nodePorts, family); len(wanted) > 0 {
			n, removeErr := k.removeUnanswered(family, wanted)
			deleted += n
			err = errors.Join(err, removeErr)
		}
	}
	if err != nil {
		err = fmt.Errorf("delete connections without an answer to %d endpoints: %w; their clients go on trying these endpoints "+
			"until they give up", len(list), err)
	}
	return deleted, errors.Join(err, k.close())
}

// way is from where the client sends to where the packets go.
type way struct{ to, endpoint netip.AddrPort }

// unansweredOf lists the ways whose connections are to be deleted.
func unansweredOf(list []Unanswered, nodePorts []netip.Addr, family state.Family) map[way]bool {
	wanted := map[way]bool{}
	for _, u := range list {
		if state.FamilyOf(u.Endpoint.Addr()) != family {
			continue
		}
		for _, f := range u.Frontends {
			at := []netip.Addr{f.Addr}
			if !f.Addr.IsValid() {
				at = nodePorts
			}
			for _, a := range at {
				wanted[way{to: netip.AddrPortFrom(a, f.Port), endpoint: u.Endpoint}] = true
			}
		}
	}
	return wanted
}

// unanswered asks for the flows of a family that had no reply.
func (r *request) unanswered(family state.Family) {
	message := r.begin(msgGet, unix.NLM_F_DUMP, family)
	r.Uint32(attrStatus, 0)
	r.Uint32(attrStatusMask, statusSeenReply)
	r.End(message)
}

func (k *kernel) removeUnanswered(family state.Family, wanted map[way]bool) (int, error) {
	var keys [][]byte
	var e entry
	err := k.read(func(r *request) { r.unanswered(family) }, func(a nlmsg.Attributes) {
		if e.parse(a) && e.tcp && !e.answered && wanted[way{to: e.Dst, endpoint: e.Reply}] {
			keys = append(keys, append([]byte(nil), e.key...))
		}
	})
	if errors.Is(err, errInterrupted) {
		err = nil // what was found is deleted; a later ejection finds the rest
	}
	if len(keys) == 0 {
		return 0, err
	}
	n, removeErr := k.remove(family, keys)
	return n, errors.Join(err, removeErr)
}
