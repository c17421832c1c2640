// Package privacy is for people who want their data, or want to go: an export of
// everything that is kept of them, and the closing of an account (contract §2, Account).
// What closing erases belongs to other packages; each does its part in the one
// transaction of Close. The ledger's rows stay, as they must: they name a tombstone.
package privacy
