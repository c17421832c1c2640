package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/settings"
)

// maxPrintedFindings is the number of findings of one check that are printed. The rest is counted.
const maxPrintedFindings = 100

// A verification is one run of all checks over one snapshot.
type verification struct {
	*db.Tx
	now     time.Time
	results []*checkResult
	meter   workMeter

	lacksLog bool // the file was copied without its log

	ledgerRows int64  // that were read, one after the other
	logSize    int64  // leaves of the public log
	logRoot    []byte // its root
	late       []lateRow

	// Of a verification since a checkpoint:
	since       *Checkpoint
	newRows     []newRange        // accounts with new rows
	verifiedSeq map[string]int64  // of each account's last verified row
	lists       map[string]string // of the sources, as JSON
	most        map[string]int64  // rows that a source has at most
}

// A checkResult counts what one check has read and found.
type checkResult struct {
	*check
	checked  int64
	findings int64
	printed  []string
	remark   string
}

// addFinding counts a finding, and keeps its text while few enough are kept.
func (v *checkResult) addFinding(format string, args ...any) {
	if v.findings++; v.findings <= maxPrintedFindings {
		v.printed = append(v.printed, fmt.Sprintf(format, args...))
	}
}

// A Result sums up a verification.
type Result struct {
	Checks     int
	Checked    int64 // rows, over all checks
	LedgerRows int64 // rows of the ledger that were read, each once
	Findings   int
	Took       time.Duration
	Report     string      // a line for each check and each finding
	Checkpoint *Checkpoint // if Options asked for one and there are no findings
}

// Options say how a database is verified.
type Options struct {
	// Now is the time by the clock that the ledger is written by. Zero = the verification reads that clock: the
	// database's on PostgreSQL, this machine's for SQLite.
	Now time.Time
	// Since is the checkpoint of an earlier verification: only what is new is read. nil = the whole database is.
	Since *Checkpoint
	// Checkpoint asks for a checkpoint.
	Checkpoint bool
	// Progress, unless it is nil, is told often how far the verification is.
	Progress func(Progress)
}

// VerifyAndPrint verifies the database at databaseURL at the time now, prints a line for
// each check and each finding to out, and returns the number of findings. After an
// error the database is not verified, and the number means nothing.
func VerifyAndPrint(ctx context.Context, databaseURL string, out io.Writer, now time.Time) (findings int, err error) {
	r, err := Verify(ctx, databaseURL, now, nil)
	if err != nil {
		return 0, err
	}
	_, err = io.WriteString(out, r.Report)
	return r.Findings, err
}

// Verify verifies the whole database at databaseURL at the time now. It tells progress, unless
// that is nil, how far it is.
func Verify(ctx context.Context, databaseURL string, now time.Time, progress func(Progress)) (Result, error) {
	return Run(ctx, databaseURL, Options{Now: now, Progress: progress})
}

// readClockAhead returns how far the clock of purser dev was moved ahead of the database's (decision 210).
func readClockAhead(ctx context.Context, tx *db.Tx) (time.Duration, error) {
	text, err := settings.Get(ctx, tx, settings.ClockAhead)
	if err != nil {
		return 0, err
	}
	return settings.ParseClockAhead(text)
}

// Run verifies the database at databaseURL.
func Run(ctx context.Context, databaseURL string, o Options) (r Result, err error) {
	began := time.Now()
	d, err := db.OpenForAudit(ctx, databaseURL)
	if err != nil {
		return Result{}, fmt.Errorf("audit: %w", err)
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if o.Now.IsZero() {
		if err := d.StartClock(ctx); err != nil {
			return Result{}, fmt.Errorf("audit: %w", err)
		}
	}
	err = d.InSnapshot(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := tx.KeepYears(ctx); err != nil {
			return err
		}
		if o.Now.IsZero() {
			ahead, err := readClockAhead(ctx, tx)
			if err != nil {
				return err
			}
			o.Now = d.Now().Add(ahead)
		}
		a := &verification{Tx: tx, now: o.Now, since: o.Since, lacksLog: d.LacksLog()}
		a.meter.tell = o.Progress
		if err := a.runChecks(ctx); err != nil {
			return err
		}
		r = a.summarize()
		if o.Checkpoint && r.Findings == 0 {
			r.Checkpoint, err = a.takeCheckpoint(ctx)
		}
		r.Took = time.Since(began)
		return err
	})
	if err != nil {
		return Result{}, fmt.Errorf("audit: %w", err)
	}
	return r, nil
}

// runChecks runs every check.
func (a *verification) runChecks(ctx context.Context) error {
	if a.since != nil {
		if err := a.findNew(ctx); err != nil {
			return err
		}
	}
	for i := range checks {
		if a.since != nil || !checks[i].sinceOnly {
			a.results = append(a.results, &checkResult{check: &checks[i]})
		}
	}
	a.meter = newWorkMeter(a.meter.tell, a.results)
	for _, v := range a.results {
		if v.findViolation != nil {
			continue // checkLedgerRows applies it
		}
		a.meter.beginCheck(v.check)
		if err := a.runCheck(ctx, v); err != nil {
			return fmt.Errorf("%s %s: %w", v.id, v.title, err)
		}
		a.meter.endCheck(v.check)
	}
	return a.checkLedgerRows(ctx)
}

