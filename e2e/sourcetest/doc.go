// Package sourcetest is what the tests of proxier/source share: objects of the API (objects.go), a log that can be read and
// conditions to wait for (log.go). Only tests import this package.
package sourcetest
