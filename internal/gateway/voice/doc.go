// Package voice runs voice sessions (contract §2, Realtime session; §3; §4.4; decision 045). A browser
// speaks with a realtime model directly. Purser exchanges the offer, supervises the call by a second
// WebSocket to the provider (the sideband), and holds and bills each reply. A reply is a call in the
// ledger, and its row is the receipt.
//
// The rules are package session, a pure function. A runner (runner.go) gives them what happens and
// carries out what they ask for: call.go does so at the provider, billing.go in the ledger. A
// Supervisor (supervisor.go, watch.go) has the runners of a node; one node at a time owns a session, by
// a lease on its row. All SQL is in sql.go. A Handler serves the routes (routes.go), with a file for
// each: create, offer, mock socket, control socket, end. Package mock is the provider of apps in mock
// mode.
package voice
