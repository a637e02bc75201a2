// Package rule is the language of the program: what a rule looks at and what it does, as text in nft syntax and as bytecode
// of the kernel. It does not know which chains and sets there are.
//
// The files, in the order in which to read them:
//
//	field.go      IPv4 and IPv6; what a rule looks at
//	statement.go  what a rule does
//	match.go      statements about connections and answers
//	digest.go     rules as bytecode, and the digest of that
package rule
