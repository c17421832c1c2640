// Package archive moves years of the ledger from PostgreSQL to files and back (decision 115): `purser ledger archive`
// and `purser ledger attach`. A file has all rows of a partition, in the form of package rowfile. The database keeps
// its digest, the keys of its calls, which stay used, and where each account's hash chain ends in it.
package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/rowfile"
)

// minAge is how long ago a year must have ended: nothing of it is refunded, disputed or settled any more.
const minAge = 180 * 24 * time.Hour

const (
	table         = "ledger"
	partialSuffix = ".partial" // ends the name of a file that is not complete
)

// ErrEngine says that a database has no partitions.
var ErrEngine = errors.New("archive: only a database in PostgreSQL has partitions: SQLite keeps all years in its file")

// A Record is what the database says of an archived year.
type Record struct {
	Year            int
	File            string // its name, without the folder
	SHA256          string // of the file, in hexadecimal digits
	Rows            int64
	FirstID, LastID string // of its rows, in order of their ids
	FromID, ToID    string // bounds of the partition; FromID = "": from the first row on
	LastCreatedUS   int64  // of its rows
	ArchivedUS      int64
}

// An Archiver archives and attaches years of a database.
type Archiver struct {
	DB *db.DB
	// Step, unless it is nil, is told each step before it is taken. An error ends the work there, as a kill would.
	// Tests set it.
	Step func(name string) error
}

// step tells a step.
func (a *Archiver) step(name string) error {
	if a.Step == nil {
		return nil
	}
	return a.Step(name)
}

// FileName returns the name of a year's file.
func FileName(year int) string { return fmt.Sprintf("purser-ledger-%d.archive", year) }

// Archive writes the ledger rows of a year to a file in a folder, reads the file again, and takes the rows out of the
// database. All changes of the database are one transaction, which begins before the file is written: the year is in
// the ledger, or its file is complete, durable and recorded. A file that an interrupted run has left is used if it has
// the same rows.
func (a *Archiver) Archive(ctx context.Context, year int, folder string) (r Record, err error) {
	if a.DB.Engine != db.Postgres {
		return r, ErrEngine
	}
	err = a.DB.InYearsTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		partition, err := a.check(ctx, tx, year)
		if err != nil {
			return err
		}
		if err := a.step("lock"); err != nil {
			return err
		}
		lock := func() error { return lockRows(ctx, tx, partition.Name) } // no command writes old rows; now none can
		if err := db.RetryLocked(ctx, tx, lock); err != nil {
			return err
		}
		r = Record{Year: year, File: FileName(year), FromID: partition.From, ToID: partition.To}
		path := filepath.Join(folder, r.File)
		if err := a.writeFile(ctx, tx, partition.Name, path); err != nil {
			return err
		}
		if err := syncFile(path); err != nil { // also one that a killed run has left
			return err
		}
		if err := a.step("compare"); err != nil {
			return err
		}
		if r.SHA256, err = compareFile(ctx, tx, path, partition.Name); err != nil {
			return err
		}
		if err := a.step("record"); err != nil {
			return err
		}
		r.ArchivedUS = a.DB.Now().UnixMicro()
		if err := insertRecord(ctx, tx, partition.Name, &r); err != nil {
			return err
		}
		if err := a.step("detach"); err != nil {
			return err
		}
		detach := func() error { return db.DropYear(ctx, tx, table, year) }
		if err := db.RetryLocked(ctx, tx, detach); err != nil {
			return err
		}
		return a.step("commit")
	})
	if err != nil {
		return r, fmt.Errorf("archive: %w", explainLock(err))
	}
	return r, nil
}

// explainLock says who keeps a table locked.
func explainLock(err error) error {
	if db.IsLocked(err) {
		return fmt.Errorf("the ledger is in use by a transaction that takes long, such as a backup or a verification: "+
			"try again when it has ended (%w)", err)
	}
	return err
}

