//go:build !nokernel

package ipvsctl

import (
	"testing"

	"github.com/verdict-proxy/verdict/e2e/netns"
)

// namespace is a network namespace together with what these tests do there.
type namespace struct{ *netns.Namespace }

func newNamespace(t testing.TB) *namespace {
	t.Helper()
	return &namespace{netns.New(t)}
}
