// Package topups takes money in: it opens Stripe's Checkout for a user, listens to
// Stripe's events, and has the ledger follow (contract §2, semantics 8; decision 023).
//
// An event is only a hint that something changed. What did is asked of Stripe, and
// compared with what was opened: amount, currency, account, mode. From the answer
// follow commands of the ledger that may be repeated and come in any order. So an
// event that is repeated, late, early, forged or lost can neither add money nor lose
// it: jobs ask for what nobody told us (F-62 to F-67).
package topups
