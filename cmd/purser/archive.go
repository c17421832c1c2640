package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/archive"
)

type archiveCmd struct {
	Year int    `arg:"" help:"The year, such as 2026 (UTC)."`
	To   string `placeholder:"DIR" required:"" help:"Folder of the file, which must exist."`
	databaseFlags
}

// Help is shown by purser ledger archive --help.
func (archiveCmd) Help() string {
	return "Writes all ledger rows of a year to a file, reads the file again, and takes the rows out of the " +
		"database, while nodes run. The year must have ended 180 days ago, and years go from the oldest on. The file " +
		"is not encrypted. Keep copies of it as of a backup: without it the year cannot be verified, and backups of " +
		"the database do not have it.\n\n" +
		"The keys of archived calls stay used, and balances stay as they are. What the pages and the API do not show " +
		"any more is in docs/operate/backup.md.\n\n" +
		"Example:\n  purser ledger archive 2026 --to /var/lib/purser/archives --config purser.yaml"
}

// Run archives a year.
func (c *archiveCmd) Run(p *program) error {
	return c.changeYears(p, func(ctx context.Context, a *archive.Archiver) (string, archive.Record, error) {
		r, err := a.Archive(ctx, c.Year, c.To)
		return "archived", r, err
	})
}

type attachCmd struct {
	File string `arg:"" help:"The file of the year that was archived last."`
	databaseFlags
}

// Help is shown by purser ledger attach --help.
func (attachCmd) Help() string {
	return "Compares the file with what the database knows of it, and brings its rows back into the ledger, while " +
		"nodes run. The file stays. Years come back in the order opposite to that in which they were archived.\n\n" +
		"Example:\n  purser ledger attach /var/lib/purser/archives/purser-ledger-2026.archive --config purser.yaml"
}

// Run attaches a year.
func (c *attachCmd) Run(p *program) error {
	return c.changeYears(p, func(ctx context.Context, a *archive.Archiver) (string, archive.Record, error) {
		r, err := a.Attach(ctx, c.File)
		r.File = filepath.Base(c.File)
		return "attached", r, err
	})
}

// changeYears opens the database, archives or attaches a year, and prints which.
func (c *databaseFlags) changeYears(p *program,
	change func(context.Context, *archive.Archiver) (what string, r archive.Record, err error)) (err error) {
	database, err := c.find(p)
	if err != nil {
		return err
	}
	if strings.HasPrefix(database, "sqlite:") { // whose file may be in use by a node
		return exitError{archive.ErrEngine, exitUsage}
	}
	ctx, stop := interruptContext()
	defer stop()
	d, err := db.Open(ctx, database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	what, r, err := change(ctx, &archive.Archiver{DB: d})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.out, "%s %d: %d rows, %s, SHA-256 %s\n", what, r.Year, r.Rows, r.File, r.SHA256)
	return err
}
