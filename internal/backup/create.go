package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"filippo.io/age"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/rowfile"
	"github.com/purserhq/purser/internal/base/settings"
)

// partialSuffix ends the name of a backup that is not complete.
const partialSuffix = ".partial"

// Create writes a backup of the database at source to a new file at path, also while nodes run on it. With recipients
// only they can decrypt it; without, it is not encrypted. The file appears under its name when it is complete, on the
// disk, and was read again. Until then its name ends in ".partial".
func Create(ctx context.Context, source, path string, recipients []age.Recipient) (m Manifest, err error) {
	if _, err := os.Lstat(path); err == nil {
		return m, fmt.Errorf("backup: %s exists already", path)
	}
	partial := path + partialSuffix
	f, err := os.OpenFile(partial, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return m, fmt.Errorf("backup: %s exists: another backup writes it, or was interrupted; "+
			"delete it in the second case", partial)
	} else if err != nil {
		return m, fmt.Errorf("backup: %w", err)
	}
	m, err = writeFile(ctx, source, f, recipients)
	if err == nil {
		err = errors.Join(os.Rename(partial, path), rowfile.SyncFolder(filepath.Dir(path)))
	}
	if err != nil {
		return Manifest{}, errors.Join(fmt.Errorf("backup: %w", err), removeIfThere(partial))
	}
	return m, nil
}

// writeFile writes a backup to f, closes f, and compares what the disk has with what was written.
func writeFile(ctx context.Context, source string, f *os.File, recipients []age.Recipient) (m Manifest, err error) {
	written := sha256.New()
	m, err = write(ctx, source, io.MultiWriter(f, written), recipients)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return m, err
	}
	read, err := rowfile.HashFile(f.Name())
	if err != nil {
		return m, err
	}
	if read != hex.EncodeToString(written.Sum(nil)) {
		return m, fmt.Errorf("%s: the disk has other bytes than were written", f.Name())
	}
	return m, nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// write writes a backup of the database at source to w.
func write(ctx context.Context, source string, w io.Writer, recipients []age.Recipient) (m Manifest, err error) {
	d, err := db.OpenReadOnly(ctx, source)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if len(recipients) > 0 {
		encrypted, err := age.Encrypt(w, recipients...)
		if err != nil {
			return m, err
		}
		if m, err = writeRows(ctx, d, encrypted); err != nil {
			return m, err
		}
		return m, encrypted.Close()
	}
	return writeRows(ctx, d, w)
}

// writeRows writes all rows of one snapshot.
func writeRows(ctx context.Context, d *db.DB, w io.Writer) (m Manifest, err error) {
	out, err := rowfile.NewEncoder(w)
	if err != nil {
		return m, err
	}
	err = d.InSnapshot(db.ForJob(ctx), func(ctx context.Context, tx *db.Tx) error {
		if err := tx.KeepYears(ctx); err != nil {
			return err
		}
		schema, err := db.SchemaVersion(ctx, tx)
		if err != nil {
			return err
		}
		m.Header = rowfile.NewHeader(string(d.Engine), schema)
		if m.Database, err = settings.Get(ctx, tx, settings.DatabaseID); err != nil {
			return err
		}
		if err := out.PutHeader(m.Header); err != nil {
			return err
		}
		tables, err := db.Tables(m.Schema)
		if err != nil {
			return err
		}
		for _, table := range tables {
			begin := func(columns []string) { out.PutTable(table, columns) }
			n, err := db.EachRow(ctx, tx, selectAll(table), begin, out.PutRow)
			if err != nil {
				return fmt.Errorf("table %s: %w", table, err)
			}
			m.Tables = append(m.Tables, TableCount{Name: table, Rows: n})
		}
		m.Heads, err = readHeads(ctx, tx)
		return err
	})
	if err != nil {
		return m, errors.Join(err, out.Abandon())
	}
	m.EndedAt = presentTime()
	return m, out.Close(&m)
}

func presentTime() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// readHeads sums up the hash chains.
func readHeads(ctx context.Context, tx *db.Tx) (h Heads, err error) {
	if h, err = sumHeads(ctx, tx); err != nil {
		return h, fmt.Errorf("heads of the hash chains: %w", err)
	}
	if h.NewestUS, err = findNewestEntry(ctx, tx); err != nil {
		return h, fmt.Errorf("newest ledger row: %w", err)
	}
	return h, nil
}
