// Package directory follows a directory, or one file of it, and has it read again after each change. It knows nothing of what
// the files mean: manifests and the configuration file are followed alike.
//
//	follow.go  the follower: what it watches, and when it reads
package directory
