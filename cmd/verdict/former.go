package main

import (
	"log/slog"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// formerFrontends lists frontends of the process before that have UDP flows, before the first pass replaces its tables.
// Not to know them costs nobody a connection: flows of frontends that are gone end when their clients do.
func formerFrontends(engine *nft.Engine, log *slog.Logger) []conntrack.Frontend {
	list, err := conntrack.Former(conntrack.Options{}, func(f conntrack.Frontend) (bool, error) {
		family := nft.IPv4
		if f.Family == state.IPv6 {
			family = nft.IPv6
		}
		return engine.Inherited(family, unix.IPPROTO_UDP, f.Addr, f.Port)
	})
	if err != nil {
		log.Warn("cannot tell which UDP flows entered through Services that went while no proxy was here; they are left", "error", err)
	}
	return list
}
