// Package contents has the values that describe what both tables are to have for service ports (port.go): Port, Frontend,
// Endpoint, Globals. They do no I/O. Below it, each package owns a part of the tables, and writes the elements of that part:
//
//	hashing  hash tables, which pools with the same endpoints share
//	chains   chains and numbers of classes, chains of source ranges
//	mirror   all of a table: service ports, what they share, and what belongs to none
package contents
