// Package topups adds money to balances: it opens Stripe Checkout for a user, charges saved cards
// automatically, receives Stripe's events, and gives the ledger the commands that follow (contract
// §2, semantics 8; decision 023).
//
// An event only says that something may have changed. The Store then fetches the state of the payment from Stripe and
// compares it with the order: amount, currency, account, mode. The ledger commands that follow may be repeated and may
// come in any order. So a repeated, late, early, forged or lost event can neither add money nor lose it: jobs fetch the
// state when no event has arrived (F-62 to F-67).
package topups
