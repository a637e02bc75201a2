// Package host follows the addresses of the host, and which of them are the main ones, and writes them into a state.Store.
//
//	addresses.go  all addresses
//	primary.go    the main address of each family
//
// It knows neither Kubernetes nor what an address is for.
package host
