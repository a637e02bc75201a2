package main

import (
	"log/slog"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// formerFrontends lists the frontends of the previous process that have UDP flows. It must run before the first pass,
// which replaces the tables. On an error it logs a warning and returns nothing: flows of frontends that are gone then
// stay until their clients stop sending.
func formerFrontends(engine *nft.Engine, log *slog.Logger) []conntrack.Frontend {
	list, err := conntrack.Former(conntrack.Options{}, func(f conntrack.Frontend) (bool, error) {
		family := nft.IPv4
		if f.Family == state.IPv6 {
			family = nft.IPv6
		}
		return engine.Inherited(family, unix.IPPROTO_UDP, f.Addr, f.Port)
	})
	if err != nil {
		log.Warn("cannot find UDP flows of Services that were deleted while no proxy ran; these flows stay until they time out", "error", err)
	}
	return list
}
