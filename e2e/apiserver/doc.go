// Package apiserver runs etcd and kube-apiserver for tests, in a network namespace. The scripts in e2e/controlplane
// build the two programs.
//
//	apiserver.go    the two processes, and clients with all rights
//	credentials.go  certificates, tokens, kubeconfig files
package apiserver
