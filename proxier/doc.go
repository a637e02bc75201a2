// Package proxier is the loop: it takes what changed from the state store, has those Services planned, hands the plans to
// the dataplane as one pass, and reports what became of it to its observer (health, metrics, Events) and to the log.
//
//	state.Store -> pass: planning, claims -> dataplane -> outcome -> state.Store.Applied, report.Observer
//
// One goroutine does all of it. A change leaves the store's list of pending changes only when the kernel has it.
//
// The files, in the order in which a reader wants them:
//
//	loop.go   what the loop waits for, and what it does between passes
//	pass.go   one pass, from the pending changes to the kernel
//	queue.go  which Services the next pass plans
//	pace.go   when the next pass may begin; retries
//	repair.go what other processes changed: found, undone and reported
//
// What a pass needs has packages of its own: environment (what holds for all Services), planning (drafts, budgets, pauses),
// flows (stale flows, removed beside the loop) and report (what the observer and the log get).
package proxier
