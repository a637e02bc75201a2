package explain

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/program"
)

// choice explains which endpoints can get the connection.
type choice struct {
	*path
	// told is what the daemon says about the endpoints of the Service.
	told    []socket.Endpoint
	toldErr error
	asked   bool
}

// leftOut names endpoints of the Service that do not take the connection, and why. The daemon knows the reasons; the
// kernel only knows which endpoints the policy Local leaves out.
func (x *choice) leftOut(p *inspect.Pick) {
	reasons, err := x.reasons(p)
	switch {
	case errors.Is(err, socket.ErrNotRunning):
		x.Notes = append(x.Notes, "no daemon answers, so it is not known which other endpoints there are: "+err.Error())
	case err != nil:
		x.Notes = append(x.Notes, "it is not known which other endpoints there are: "+err.Error())
	}
	if err != nil {
		for _, e := range p.LeftOut {
			reasons = append(reasons, e.String()+": on another node")
		}
	}
	if len(reasons) == 0 {
		return
	}
	x.add("left out", fmt.Sprintf("%s of the Service cannot get it.", plural(len(reasons), "endpoint")), upTo(reasons, maxListed)...)
}

// askDaemon asks the daemon about the endpoints of the Service, once. Names that the kernel has cut short are not asked
// about.
func (x *choice) askDaemon() ([]socket.Endpoint, error) {
	service, _, ok := strings.Cut(x.Service, ":")
	if ok && !strings.HasSuffix(x.Service, "...") && !x.asked {
		x.asked = true
		x.told, x.toldErr = x.LeftOut(service)
	}
	return x.told, x.toldErr
}

// known is what the daemon knows of an endpoint; nil: nothing.
func (x *choice) known(at netip.AddrPort) *socket.Endpoint {
	list, _ := x.askDaemon() // without the daemon, nothing is known
	for i := range list {
		if e := &list[i]; e.Port == x.Service && e.Addr == at.String() {
			return e
		}
	}
	return nil
}

// reasons lists endpoints with the reason why they are left out.
func (x *choice) reasons(p *inspect.Pick) (out []string, err error) {
	list, err := x.askDaemon()
	if err != nil {
		return nil, err
	}
	// Of a large hash table, only the chosen endpoint is known.
	listed := len(p.Candidates) == 0 || p.Candidates[0].Slots > 0
	for _, e := range list {
		at, err := netip.ParseAddrPort(e.Addr)
		why := e.OutOfCluster
		if p.Local {
			why = e.OutOfLocal
		}
		takes := slices.ContainsFunc(p.Candidates, func(c inspect.Candidate) bool { return c.Addr == at })
		switch {
		case err != nil || e.Port != x.Service || program.FamilyOf(at.Addr()) != x.q.family() || takes:
		case e.NoNew && e.Remark != "": // it says since when
			out = append(out, e.Addr+": "+e.Remark)
		case why == "" && !listed:
		case why == "":
			out = append(out, e.Addr+": the daemon wants it, and the kernel does not have it (yet)")
		default:
			out = append(out, e.Addr+": "+why)
		}
	}
	return out, nil
}
