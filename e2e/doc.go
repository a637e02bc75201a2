// Package e2e tests the built binary from outside: it writes real objects and sends real packets. These tests have the
// build tag e2e, because they need root and an API server that takes long to build. README.md explains them.
//
// Without the tag, only the tests of the documents run.
package e2e
