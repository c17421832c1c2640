package main

import (
	"errors"
	"fmt"

	"github.com/purserhq/purser/internal/backup"
)

type dbCmd struct {
	Copy copyDBCmd `cmd:"" help:"Copy a database into an empty one, also from SQLite to PostgreSQL."`
}

type copyDBCmd struct {
	From string `placeholder:"URL" required:"" help:"sqlite:PATH or postgres://…; its nodes must be stopped."`
	To   string `placeholder:"URL" required:"" help:"A new SQLite file, or an empty PostgreSQL database."`

	Archives string `placeholder:"DIR" help:"Folder with the files of archived years of the ledger."`
}

// Help is shown by purser db copy --help.
func (copyDBCmd) Help() string {
	return "Copies all rows, and audits both databases. Stop the nodes first: what they write meanwhile would be " +
		"missing. Then start them with the new database and the same envelope_key.\n\n" +
		"Exits with 0 if both are clean, 1 if not.\n\nExample:\n  purser db copy --from sqlite:purser-data/purser.db " +
		"--to postgres://purser@db.internal/purser"
}

// Run copies a database.
func (c *copyDBCmd) Run(p *program) error {
	ctx, stop := interruptContext()
	defer stop()
	copied, err := backup.Copy(ctx, c.From, c.To, c.Archives)
	if err != nil {
		return err
	}
	m := copied.Manifest
	if _, err := fmt.Fprintf(p.out, "copied:         %d rows in %d tables, with %d ledger rows of %d accounts\n",
		m.Rows(), len(m.Tables), m.Heads.Entries, m.Heads.Accounts); err != nil {
		return err
	}
	return errors.Join(printAudit(p, "audit of from:", copied.From), printAudit(p, "audit of to:", copied.To))
}
