// Package feed streams what happens to a connection to its app: GET /v1/connection/events (decision
// 072). The stream has the connection's balance, holds, charges and releases as server-sent events.
//
// Charges come from the ledger, so a client that reconnects with the id of the last one misses none.
// Holds and releases come from memory, of this node only: after each command the ledger's writer
// hands its result to the Hub, which wakes the streams of that connection. What other nodes do is
// found by one query per second and node, for all connections that have streams.
package feed
