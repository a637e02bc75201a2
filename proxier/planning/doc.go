// Package planning plans the Services of a pass, and bounds what tenants cost each other.
//
//	planning.go  drafts: plans of some Services, and of those that gain or lose a frontend by it
//	budget.go    how much each namespace may become
//	ranges.go    who gets room for port ranges
//	accounts.go  what each namespace costs, and when it has to wait
//	prices.go    how much of a transaction's time is whose
//
// Package plan decides what one Service becomes, and package claims who gets a frontend that several ask for. This package
// neither knows the kernel nor waits.
package planning
