package config

import (
	"errors"
	"fmt"
)

// Budgets bound what one Service and one namespace may cost.
type Budgets struct {
	// Slots of hash tables count for the namespace only.
	ServiceFrontends   int `flag:"max-service-frontends" usage:"<NUMBER> of frontends (addresses x ports) that one Service may have; it is served without the others"`
	ServiceElements    int `flag:"max-service-elements" usage:"<NUMBER> of endpoints (of all ports), slots for their weights, and source ranges that one Service may have"`
	NamespaceFrontends int `flag:"max-namespace-frontends" usage:"<NUMBER> of frontends that the Services of one namespace may have"`
	NamespaceElements  int `flag:"max-namespace-elements" usage:"<NUMBER> of endpoints, slots of weights and hash tables, and source ranges that the Services of one namespace may have"`
	// A namespace may need as many changes as NamespaceElements at once.
	NamespaceChanges  int `flag:"max-namespace-changes" usage:"<NUMBER> of changes of the kernel a second that large changes of one namespace may need in the long run; then they wait"`
	NamespaceLogLines int `flag:"max-namespace-log-lines" usage:"<NUMBER> of lines a minute that the log has about problems of the objects of one namespace, about its endpoints, and about its health check ports, each"`
}

// defaultBudgets are far beyond what a cluster needs: a Service with 100 ports, dual stack, with node ports and load
// balancer IPs, has 600 frontends.
func defaultBudgets() Budgets {
	return Budgets{
		ServiceFrontends: 4096, ServiceElements: 100_000, NamespaceFrontends: 250_000, NamespaceElements: 1_000_000,
		NamespaceChanges: 1000, NamespaceLogLines: 100,
	}
}

func (b *Budgets) validate() error {
	return errors.Join(
		positive("--max-service-frontends", b.ServiceFrontends),
		positive("--max-service-elements", b.ServiceElements),
		positive("--max-namespace-frontends", b.NamespaceFrontends),
		positive("--max-namespace-elements", b.NamespaceElements),
		positive("--max-namespace-changes", b.NamespaceChanges),
		positive("--max-namespace-log-lines", b.NamespaceLogLines),
	)
}

func positive(flag string, n int) error {
	if n < 1 {
		return fmt.Errorf("%s=%d: must be at least 1", flag, n)
	}
	return nil
}
