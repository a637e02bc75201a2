// Package schedule decides when things happen, and whose turn it is. It asks nobody, and knows no endpoints.
//
// What a namespace can have is bounded by a part of what the others leave (Room), or by a rate (Rates). So a tenant with ever
// so many Services makes nobody else late.
//
// The files:
//
//	line.go   who is asked next
//	rates.go  how much there can be in a second, and at once
package schedule
