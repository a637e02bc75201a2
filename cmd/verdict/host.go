package main

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/verdict-proxy/verdict/config"
)

// prepareHost sets what the kernel needs for the settings, and says what it changed.
func prepareHost(s *config.Settings, log *slog.Logger) error {
	if !wantsLoopback(s.NodePortAddresses) {
		return nil
	}
	// A reply to 127.0.0.1 arrives on the pod's interface; without this the kernel drops it as a martian. Packets from
	// outside to 127.0.0.0/8 are dropped by the ruleset then.
	const sysctl = "/proc/sys/net/ipv4/conf/all/route_localnet"
	was, err := os.ReadFile(sysctl)
	if err == nil && strings.TrimSpace(string(was)) == "1" {
		return nil
	}
	if err := os.WriteFile(sysctl, []byte("1"), 0); err != nil {
		return fmt.Errorf("node ports on loopback addresses (--nodeport-addresses) need net.ipv4.conf.all.route_localnet=1: %w", err)
	}
	log.Info("set sysctl", "name", "net.ipv4.conf.all.route_localnet", "value", 1, "reason", "node ports on 127.0.0.1")
	return nil
}

func wantsLoopback(nodePortAddresses []string) bool {
	return slices.ContainsFunc(nodePortAddresses, func(word string) bool {
		p, err := netip.ParsePrefix(word)
		return word == config.NodePortLocalhost || err == nil && p.Addr().Is4() && p.Addr().IsLoopback()
	})
}
