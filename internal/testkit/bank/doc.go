// Package bank plays people, their banks, Stripe and the operator by random histories, and compares the books of the
// ledger with those that the emulated Stripe keeps of each person (decisions 023, 108, 110 and 124).
//
// A history is a list of steps. Each step names what happens and has numbers, which choose of what there is when it
// happens. So a history can be printed, repeated, and cut to a shorter one that still fails. Player plays it at a
// Service, which is all that it knows of how a server runs: people's pages, Stripe's events and the operator's API over
// HTTP, calls as commands of the ledger, and jobs. Network stands between the service and Stripe: it loses, refuses and
// holds requests and answers. Book has the properties that must hold after each step.
package bank
