// Package voice runs live voice sessions (spec §2, Realtime session; §3; §4.4). A
// browser speaks with a realtime model directly; Purser exchanges the offer, watches
// the call by a WebSocket of its own (the sideband), and holds and bills every reply
// in the ledger. Each reply is a ledger call of its own: its row is the receipt.
//
// The rules are Step (step.go), a pure function. runner.go feeds it what happens and
// carries out what it wants; a session is run by one node at a time, by a lease on
// its row. mock.go is the provider of apps in mock mode.
package voice
