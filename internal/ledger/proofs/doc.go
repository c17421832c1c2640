// Package proofs publishes the ledger as a log that anyone can check, and makes the proofs that a row is in it
// (decision 103). The log is a Merkle tree as in RFC 9162, served as tiles of 256 hashes with signed checkpoints. A
// leaf commits to a ledger row and says nothing about it: who has the row and the account's secret can tell which leaf
// is the row's.
//
// A Publisher appends what the ledger has got, beside it: no call waits for it. Receipts and histories carry their
// proofs with them, and are verified without a database.
package proofs
