// Package gateway has no code. Its folder holds what answers calls, by text and by voice: who
// calls, which limits apply, the plan, the hold, the stream and the settlement. Money moves only by
// commands to ledger/store.
package gateway
