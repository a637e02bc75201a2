package config

import (
	"errors"
	"fmt"
)

// Budgets bound what one Service and one namespace may cost.
type Budgets struct {
	// Frontends are addresses x ports. Elements are endpoints of ports, source ranges of frontends,
	// and the slots that nft needs for weights. Those of hash tables count for the namespace only.
	ServiceFrontends, ServiceElements     int
	NamespaceFrontends, NamespaceElements int
	// NamespaceChanges is how many changes of the kernel a second the large changes of one namespace may need in the long
	// run. It may need as many as NamespaceElements at once.
	NamespaceChanges int
	// NamespaceLogLines is how many lines a minute the log has about problems of the objects of one namespace, as many about
	// its endpoints, and about its health check ports.
	NamespaceLogLines int
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
