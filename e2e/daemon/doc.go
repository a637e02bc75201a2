// Package daemon runs "verdict run" in a network namespace of a test, from manifests in a folder, and makes clusters of
// any size for it.
//
//	daemon.go   start it and wait for it; cluster.go: manifests of many Services
package daemon
