// Package audit is `purser ledger verify`: it reads a whole database and says
// which of the money's invariants do not hold in it (architecture, The money's
// invariants, docs/internals/invariants.md). It shares nothing with the code that moves the
// money: it has its own SQL, its own parser of the hash chain and its own
// arithmetic, so that an error there cannot hide here.
//
// A verification reads one snapshot of a database, while its server runs or from a
// copy of its file, and writes nothing. A check is an SQL statement that returns its
// violations, or a rule for each ledger row. The ledger is read once, account by
// account, in constant memory. Since a checkpoint only what is new is read, by the same
// checks (decision 101).
package audit
