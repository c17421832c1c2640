package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/rowfile"
	"github.com/purserhq/purser/internal/base/settings"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/ledger/audit"
	"github.com/purserhq/purser/internal/ledger/store"
)

// restoringSuffix ends the name of a SQLite file that is being restored.
const restoringSuffix = ".restoring"

// Restore fills the database at target, which must be empty, with the rows of the backup at path, brings it to the
// newest schema, and audits it. A SQLite file must not exist, nor a part of one; it appears under its name when it is
// complete, and its lock is held until then. After an error nothing was restored. A result with findings is restored:
// the backup has what its database had. It is a database of its own then, with another id.
func Restore(ctx context.Context, path, target string, identities []age.Identity,
) (Manifest, audit.Result, error) {
	fill := func(url string) (Manifest, audit.Result, error) {
		m, err := loadFile(ctx, path, url, identities)
		if err != nil {
			return m, audit.Result{}, err
		}
		return auditCopy(ctx, m, url)
	}
	if file, ok := strings.CutPrefix(target, "sqlite:"); ok {
		return restoreSQLite(file, fill)
	}
	if err := refuseLiveNodes(ctx, target); err != nil {
		return Manifest{}, audit.Result{}, fmt.Errorf("restore: %w", err)
	}
	return fill(target)
}

// AcceptLoss lets a SQLite file without its log be used. In the same transaction it says there that the database went
// back in time, so that no money leaves before its books were compared with Stripe (decision 127). It says so also in a
// file that lacks no log.
func AcceptLoss(ctx context.Context, url string) error {
	lacked, err := db.AcceptLostLog(ctx, url, markRestored)
	if err != nil || lacked {
		return err
	}
	d, err := db.Open(ctx, url)
	if err != nil {
		return err
	}
	return errors.Join(d.InTx(ctx, markRestored), d.Close())
}

func markRestored(ctx context.Context, tx *db.Tx) error {
	if _, err := settings.Lock(ctx, tx, settings.Restored); err != nil {
		return err
	}
	return settings.Set(ctx, tx, settings.Restored, timestamp.Format(time.Now().UnixMicro()))
}

// renew makes the rows that were loaded a database of its own: it has another id than theirs, and no node runs on it.
func renew(ctx context.Context, tx *db.Tx) error {
	now := time.Now()
	if err := store.EndLeases(ctx, tx, now.UnixMicro()); err != nil {
		return err
	}
	if _, err := settings.Lock(ctx, tx, settings.DatabaseID); err != nil {
		return err
	}
	return settings.Set(ctx, tx, settings.DatabaseID, id.New(id.Database, now))
}

// restoreSQLite calls fill with the URL of a draft, and gives the draft its name if fill succeeds.
func restoreSQLite(file string, fill func(url string) (Manifest, audit.Result, error)) (m Manifest, r audit.Result,
	err error) {
	place, err := db.TakePlace(file)
	if err != nil {
		return m, r, fmt.Errorf("restore: %w: restore to a new file", err)
	}
	defer func() { err = errors.Join(err, place.Leave()) }()
	draft := file + restoringSuffix
	if err := removeSQLite(draft); err != nil { // of a restore that was interrupted
		return m, r, fmt.Errorf("restore: %w", err)
	}
	defer func() { err = errors.Join(err, removeSQLite(draft)) }()
	if m, r, err = fill("sqlite:" + draft); err != nil {
		return m, r, err
	}
	if err := syncFile(draft); err != nil {
		return m, r, fmt.Errorf("restore: %w", err)
	}
	if err := errors.Join(place.Fill(draft), rowfile.SyncFolder(filepath.Dir(file))); err != nil {
		return m, r, fmt.Errorf("restore: %w", err)
	}
	return m, r, nil
}

