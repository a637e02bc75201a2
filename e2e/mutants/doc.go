// Command mutants changes the program in small ways and checks that a test fails for each change. A mutant that no test
// notices shows a missing test, or code that nobody needs. "make mutants" runs it.
//
// All mutants of a package are in one copy of its source, behind conditions, so each test binary is built once, and so is
// the verdict that tests start. The variable MUTANT chooses the mutant of a process. The copy is an overlay of the go
// command: no file of the repository changes.
//
// Some changes are no mutants, because they change nothing that a test could or should notice:
//
//   - a call of package slog, its arguments, and lists of anything, which become such arguments: the log is for people
//   - what make reserves for later, and calls of Grow: only the speed changes
//   - a lost argument of a call that formats text: vet, which is part of "make check", compares it with the format
//   - a field that is set to zero, the order of arguments of slices.Equal and the like, and by how much a comparison is
//     above zero: nothing changes
//   - constant declarations: a test that repeats a number would show nothing
//
// By default, it changes the packages that decide what the kernel gets. The other packages below nft read the kernel, write to
// it, and compare: they have little to decide, and most of their code cannot run without a kernel.
//
//	main.go       flags, and the report
//	operators.go  reads packages with their types; the ways to change code
//	rules.go      the ways to change rules: a lost part, a swapped constant
//	noise.go      what is left alone
//	finder.go     a mutant, and what finds those of a file
//	edit.go       a copy of the source with all mutants
//	run.go        builds the test binaries, and runs those that reach a mutant
package main
