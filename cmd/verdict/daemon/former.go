package daemon

import (
	"log/slog"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// formerFrontends lists the frontends of the previous process that have UDP flows. It must run before the first pass,
// which replaces the tables. On an error it logs a warning and returns nothing: flows of frontends that are gone then
// stay until their clients stop sending.
func formerFrontends(engine *nft.Engine, log *slog.Logger) []conntrack.Frontend {
	list, err := conntrack.Former(conntrack.Options{}, func(f conntrack.Frontend) (bool, error) {
		family := program.IPv4
		if f.Family == state.IPv6 {
			family = program.IPv6
		}
		return engine.Inherited(family, unix.IPPROTO_UDP, f.Addr, f.Port)
	})
	if err != nil {
		log.Warn("cannot find UDP flows of Services that were deleted while no proxy ran; these flows stay until they time out", "error", err)
	}
	return list
}

// adoptedFrontends lists the UDP frontends whose flows the virtual servers of an earlier proxy carry on. A virtual server
// at an address of this node is that of a node port, which has no address of its own.
func adoptedFrontends(engine *ipvsctl.Engine) (list []conntrack.Frontend) {
	if engine == nil {
		return nil
	}
	for _, key := range engine.Adopted() {
		if key.Protocol == ipvsctl.UDP {
			f := conntrack.Frontend{Addr: key.Addr, Port: key.Port, Family: state.FamilyOf(key.Addr)}
			list = append(list, f, conntrack.Frontend{Port: f.Port, Family: f.Family})
		}
	}
	return list
}
