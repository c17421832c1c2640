// Package ledger holds no code: it names what stands in the packages below it,
// which keep the money of all users (contract §2, Balance, holds and allocation).
//
//   - limits: a limit, its window and the buckets that it counts in, and the risk
//     thresholds. Values only.
//   - tiers: what each tier of an app allows. Values only.
//   - rules: the commands, and what each of them does to the rows that it touches.
//     Pure functions: no clock, no database, no HTTP. All decisions about money are
//     made here.
//   - store: the writer, which runs commands in batches, each batch one transaction,
//     and the queries that read what the commands have written. All SQL of the ledger
//     stands here. No decision about money does.
//   - audit: purser ledger verify. It shares no code with rules and store, so that
//     one mistake cannot hide another.
//
// A package imports only packages before it in this list, and audit none of them. No
// other package of Purser writes the tables balances, connections, holds, deferrals,
// ledger, stored_responses, checkpoints, counters, daily_totals, app_days, refusals, events, notices, nodes,
// allocation_requests and payment_records.
package ledger