// runCheck runs one check in a savepoint. A value that makes its statement fail, such
// as a number that overflows, is a finding, and the other checks still run.
func (a *verification) runCheck(ctx context.Context, v *checkResult) error {
	if _, err := a.ExecContext(ctx, `SAVEPOINT one_check`); err != nil {
		return err
	}
	err := a.queryFindings(ctx, v)
	if isDataError(err) {
		v.addFinding("a value in the database cannot be computed with: %v", err)
		_, err = a.ExecContext(ctx, `ROLLBACK TO SAVEPOINT one_check`)
	}
	if err != nil {
		return err
	}
	_, err = a.ExecContext(ctx, `RELEASE SAVEPOINT one_check`)
	return err
}

// queryFindings runs a check that is an SQL statement or a function.
func (a *verification) queryFindings(ctx context.Context, v *checkResult) error {
	if v.verify != nil {
		return v.verify(ctx, a, v)
	}
	if err := a.queryRow(ctx, v.count).Scan(&v.checked); err != nil {
		return err
	}
	if v.remarks != "" {
		var n int64
		if err := a.queryRow(ctx, v.remarks, argsAt(v.remarkArgs, a.now)...).Scan(&n); err != nil {
			return err
		}
		if n > 0 {
			v.remark = formatCount(n) + " " + v.remarkText
		}
	}
	query := v.query
	if a.since != nil && v.sinceQuery != "" {
		query = v.sinceQuery
	}
	return a.formatRows(ctx, query, argsAt(v.queryArgs, a.now), func(finding string) { v.addFinding("%s", finding) })
}

// formatRows calls f with each row of a query, formatted as name=value.
func (a *verification) formatRows(ctx context.Context, query string, args []any, f func(string)) (err error) {
	query, args = a.prepare(query, args)
	rows, err := a.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	names, err := rows.Columns()
	if err != nil {
		return err
	}
	values, into := make([]any, len(names)), make([]any, len(names))
	for i := range values {
		into[i] = &values[i]
	}
	var b strings.Builder
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		b.Reset()
		for i, name := range names {
			if i > 0 {
				b.WriteByte(' ')
			}
			fmt.Fprintf(&b, "%s=%s", name, formatValue(values[i]))
		}
		f(b.String())
	}
	return rows.Err()
}

// summarize writes the report and sums the numbers of the checks, in their order.
func (a *verification) summarize() Result {
	r := Result{Checks: len(a.results), LedgerRows: a.ledgerRows}
	var b strings.Builder
	violated := 0
	for _, v := range a.results {
		line := fmt.Sprintf("%-4s%-86s%12s checked %6s findings", v.id, v.title, formatCount(v.checked),
			formatCount(v.findings))
		if v.remark != "" {
			line += "  (" + v.remark + ")"
		}
		fmt.Fprintln(&b, line)
		for _, finding := range v.printed {
			fmt.Fprintln(&b, "      "+finding)
		}
		if rest := v.findings - int64(len(v.printed)); rest > 0 {
			fmt.Fprintf(&b, "      … and %s more\n", formatCount(rest))
		}
		r.Findings += int(v.findings)
		r.Checked += v.checked
		if v.findings > 0 {
			violated++
		}
	}
	if a.lacksLog {
		fmt.Fprintln(&b, "      the file was copied from a running server without its log (the file that ends in "+
			"-wal): its newest rows are missing")
		r.Findings++
		violated++
	}
	if c := a.since; c != nil {
		fmt.Fprintf(&b, "since the checkpoint of %s: %s new rows of the ledger after %s verified ones, which were not "+
			"read again\n", c.Made().Format("2006-01-02 15:04:05 UTC"), formatCount(a.ledgerRows), formatCount(c.Rows))
	}
	if r.Findings == 0 {
		fmt.Fprintf(&b, "clean: %d checks, no findings\n", len(a.results))
	} else {
		plural := "s"
		if r.Findings == 1 {
			plural = ""
		}
		fmt.Fprintf(&b, "not clean: %s finding%s in %d of %d checks\n", formatCount(int64(r.Findings)), plural,
			violated,
			len(a.results))
	}
	r.Report = b.String()
	return r
}

// isDataError reports whether err is caused by a stored value, such as a number that
// overflows or a text that is not JSON, and not by the database itself.
func isDataError(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return strings.HasPrefix(pg.Code, "22") // data exception
	}
	var lite *sqlite.Error
	return errors.As(err, &lite) && (strings.Contains(lite.Error(), "integer overflow") ||
		strings.Contains(lite.Error(), "malformed JSON"))
}

// formatValue formats a value of a row for a finding.
func formatValue(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case []byte:
		return string(v)
	}
	return fmt.Sprint(value)
}

// formatCount formats n with commas between thousands.
func formatCount(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
