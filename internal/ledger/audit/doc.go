// Package audit is `purser ledger verify`: it reads a whole database and says
// which of the money's invariants do not hold in it (architecture, The money's
// invariants, docs/internals/invariants.md). It shares nothing with the code that moves the
// money: it has its own SQL, its own reading of the hash chain and its own
// arithmetic, so that an error there cannot hide here.
//
// Everything is read in one snapshot, beside a running server or from a copy of
// its file, and nothing is written. A check is an SQL statement that returns what
// breaks it, or a rule for each row of the journal, which is read once, account
// by account, in constant memory.
package audit
