// Package inference carries out one metered call (spec §4.3) in six verbs:
// parse, plan, hold, relay, charge, settle. Two commits and the provider are all
// that a call waits for. A call runs to its end whether or not its client is
// still there; whoever asks again with the same key joins it or gets its answer.
package inference
