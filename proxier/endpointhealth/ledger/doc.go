// Package ledger has what is known of each Service whose endpoints are looked at. It writes their health into the store, and
// saves it for the next process. Except for Ledger.Save, its caller holds a lock.
//
//	watched.go  a Service: its health, its plan
//	publish.go  when the store is written
//	memory.go   what outlives the process
package ledger
