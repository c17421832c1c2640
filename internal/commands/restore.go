package commands

import "github.com/purserhq/purser/internal/backup"

type restoreCmd struct {
	File string `arg:"" help:"The backup."`
	databaseFlags
	decryptFlags
}

// Help is shown by purser restore --help.
func (restoreCmd) Help() string {
	return "Restores a backup into a SQLite file that does not exist, or an empty PostgreSQL database, brings it to " +
		"the newest schema, and audits it. Until all is there, nothing is. Stop the nodes of that database " +
		"first. To look at the copy while the real service runs, start it with purser serve --drill.\n\n" +
		"Exits with 0 if the database is clean, 1 if it is not or nothing was restored.\n\n" +
		"Example:\n  purser restore /backups/purser-2026-11-23.backup --database sqlite:restored/purser.db"
}

// Run restores a backup.
func (c *restoreCmd) Run(p *program) error {
	settings, err := c.settings(p)
	if err != nil {
		return err
	}
	identities, err := c.readIdentities()
	if err != nil {
		return exitError{err, exitUsage}
	}
	ctx, stop := interruptContext()
	defer stop()
	m, r, err := backup.Restore(ctx, c.File, settings.Database, identities)
	if err != nil {
		return err
	}
	if err := printTarget(p, settings.Database); err != nil {
		return err
	}
	if err := printManifest(p, c.File, m); err != nil {
		return err
	}
	return printAudit(p, "audit:", r)
}
