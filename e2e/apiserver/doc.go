// Package apiserver runs etcd and kube-apiserver for tests, in a network namespace. The scripts in e2e/controlplane
// build the two programs.
//
//	build.go        builds the programs
//	apiserver.go    the two processes, and clients with all rights
//	objects.go      writes objects
//	outage.go       the two processes end, start again, and lose what they stored
//	credentials.go  certificates, tokens, kubeconfig files
package apiserver
