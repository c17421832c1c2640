package commands

import (
	"errors"
	"fmt"

	"github.com/purserhq/purser/internal/backup"
)

type dbCmd struct {
	Copy       copyDBCmd     `cmd:"" help:"Copy a database into an empty one, also from SQLite to PostgreSQL."`
	AcceptLoss acceptLossCmd `cmd:"" help:"Go on with a SQLite file whose log is lost, without its newest rows."`
}

type copyDBCmd struct {
	From string `placeholder:"URL" required:"" help:"sqlite:PATH or postgres://…; its nodes must be stopped."`
	To   string `placeholder:"URL" required:"" help:"A new SQLite file, or an empty PostgreSQL database."`
}

// Help is shown by purser db copy --help.
func (copyDBCmd) Help() string {
	return "Copies all rows, and audits both databases. Stop the nodes first: what they write meanwhile would be " +
		"missing. Then start them with the new database and the same envelope_key.\n\n" +
		"Exits with 0 if both are clean, 1 if not.\n\nExample:\n  purser db copy " +
		"--from sqlite:/var/lib/purser/purser.db --to postgres://purser@db.internal/purser"
}

// Run copies a database.
func (c *copyDBCmd) Run(p *program) error {
	for _, given := range [][2]string{{"--from", c.From}, {"--to", c.To}} {
		if err := checkDatabaseFlag(given[0], given[1]); err != nil {
			return err
		}
	}
	ctx, stop := interruptContext()
	defer stop()
	copied, err := backup.Copy(ctx, c.From, c.To)
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

type acceptLossCmd struct {
	Database string `placeholder:"URL" required:"" help:"sqlite:PATH; its node must be stopped."`
}

// Help is shown by purser db accept-loss --help.
func (acceptLossCmd) Help() string {
	return "A SQLite file without its log (the file that ends in -wal) lacks what was acknowledged last, so that " +
		"purser refuses it. Put the log back, or restore a backup that is newer. If there is neither, this " +
		"command lets the node start with what the file has, as after a restore: no money leaves before the " +
		"books were compared with Stripe. Run it again after an interruption, and then purser ledger verify.\n\n" +
		"Example:\n  purser db accept-loss --database sqlite:/var/lib/purser/purser.db"
}

// Run accepts the loss.
func (c *acceptLossCmd) Run(p *program) error {
	if err := checkDatabaseFlag("--database", c.Database); err != nil {
		return err
	}
	ctx, stop := interruptContext()
	defer stop()
	if err := backup.AcceptLoss(ctx, c.Database); err != nil {
		return err
	}
	_, err := fmt.Fprintln(p.out, "accepted: the next start compares the books with Stripe before money leaves")
	return err
}
