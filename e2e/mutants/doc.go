// Command mutants changes the program in small ways and checks that a test fails for each change. A mutant that no test
// notices shows a missing test, or code that nobody needs. "make mutants" runs it.
//
// All mutants of a package are in one copy of its source, behind conditions, so each test binary is built once. The
// variable MUTANT chooses the mutant of a process. The copy is an overlay of the go command: no file of the repository
// changes.
//
//	main.go       flags, and the report
//	load.go       packages with their types
//	operators.go  the ways to change code
//	rules.go      the ways to change rules: a lost part, a swapped constant
//	edit.go       a copy of the source with all mutants
//	run.go        builds the test binaries, and runs those that reach a mutant
package main
