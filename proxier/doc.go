// Package proxier is the loop: it takes what changed from the state store, plans those Services, hands the result to
// the kernel engines as one pass and tells the faces (health, metrics, log) what became of it.
//
//	state.Store -> pass: plan -> claims -> translate -> nft.Engine -> outcome -> state.Store.Applied, status
//
// One goroutine does all of it. A change leaves the store's list of pending changes only when the kernel has it.
package proxier
