// Package sink writes objects into the store, but only those that differ from what it wrote before. It has one file,
// sink.go.
package sink