// check returns the partition of a year if the year may be archived.
func (a *Archiver) check(ctx context.Context, tx *db.Tx, year int) (partition db.Year, err error) {
	end := time.Date(year+1, 1, 1, 0, 0, 0, 0, time.UTC)
	if from := end.Add(minAge); a.DB.Now().Before(from) {
		return partition, fmt.Errorf("%d can be archived from %s on, when it has ended 180 days ago", year,
			from.Format(time.DateOnly))
	}
	records, err := List(ctx, tx)
	if err != nil {
		return partition, err
	}
	for _, r := range records {
		if r.Year == year {
			return partition, fmt.Errorf("%d is archived already, in %s", year, r.File)
		}
	}
	years, err := db.ListYears(ctx, tx, table)
	if err != nil {
		return partition, err
	}
	for _, y := range years {
		if y.Year == year {
			partition = y
		}
	}
	if partition.Year == 0 {
		return partition, fmt.Errorf("the ledger has no partition for %d", year)
	}
	c, err := countObstacles(ctx, tx, partition)
	switch {
	case err != nil:
		return partition, err
	case c.earlier > 0:
		return partition, fmt.Errorf("%d rows are of years before %d: archive those first", c.earlier, year)
	case c.rows == 0:
		return partition, fmt.Errorf("the ledger has no rows of %d", year)
	case c.holds > 0:
		return partition, fmt.Errorf("%d calls of %d are not settled", c.holds, year)
	case c.payments > 0:
		return partition, fmt.Errorf("%d top-ups of %d have neither succeeded nor failed", c.payments, year)
	case c.unpublished > 0:
		return partition, fmt.Errorf("the public log does not have all rows of %d yet, of %d accounts", year,
			c.unpublished)
	}
	return partition, nil
}

// writeFile writes the rows of a partition to a new file at path, which appears there when it is complete.
func (a *Archiver) writeFile(ctx context.Context, tx *db.Tx, partition, path string) (err error) {
	if _, err := os.Lstat(path); err == nil {
		return nil // compareFile says whether it has these rows
	}
	if err := a.step("write"); err != nil {
		return err
	}
	f, err := os.OpenFile(path+partialSuffix, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(writeRows(ctx, tx, partition, f), f.Sync(), f.Close()); err != nil { // then its name
		return errors.Join(err, os.Remove(f.Name())) // the disk may be full
	}
	if err := a.step("rename"); err != nil {
		return err
	}
	return os.Rename(path+partialSuffix, path)
}

// writeRows writes the rows of a partition in order of their ids.
func writeRows(ctx context.Context, tx *db.Tx, partition string, w io.Writer) error {
	out, err := rowfile.NewEncoder(w, rowfile.Archive)
	if err != nil {
		return err
	}
	schema, err := db.SchemaVersion(ctx, tx)
	if err != nil {
		return err
	}
	m := rowfile.Manifest{Header: rowfile.NewHeader(string(tx.Engine), schema)}
	if err := out.PutHeader(m.Header); err != nil {
		return err
	}
	begin := func(columns []string) { out.PutTable(table, columns) }
	n, err := db.EachRow(ctx, tx, allRows(partition), begin, out.PutRow)
	if err != nil {
		return errors.Join(err, out.Abandon())
	}
	m.Tables, m.EndedAt = []rowfile.TableCount{{Name: table, Rows: n}}, time.Now().UTC()
	return out.Close(&m)
}

// syncFile makes a file and its name durable.
func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close(), rowfile.SyncFolder(filepath.Dir(path)))
}

// errDiffers says that a file has other rows than the ledger.
var errDiffers = errors.New("it has other rows than the ledger: move it away")

