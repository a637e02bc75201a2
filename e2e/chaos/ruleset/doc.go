// Package ruleset compares two states of the tables of Verdict by their listings, as the real nft prints them. It shares
// no code with Verdict, so a mistake in Verdict's own comparison cannot hide here.
//
//	parse.go      sets, maps and chains of a listing
//	canonical.go  the content without the numbers that differ between processes, and the difference of two contents
package ruleset
