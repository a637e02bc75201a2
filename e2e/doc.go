// Package e2e drives the built binary from outside: real objects in, real packets out. Its tests are in files with the
// build tag e2e, because they need root and an API server that takes long to build; see README.md.
package e2e
