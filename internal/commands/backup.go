package commands

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/purserhq/purser/internal/backup"
	"github.com/purserhq/purser/internal/ledger/audit"
)

type backupCmd struct {
	Create createBackupCmd `cmd:"" default:"withargs" help:"Write a backup to a new file."`
	Verify verifyBackupCmd `cmd:"" help:"Restore a backup into a temporary file, and audit that."`
	Key    backupKeyCmd    `cmd:"" help:"Make a key pair that encrypts backups."`
}

// Help is shown by purser backup --help.
func (backupCmd) Help() string {
	return "The server may be running. The file has all rows of one moment, of SQLite or PostgreSQL, and may be " +
		"restored into either. It appears under its name when it is complete. It holds all that the database holds, " +
		"except the envelope key, which is in your settings.\n\n" +
		"Example:\n  purser backup --config purser.yaml /backups/purser-$(date +%F).backup"
}

type createBackupCmd struct {
	databaseFlags
	File           string   `arg:"" help:"The new file."`
	Recipient      []string `placeholder:"KEY" help:"Encrypt for this public key, age1…; may be given several times."`
	PassphraseFile string   `placeholder:"FILE" help:"Or encrypt with the passphrase on the first line of this file."`
}

// Help is shown by purser backup create --help.
func (createBackupCmd) Help() string { return backupCmd{}.Help() }

// Run writes a backup.
func (c *createBackupCmd) Run(p *program) error {
	database, err := c.find(p)
	if err != nil {
		return err
	}
	recipients, err := c.readRecipients()
	if err != nil {
		return exitError{err, exitUsage}
	}
	ctx, stop := interruptContext()
	defer stop()
	m, err := backup.Create(ctx, database, c.File, recipients)
	if err != nil {
		return err
	}
	if err := printTarget(p, database); err != nil {
		return err
	}
	return printManifest(p, c.File, m)
}

func (c *createBackupCmd) readRecipients() (list []age.Recipient, err error) {
	if c.PassphraseFile != "" {
		if len(c.Recipient) > 0 {
			return nil, errors.New("--recipient and --passphrase-file: give one of them")
		}
		recipient, _, err := backup.ReadPassphrase(c.PassphraseFile)
		return []age.Recipient{recipient}, err
	}
	for _, text := range c.Recipient {
		recipient, err := backup.ParseRecipient(text)
		if err != nil {
			return nil, fmt.Errorf("--recipient: %w", err)
		}
		list = append(list, recipient)
	}
	return list, nil
}

// printTarget prints which database a command has read or filled.
func printTarget(p *program, database string) error {
	_, err := fmt.Fprintf(p.out, "database:       %s\n", hideSecrets(database, database))
	return err
}

// printManifest prints what a backup holds.
func printManifest(p *program, file string, m backup.Manifest) error {
	newest := "none"
	if m.Heads.NewestUS > 0 {
		newest = time.UnixMicro(m.Heads.NewestUS).UTC().Format(time.RFC3339Nano)
	}
	name := ""
	if m.Database != "" {
		name = " " + m.Database
	}
	_, err := fmt.Fprintf(p.out, `backup:         %s
taken:          %s, of %s%s, schema %d, by purser %s
rows:           %d in %d tables
ledger:         %d rows of %d accounts, the newest of %s
chain heads:    %s
digest:         %s
`, file, m.BeganAt.Format(time.RFC3339), m.Engine, name, m.Schema, m.Purser, m.Rows(), len(m.Tables),
		m.Heads.Entries, m.Heads.Accounts, newest, m.Heads.Digest, m.Digest)
	return err
}

// printAudit prints the outcome of an audit: a line if it is clean. With findings the exit code is 1.
func printAudit(p *program, what string, r audit.Result) error {
	text := r.Report
	if r.Findings == 0 {
		lines := strings.Split(strings.TrimSpace(text), "\n")
		text = lines[len(lines)-1] + "\n"
	}
	if _, err := fmt.Fprintf(p.out, "%-16s%s", what, text); err != nil {
		return err
	}
	if r.Findings > 0 {
		return exitError{nil, exitFailed}
	}
	return nil
}

// decryptFlags name what decrypts a backup.
type decryptFlags struct {
	Identity       string `placeholder:"FILE" help:"File of the private key, if the backup is encrypted." xor:"key"`
	PassphraseFile string `placeholder:"FILE" help:"Or file of the passphrase." xor:"key"`
}

func (f decryptFlags) readIdentities() ([]age.Identity, error) {
	switch {
	case f.Identity != "":
		return backup.ReadIdentities(f.Identity)
	case f.PassphraseFile != "":
		_, identity, err := backup.ReadPassphrase(f.PassphraseFile)
		return []age.Identity{identity}, err
	}
	return nil, nil
}

type verifyBackupCmd struct {
	File string `arg:"" help:"The backup."`
	decryptFlags
}

// Help is shown by purser backup verify --help.
func (verifyBackupCmd) Help() string {
	return "Reads the whole file, compares it with its manifest, restores it into a temporary SQLite file, and " +
		"audits that as purser ledger verify does. TMPDIR needs about as much room as the database has.\n\n" +
		"Exits with 0 if the backup is whole and clean, 1 if it is not.\n\n" +
		"Example:\n  purser backup verify /backups/purser-2026-11-23.backup"
}

// Run verifies a backup.
func (c *verifyBackupCmd) Run(p *program) error {
	identities, err := c.readIdentities()
	if err != nil {
		return exitError{err, exitUsage}
	}
	ctx, stop := interruptContext()
	defer stop()
	m, r, err := backup.Verify(ctx, c.File, identities)
	if err != nil {
		return err
	}
	if err := printManifest(p, c.File, m); err != nil {
		return err
	}
	return printAudit(p, "audit:", r)
}

type backupKeyCmd struct {
	File string `arg:"" help:"The new file of the private key."`
}

// Help is shown by purser backup key --help.
func (backupKeyCmd) Help() string {
	return "Writes the private key to a new file, and prints the public key. Encrypt with the public key " +
		"(--recipient, or the setting backup.recipient), and keep the private key away from the server: only restore " +
		"and verify need it. It is an identity of age (age-encryption.org).\n\n" +
		"Example:\n  purser backup key purser-backup.key"
}

// Run makes a key pair.
func (c *backupKeyCmd) Run(p *program) error {
	recipient, err := backup.CreateIdentity(c.File)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(p.out, recipient)
	return err
}
