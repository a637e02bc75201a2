// Package netns makes network namespaces on the real kernel, as root or as an ordinary user. A namespace has no name in
// the file system, so the kernel removes it after its last user has gone, even when that user crashes.
//
//	namespace.go  make a namespace; run functions and programs in it; connect from it
//	link.go       links and addresses; route.go: routes
//	testing.go    namespaces that end with a test; tests of an ordinary user, in a user namespace
//
// The tests of every package use it, and so do the programs in e2e that measure. The product must not import it, and it
// imports nothing of this module. Servers, clients and a topology are in package lab.
//
// A test file that needs a network namespace begins with
//
//	//go:build !nokernel
//
// "make check" passes -tags nokernel and so leaves these files out. With that tag this package refuses to make a
// namespace: a test that needs one and lacks the line fails and says so.
package netns
