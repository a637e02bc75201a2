package main

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// prepareHost sets the sysctls that the settings need, and logs what it changed.
func prepareHost(s *config.Settings, log *slog.Logger) error {
	if !wantsLoopback(s.NodePortAddresses) {
		return nil
	}
	// A reply to 127.0.0.1 arrives on the interface of the pod. Without this sysctl, the kernel drops it as a martian
	// packet. The ruleset drops packets to 127.0.0.0/8 that come from outside.
	const sysctl = "/proc/sys/net/ipv4/conf/all/route_localnet"
	was, err := os.ReadFile(sysctl)
	if err == nil && strings.TrimSpace(string(was)) == "1" {
		return nil
	}
	if err := os.WriteFile(sysctl, []byte("1"), 0); err != nil {
		return fmt.Errorf("set sysctl net.ipv4.conf.all.route_localnet=1, which node ports on loopback addresses "+
			"(--nodeport-addresses) need: %w; run \"verdict run --init-only\" as root first, which sets it", err)
	}
	log.Info("kernel setting changed", "name", "net.ipv4.conf.all.route_localnet", "from", strings.TrimSpace(string(was)), "to", 1,
		"reason", "node ports on 127.0.0.1")
	return nil
}

func wantsLoopback(nodePortAddresses []string) bool {
	return slices.ContainsFunc(nodePortAddresses, func(word string) bool {
		p, err := netip.ParsePrefix(word)
		return word == config.NodePortLocalhost || err == nil && p.Addr().Is4() && p.Addr().IsLoopback()
	})
}

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