// removeSQLite removes a SQLite file with the files that belong to it.
func removeSQLite(file string) (err error) {
	for _, suffix := range []string{"", "-wal", "-shm", "-journal", ".lock"} {
		err = errors.Join(err, removeIfThere(file+suffix))
	}
	return err
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Verify checks that the file at path is complete and undamaged, restores it into a temporary SQLite file, and audits
// that. The temporary file takes about as much room as the database.
func Verify(ctx context.Context, path string, identities []age.Identity) (m Manifest, r audit.Result, err error) {
	folder, err := os.MkdirTemp("", "purser-backup-")
	if err != nil {
		return m, r, fmt.Errorf("backup: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	return Restore(ctx, path, "sqlite:"+filepath.Join(folder, "purser.db"), identities)
}

// auditCopy audits a database that has just been filled.
func auditCopy(ctx context.Context, m Manifest, url string) (Manifest, audit.Result, error) {
	r, err := audit.Run(ctx, url, audit.Options{})
	return m, r, err
}

// loadFile fills the database at target with the rows of the backup at path.
func loadFile(ctx context.Context, path, target string, identities []age.Identity) (m Manifest, err error) {
	f, err := os.Open(path)
	if err != nil {
		return m, fmt.Errorf("backup: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	content, err := decrypt(f, identities)
	if err != nil {
		return m, fmt.Errorf("backup: %s: %w", path, err)
	}
	if m, err = load(ctx, content, target, markRestored); err != nil {
		return m, fmt.Errorf("backup: %s: %w", path, err)
	}
	return m, nil
}

// ageMagic begins an encrypted backup.
const ageMagic = "age-encryption.org/v1"

// decrypt returns the content of a file, which may be encrypted.
func decrypt(f *os.File, identities []age.Identity) (io.Reader, error) {
	begin := make([]byte, len(ageMagic))
	n, err := f.ReadAt(begin, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if !bytes.Equal(begin[:n], []byte(ageMagic)) {
		return f, nil
	}
	if len(identities) == 0 {
		return nil, errors.New("it is encrypted: give --identity or --passphrase-file")
	}
	content, err := age.Decrypt(f, identities...)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return nil, rowfile.ErrCutOff
	}
	return content, err
}

// load fills the database at target with a backup. Nothing is committed before the manifest has confirmed all rows.
// Mark runs in the same transaction.
func load(ctx context.Context, r io.Reader, target string, mark func(context.Context, *db.Tx) error) (
	m Manifest, err error) {
	in, err := rowfile.NewDecoder(r)
	if err != nil {
		return m, err
	}
	defer in.Close()
	tables, err := db.Tables(in.Header.Schema)
	if err != nil {
		return m, err
	}
	err = db.Load(ctx, target, in.Header.Schema, func(ctx context.Context, tx *db.Tx) error {
		for {
			table, columns, more, err := in.ReadTable()
			if err != nil {
				return err
			}
			if !more {
				break
			}
			if !slices.Contains(tables, table) {
				return fmt.Errorf("table %s: %w: its schema has no such table", table, rowfile.ErrDamaged)
			}
			if err := loadTable(ctx, tx, in, table, columns); err != nil {
				return fmt.Errorf("table %s: %w", table, err)
			}
		}
		if m, err = in.ReadManifest(); err != nil {
			return err
		}
		heads, err := readHeads(ctx, tx)
		if err == nil && heads != m.Heads {
			err = fmt.Errorf("%w: the heads of the hash chains are not those of the manifest", rowfile.ErrDamaged)
		}
		if err != nil {
			return err
		}
		return errors.Join(renew(ctx, tx), mark(ctx, tx))
	})
	return m, err
}

func loadTable(ctx context.Context, tx *db.Tx, in *rowfile.Decoder, table string, columns []string) error {
	if err := checkColumns(ctx, tx, table, columns); err != nil {
		return err
	}
	n, err := db.InsertRows(ctx, tx, table, columns, in.ReadRow)
	if err != nil {
		return err
	}
	if have := in.Counts[len(in.Counts)-1].Rows; have != n {
		return fmt.Errorf("%d of %d rows were inserted", n, have)
	}
	return nil
}
