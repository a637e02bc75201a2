// Package manifests reads objects from the YAML and JSON files of a folder, and follows its changes. It logs the faults of
// files, and reports them as Problems.
//
// The files, in reading order:
//
//	document.go   splits a file into documents
//	decode.go     documents to objects, and the objects of all files
//	file.go       one file: whether it has changed, and which of its objects are in force
//	kept.go       copies of the files, for manifests that cannot be read at the start
//	manifests.go  the folder
//	locate.go     files that are named, and the lines of Problems
//
// # Half-written manifests
//
// If a file does not parse, or is empty, its previous content stays in force. If a file ends at a place where YAML may
// end, the source cannot know that the program has not finished writing. It waits for a moment of quiet before it
// reads, but only a program that writes another file and renames it is safe.
//
// # A start with files that cannot be read
//
// Options.Copies has the last content without a fault of each file. If the kernel serves an earlier process's Services, and a
// file cannot be read at the start, objects that only the copies have stay in force until all files can be read. If there is no
// folder of copies, the source delivers nothing until then, so the kernel keeps what it has.
package manifests
