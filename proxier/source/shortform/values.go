package shortform

import (
	"encoding"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// value is a type that has a text of its own. Its error says what was found and what was expected.
type value interface {
	encoding.TextUnmarshaler
	schema() map[string]any
}

func text(pattern string, examples ...any) map[string]any {
	s := map[string]any{"type": "string", "examples": examples}
	if pattern != "" {
		s["pattern"] = pattern
	}
	return s
}

// Label is the name of an object or of a port.
type Label string

const labelPattern = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *Label) UnmarshalText(b []byte) error {
	if !regexp.MustCompile(labelPattern).Match(b) {
		return fmt.Errorf("%s is not a name: expected at most 63 of a to z, 0 to 9 and -, which is not first or last", state.Quote(string(b)))
	}
	*l = Label(b)
	return nil
}

func (*Label) schema() map[string]any { return text(labelPattern, "web") }

// Address is the address of a frontend or an endpoint.
type Address struct{ netip.Addr }

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Address) UnmarshalText(b []byte) (err error) {
	a.Addr, err = netip.ParseAddr(string(b))
	if err != nil || a.Is4In6() || a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.isThisNetwork() {
		return fmt.Errorf("%s is not the address of a host: expected IPv4 or IPv6, without a zone, not loopback and not link-local", state.Quote(string(b)))
	}
	return nil
}

// isThisNetwork reports whether the address is in 0.0.0.0/8, or the limited broadcast address.
func (a *Address) isThisNetwork() bool {
	return a.Is4() && (a.As4()[0] == 0 || a.As4() == [4]byte{255, 255, 255, 255})
}

func (*Address) schema() map[string]any { return text("", "192.0.2.10", "2001:db8::10") }

// Prefix is a range of addresses.
type Prefix struct{ netip.Prefix }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Prefix) UnmarshalText(b []byte) (err error) {
	p.Prefix, err = netip.ParsePrefix(string(b))
	if err != nil || p.Masked() != p.Prefix {
		return fmt.Errorf("%s is not a range: expected a CIDR such as 10.0.0.0/8, without bits beyond its length; one address is 192.0.2.1/32", state.Quote(string(b)))
	}
	return nil
}

func (*Prefix) schema() map[string]any { return text("/[0-9]+$", "10.0.0.0/8", "2001:db8::/32") }

// Ports is a port, or a range of ports such as 8000-8999. Last is 0 if it is no range.
type Ports struct{ First, Last uint16 }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Ports) UnmarshalText(b []byte) (err error) {
	p.First, p.Last, err = state.ParsePorts(string(b))
	return err
}

func (p Ports) String() string { return state.PortsText(p.First, p.Last) }

// MarshalYAML implements yaml.Marshaler.
func (p Ports) MarshalYAML() (any, error) {
	if p.Last != 0 {
		return p.String(), nil
	}
	return int(p.First), nil
}

func (*Ports) schema() map[string]any {
	return map[string]any{
		"type": []any{"integer", "string"}, "minimum": 1, "maximum": 65535, "pattern": "^[0-9]+(-[0-9]+)?$", "examples": []any{80, "8000-8999"},
	}
}

// take marks the ports. It reports false, and marks no more, at one that is marked already.
func (p Ports) take(marked *[1 << 16]bool) bool {
	for port := int(p.First); port <= int(max(p.First, p.Last)); port++ {
		if marked[port] {
			return false
		}
		marked[port] = true
	}
	return true
}

// Duration is how long a client keeps its endpoint.
type Duration time.Duration

// MaxAffinity is the longest affinity, as in the Service API.
const MaxAffinity = 24 * time.Hour

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	t, err := time.ParseDuration(string(b))
	if err != nil || t < time.Second || t > MaxAffinity || t%time.Second != 0 {
		return fmt.Errorf("%s is not a time from 1s to 24h: expected whole seconds, such as 90s, 5m or 3h", state.Quote(string(b)))
	}
	*d = Duration(t)
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (*Duration) schema() map[string]any { return text("^([0-9]+(s|m|h))+$", "90s", "5m", "3h") }

// Check is an active check, as the annotation health-check has it.
type Check string

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Check) UnmarshalText(b []byte) error {
	if _, err := state.ParseHealthCheck(string(b)); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "it is "))
	}
	*c = Check(b)
	return nil
}

func (*Check) schema() map[string]any {
	return text("^(off|((tcp|http|https|dns)( +[a-z-]+=[^ ]+)*))$", "tcp", "http path=/healthz status=200-399 interval=5s", "dns name=example.org")
}

// Forwarding is how packets reach the endpoints, as the annotation forwarding has it.
type Forwarding string

const forwardingPattern = "^(nat|route|tunnel(,ipip|,gue(,[0-9]+)?(,csum|,remcsum)?|,gre(,csum)?)?)$"

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *Forwarding) UnmarshalText(b []byte) error {
	if !regexp.MustCompile(forwardingPattern).Match(b) {
		return fmt.Errorf("%s is no way of forwarding: expected nat, route, tunnel, or a tunnel such as tunnel,gue,6080,csum or tunnel,gre",
			state.Quote(string(b)))
	}
	*f = Forwarding(b)
	return nil
}

func (*Forwarding) schema() map[string]any {
	return text(forwardingPattern, "route", "tunnel", "tunnel,gue,6080,csum")
}
