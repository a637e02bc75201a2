// Package proxier is the loop: it takes what changed from the state store, plans those Services, hands the plans to the
// dataplane as one pass, and reports what became of it to its observer (health, metrics, Events) and to the log.
//
//	state.Store -> pass: plan -> claims -> dataplane -> outcome -> state.Store.Applied, Observer
//
// One goroutine does all of it. A change leaves the store's list of pending changes only when the kernel has it.
//
// The files, in the order in which a reader wants them:
//
//	loop.go          what the loop waits for, and one pass from the pending changes to the kernel
//	proxier.go       the parts of the loop
//	planning.go      planning some Services, and who gets a frontend that several ask for
//	budget.go        how much each namespace may become
//	environment.go   what follows from the settings, the Node object and the host's addresses
//	repair.go        what other processes changed: found, undone and reported
//	pace.go          when the next pass may begin; retries
//	pauses.go        when a namespace has to wait, because it changes too much
//	flows.go         stale flows, cleaned beside the loop
//	triggers.go      trigger times of endpoint changes, for the latency metric
//	healthchecks.go  the healthCheckNodePort servers that are wanted
//	report.go        what observers and the log are told
//	lines.go         how many lines the log has about the objects of one namespace
//	interferencelog.go  at most one line a minute for what other processes changed
//	passlog.go       one line a second for passes that changed something
//	fields.go        counts problems by field
package proxier
