// Package restclient gives client-go the metrics that upstream's components have: rest_client_*, with the same labels
// and buckets. Upstream's own package (component-base/metrics/prometheus/restclient) registers with a global registry
// and would add a megabyte to the binary.
//
//	restclient.go  the metrics
//	adapters.go    what client-go calls
package restclient
