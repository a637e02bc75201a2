package flags

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/spf13/pflag"

	"github.com/verdict-proxy/verdict/config"
)

// aliases are flags of kube-proxy that set a flag of Verdict with another name.
var aliases = []struct {
	name, flag string
	// value returns the value for Verdict's flag from the one that was given and the present one. It returns false if the
	// flag has no effect.
	value func(given, present string, mode config.ProxyMode) (string, bool)
}{
	{"logging-format", "log-format", func(given, _ string, _ config.ProxyMode) (string, bool) { return given, true }},
	{"iptables-min-sync-period", "min-sync-period", func(given, _ string, mode config.ProxyMode) (string, bool) {
		return given, mode != config.ProxyModeIPVS
	}},
	{"ipvs-min-sync-period", "min-sync-period", func(given, _ string, mode config.ProxyMode) (string, bool) {
		return given, mode == config.ProxyModeIPVS
	}},
	{"healthz-port", "healthz-bind-address", portOf},
	{"metrics-port", "metrics-bind-address", portOf},
}

// portOf adds a port to an address without one. Port 0 turns the listener off.
func portOf(given, present string, _ config.ProxyMode) (string, bool) {
	if given == "0" {
		return "", true
	}
	_, err := netip.ParseAddr(present)
	return net.JoinHostPort(present, given), err == nil
}

func bindAliases(fs *pflag.FlagSet) {
	for _, a := range aliases {
		fs.String(a.name, "", "sets --"+a.flag)
		fs.Lookup(a.name).Hidden = true
	}
}

// applyAliases sets the flags that aliases on the command line mean. A flag that was given by its own name stays, but an
// alias may complete it.
func (c *CommandLine) applyAliases() error {
	for _, a := range aliases {
		if !c.flags.Changed(a.name) {
			continue
		}
		target := c.flags.Lookup(a.flag)
		value, ok := a.value(valueOf(c.flags.Lookup(a.name)), valueOf(target), c.mode())
		if !ok {
			continue
		}
		if err := c.flags.Set(a.flag, value); err != nil {
			return fmt.Errorf("--%s: %w", a.name, err)
		}
	}
	return nil
}
