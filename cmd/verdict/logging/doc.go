// Package logging makes the logger of a command, in the format and on the level of the flags.
//
//	logging.go  the logger, that of client-go, and lines for the journal of systemd
package logging
