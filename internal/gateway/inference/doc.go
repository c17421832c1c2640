// Package inference carries out one metered text call (contract §4.3) in six steps:
// parse, plan, hold, relay, charge, settle. Package plan does the first two and is pure;
// package pricing does the fifth. A call waits for two commits and for the provider, and
// for nothing else. It runs to its end whether or not its client is still connected; a
// request with the same idempotency key attaches to it or gets its response.
package inference
