// Package logging makes the logger of a command, in the format and on the level of the flags.
//
//	logging.go  the logger, and that of client-go
//	journal.go  lines for the journal of systemd
package logging
