package socket

import (
	"cmp"

	"github.com/verdict-proxy/verdict/nft/program"
)

// FastPath says which connections take the fast path. The zero value: none, as --fast-path is off.
type FastPath struct {
	After int `json:"afterPackets,omitempty"` // their packets skip the rules of this node after so many
	// NoEffect is why all connections stay on the rules all the same; "": they need not.
	NoEffect string `json:"noEffect,omitempty"`
	// BridgesStay: connections by bridges stay on the rules (kernel.WhyBridgesStay), although others need not.
	BridgesStay bool `json:"bridgesStay,omitempty"`
	// OnRules are service ports whose connections stay on the rules although others need not.
	OnRules []OnRules `json:"onRules,omitempty"`
}

// OnRules is why the connections of a service port stay on the rules.
type OnRules struct {
	Port   string `json:"port"` // namespace/name:port
	Family string `json:"family"`
	Why    string `json:"why"`
}

// On reports whether some connections take the fast path.
func (f *FastPath) On() bool { return f.After > 0 && f.NoEffect == "" }

// Idle says that the option has no effect, and why; "": it has one, or is off.
func (f *FastPath) Idle() string {
	if f.NoEffect == "" {
		return ""
	}
	return "--fast-path=services has no effect; all connections stay on the rules: " + f.NoEffect
}

// Reasons returns a function that says why the connections of a service port stay on the rules; "": nobody knows a reason. The kernel may
// have shortened the name of the port.
func (f *FastPath) Reasons() func(port, family string) string {
	why := map[[2]string]string{}
	for _, r := range f.OnRules {
		why[[2]string{program.Label(r.Port), r.Family}] = r.Why
	}
	return func(port, family string) string { return cmp.Or(f.NoEffect, why[[2]string{port, family}]) }
}

// OnFastPath counts the connections that are on the fast path.
func OnFastPath(rows []Passing) (n int) {
	for i := range rows {
		n += rows[i].FastPath
	}
	return n
}
