// Command verdict is a Kubernetes Service proxy. "verdict run" is the daemon. The other sub-commands show what it does
// or would do.
//
//	main.go      the root command, exit codes; commands that read leave the processors to the daemon
//	version.go   "version"; man.go: man pages, with the build tag man; noman.go: without it
//	run.go       "run": package daemon does the work; packages flags and logging read the command line
//	cleanup.go   "cleanup": what Verdict has created in the kernel is removed
//	check.go     "check": can Verdict serve this node? package preflight has the checks
//	requests.go  "drain": the daemon stops serving; "reload": it reads its files again
//	leave.go     "leave": waits for connections that die with this node
//	render.go    "render": one pass without the kernel, by package dryrun; diff.go: "diff": the difference to the kernel
//	validate.go  "validate": what is wrong in manifests
//
// The packages list, explain and convert have the other commands. What they read is in package snapshot. This
// package has a file for each command, and nothing that a package could have.
package main
