// Package store keeps the ledger in a database. A Writer runs commands of package
// rules in batches: it loads and locks the rows that they touch, applies them, saves
// what changed, and commits once. The other functions read what commands have written.
//
// SQLite and PostgreSQL load and save a batch each in their own best way (sqlite.go,
// postgres.go). The same tests run on both.
package store
