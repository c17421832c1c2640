package backup

import "github.com/purserhq/purser/internal/base/rowfile"

// A backup is a file of rows.
type (
	// A Manifest says what is in a backup.
	Manifest = rowfile.Manifest
	// A Header says what a backup was taken of.
	Header = rowfile.Header
	// A TableCount is a table with the number of its rows.
	TableCount = rowfile.TableCount
	// Heads sums up the hash chains of all accounts.
	Heads = rowfile.Heads
)