// compareFile compares a file with the rows of a partition, and returns the file's digest.
func compareFile(ctx context.Context, tx *db.Tx, path, partition string) (digest string, err error) {
	if digest, err = rowfile.HashFile(path); err != nil {
		return "", err
	}
	err = readFile(path, func(_ []string, next func() ([]any, error)) error {
		_, err := db.EachRow(ctx, tx, allRows(partition), func([]string) {}, func(row []any) error {
			values, err := next()
			if err != nil {
				return err
			}
			if len(values) != len(row) {
				return errDiffers
			}
			for i, v := range values {
				if v != row[i] { // integers, texts and NULL
					return errDiffers
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		if values, err := next(); err != nil || values != nil {
			return errors.Join(err, errDiffers)
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return digest, nil
}

// readFile calls use with the columns of the ledger in a file, and with a function that returns its rows one by one,
// nil at their end. It returns an error if the file is not complete.
func readFile(path string, use func(columns []string, next func() ([]any, error)) error) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	in, err := rowfile.NewDecoder(f, rowfile.Archive)
	if err != nil {
		return err
	}
	defer in.Close()
	name, columns, more, err := in.ReadTable()
	if err != nil {
		return err
	}
	if !more || name != table {
		return rowfile.ErrDamaged
	}
	if err := use(columns, in.ReadRow); err != nil {
		return err
	}
	if _, _, more, err := in.ReadTable(); err != nil || more {
		return errors.Join(err, rowfile.ErrDamaged)
	}
	_, err = in.ReadManifest()
	return err
}

// errDigest says that a file is not the one that was recorded.
var errDigest = errors.New("it is not the file that was written: its SHA-256 differs from that in the database")

// loadFile checks that the file at path is the one of a record, and inserts its rows into a table.
func loadFile(ctx context.Context, tx *db.Tx, r *Record, path, into string) error {
	digest, err := rowfile.HashFile(path)
	if err != nil {
		return err
	}
	if digest != r.SHA256 {
		return fmt.Errorf("%s: %w", path, errDigest)
	}
	err = readFile(path, func(columns []string, next func() ([]any, error)) error {
		n, err := db.InsertRows(ctx, tx, into, columns, next)
		if err == nil && n != r.Rows {
			err = fmt.Errorf("it has %d rows, and had %d", n, r.Rows)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Attach brings the rows of a file back into the ledger. The file stays. It must be the newest one: years are archived
// from the oldest on, and come back in the opposite order.
func (a *Archiver) Attach(ctx context.Context, path string) (r Record, err error) {
	if a.DB.Engine != db.Postgres {
		return r, ErrEngine
	}
	err = a.DB.InYearsTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if r, err = findRecord(ctx, tx, path); err != nil {
			return err
		}
		if err := a.step("load"); err != nil {
			return err
		}
		isPartition, err := makeRoom(ctx, tx, &r)
		if err != nil {
			return err
		}
		if err := loadFile(ctx, tx, &r, path, yearTable(r.Year)); err != nil {
			return err
		}
		if err := a.step("forget"); err != nil {
			return err
		}
		if err := deleteRecord(ctx, tx, &r); err != nil {
			return err
		}
		if err := a.step("attach"); err != nil {
			return err
		}
		attach := func() error { return db.AttachYear(ctx, tx, table, r.Year, r.FromID, r.ToID) }
		if !isPartition {
			if err := db.RetryLocked(ctx, tx, attach); err != nil {
				return err
			}
		}
		return a.step("commit")
	})
	if err != nil {
		return r, fmt.Errorf("attach: %w", explainLock(err))
	}
	return r, nil
}

// makeRoom creates the table for the rows of a year. A restored database has partitions without rows in place of the
// archived ones: if one has the bounds of the year, the rows go there, and isPartition is true. Others are dropped.
func makeRoom(ctx context.Context, tx *db.Tx, r *Record) (isPartition bool, err error) {
	years, err := db.ListYears(ctx, tx, table)
	if err != nil {
		return false, err
	}
	for _, y := range years {
		if y.To > r.ToID {
			continue
		}
		if n, err := countRows(ctx, tx, y.Name); err != nil {
			return false, err
		} else if n > 0 {
			return false, fmt.Errorf("the ledger has %d rows in the partition for %d", n, y.Year)
		}
		if y.Year == r.Year && y.From == r.FromID && y.To == r.ToID {
			return true, nil
		}
		drop := func() error { return db.DropYear(ctx, tx, table, y.Year) }
		if err := db.RetryLocked(ctx, tx, drop); err != nil {
			return false, err
		}
	}
	return false, db.CreateYear(ctx, tx, table, r.Year)
}

// findRecord returns the record of a file, which must be the newest one.
func findRecord(ctx context.Context, tx *db.Tx, path string) (r Record, err error) {
	digest, err := rowfile.HashFile(path)
	if err != nil {
		return r, err
	}
	records, err := List(ctx, tx)
	if err != nil {
		return r, err
	}
	if len(records) == 0 {
		return r, errors.New("the database has no archived years")
	}
	newest := records[len(records)-1]
	for _, r := range records {
		if r.SHA256 == digest && r.Year != newest.Year {
			return r, fmt.Errorf("%d was archived after %d: attach that first", newest.Year, r.Year)
		} else if r.SHA256 == digest {
			return r, nil
		}
	}
	return r, fmt.Errorf("%s: %w", path, errDigest)
}

// ErrMissing says that files of archived years are needed.
var ErrMissing = errors.New("years of the ledger are archived")

// Overlay makes the ledger of the transaction's connection whole again: a temporary view named ledger, which stands
// before the table for all later statements of the connection, has the rows of the table and those of the files in
// folder. Without archived years it does nothing. It returns the records. What the database has kept of the rows must
// be what the files say.
func Overlay(ctx context.Context, tx *db.Tx, folder string) (records []Record, err error) {
	if records, err = List(ctx, tx); err != nil || len(records) == 0 {
		return records, err
	}
	if folder == "" {
		return nil, Missing(records)
	}
	if err := createCopy(ctx, tx); err != nil {
		return nil, err
	}
	for i := range records {
		path := filepath.Join(folder, records[i].File)
		if err := loadFile(ctx, tx, &records[i], path, archivedRows); err != nil {
			return nil, err
		}
	}
	if err := createView(ctx, tx); err != nil {
		return nil, err
	}
	return records, compareKept(ctx, tx)
}

// Schema is the version of the schema from which on a database may have archived years.
const Schema = 39

// CheckFiles returns an error unless the files of all archived years are in a folder.
func CheckFiles(ctx context.Context, tx *db.Tx, folder string) error {
	records, err := List(ctx, tx)
	if err != nil || len(records) == 0 {
		return err
	}
	if folder == "" {
		return Missing(records)
	}
	for _, r := range records {
		path := filepath.Join(folder, r.File)
		if digest, err := rowfile.HashFile(path); err != nil {
			return err
		} else if digest != r.SHA256 {
			return fmt.Errorf("%s: %w", path, errDigest)
		}
	}
	return nil
}

// Missing returns the error that names the files of archived years.
func Missing(records []Record) error {
	text := ""
	for i, r := range records {
		if i > 0 {
			text += ", "
		}
		text += r.File
	}
	return fmt.Errorf("%w: name the folder of %s by --archives or the setting archives", ErrMissing, text)
}

// A Horizon is how far the ledger is archived.
type Horizon struct {
	ID            string // no row with an id below it is in the database; "" = none is archived
	LastCreatedUS int64  // of the archived rows
}

// FindHorizon returns how far the ledger is archived.
func FindHorizon(records []Record) (h Horizon) {
	for _, r := range records {
		h.ID, h.LastCreatedUS = max(h.ID, r.ToID), max(h.LastCreatedUS, r.LastCreatedUS)
	}
	return h
}

// firstRequest returns the lowest id of requests whose ledger rows have at least the id of a ledger row.
func firstRequest(entryID string) string { return id.ReplacePrefix(entryID, id.Ledger, id.Request) }
