package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"

	"github.com/purserhq/purser/internal/base/db"
)

// shownFindings is how many findings of one check are printed; the rest is counted.
const shownFindings = 100

// audit is one run of all checks over one snapshot.
type audit struct {
	*db.Tx
	now      time.Time
	verdicts []*verdict
	progress func(string) // nil when nobody watches
}

// verdict is what a check found.
type verdict struct {
	*check
	checked int64
	found   int64
	shown   []string
	note    string
}

// fail counts a finding, and keeps it if it is to be printed.
func (v *verdict) fail(format string, args ...any) {
	if v.found++; v.found <= shownFindings {
		v.shown = append(v.shown, fmt.Sprintf(format, args...))
	}
}

// A Result is what an audit found.
type Result struct {
	Checks   int
	Checked  int64 // rows, over all checks
	Findings int
	Report   string // a line for each check and each finding
}

// Run checks the database at databaseURL as it is at now, prints a line for
// each check and each finding to out, and returns the number of findings. An
// error means that the database could not be looked at, and that the findings
// say nothing.
func Run(ctx context.Context, databaseURL string, out io.Writer, now time.Time) (findings int, err error) {
	r, err := Look(ctx, databaseURL, now, terminal(out))
	if err != nil {
		return 0, err
	}
	_, err = io.WriteString(out, r.Report)
	return r.Findings, err
}

// Look is Run for whoever shows the result otherwise. It tells progress, unless
// that is nil, what it is at; "" when it is done.
func Look(ctx context.Context, databaseURL string, now time.Time, progress func(string)) (r Result, err error) {
	d, err := db.OpenReadOnly(ctx, databaseURL)
	if err != nil {
		return Result{}, fmt.Errorf("audit: %w", err)
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	err = d.InSnapshot(ctx, func(ctx context.Context, tx *db.Tx) error {
		a := &audit{Tx: tx, now: now, progress: progress}
		if err := a.inspect(ctx); err != nil {
			return err
		}
		r = a.result()
		return nil
	})
	if err != nil {
		return Result{}, fmt.Errorf("audit: %w", err)
	}
	return r, nil
}

// inspect carries out every check.
func (a *audit) inspect(ctx context.Context) error {
	for i := range checks {
		a.verdicts = append(a.verdicts, &verdict{check: &checks[i]})
	}
	for _, v := range a.verdicts {
		if v.broken != nil {
			continue // done by the walk
		}
		a.say("checking %s %s", v.id, v.title)
		if err := a.try(ctx, v); err != nil {
			return fmt.Errorf("%s %s: %w", v.id, v.title, err)
		}
	}
	err := a.walk(ctx)
	a.say("")
	return err
}

// try carries out one check. Numbers and texts that no statement can compute
// with are a finding, and must not keep the other checks from being made.
func (a *audit) try(ctx context.Context, v *verdict) error {
	if _, err := a.ExecContext(ctx, `SAVEPOINT one_check`); err != nil {
		return err
	}
	err := a.carryOut(ctx, v)
	if unreadable(err) {
		v.fail("a value in the database cannot be computed with: %v", err)
		_, err = a.ExecContext(ctx, `ROLLBACK TO SAVEPOINT one_check`)
	}
	if err != nil {
		return err
	}
	_, err = a.ExecContext(ctx, `RELEASE SAVEPOINT one_check`)
	return err
}

// carryOut makes one check that is not made row by row.
func (a *audit) carryOut(ctx context.Context, v *verdict) error {
	if v.look != nil {
		return v.look(ctx, a, v)
	}
	words := dialect[a.Engine]
	if err := a.QueryRowContext(ctx, words.Replace(v.count)).Scan(&v.checked); err != nil {
		return err
	}
	if v.aside != "" {
		var n int64
		if err := a.QueryRowContext(ctx, words.Replace(v.aside),
			arguments(v.asideArgs, a.now)...).Scan(&n); err != nil {
			return err
		}
		if n > 0 {
			v.note = thousands(n) + " " + v.asideIs
		}
	}
	return a.rows(ctx, words.Replace(v.find), arguments(v.args, a.now), func(finding string) { v.fail("%s", finding) })
}

// rows calls f with each row of a query, written as name=value.
func (a *audit) rows(ctx context.Context, query string, args []any, f func(string)) (err error) {
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
			fmt.Fprintf(&b, "%s=%s", name, show(values[i]))
		}
		f(b.String())
	}
	return rows.Err()
}

// result sums up the verdicts, in the order of the checks.
func (a *audit) result() Result {
	r := Result{Checks: len(a.verdicts)}
	var b strings.Builder
	red := 0
	for _, v := range a.verdicts {
		line := fmt.Sprintf("%-4s%-86s%12s checked %6s findings", v.id, v.title, thousands(v.checked),
			thousands(v.found))
		if v.note != "" {
			line += "  (" + v.note + ")"
		}
		fmt.Fprintln(&b, line)
		for _, finding := range v.shown {
			fmt.Fprintln(&b, "      "+finding)
		}
		if rest := v.found - int64(len(v.shown)); rest > 0 {
			fmt.Fprintf(&b, "      … and %s more\n", thousands(rest))
		}
		r.Findings += int(v.found)
		r.Checked += v.checked
		if v.found > 0 {
			red++
		}
	}
	if r.Findings == 0 {
		fmt.Fprintf(&b, "clean: %d checks, no findings\n", len(a.verdicts))
	} else {
		plural := "s"
		if r.Findings == 1 {
			plural = ""
		}
		fmt.Fprintf(&b, "not clean: %s finding%s in %d of %d checks\n", thousands(int64(r.Findings)), plural, red,
			len(a.verdicts))
	}
	r.Report = b.String()
	return r
}

// say tells what is being done.
func (a *audit) say(format string, args ...any) {
	if a.progress != nil {
		a.progress(fmt.Sprintf(format, args...))
	}
}

// terminal returns what replaces the last line of out, if a person watches it.
func terminal(out io.Writer) func(string) {
	f, ok := out.(*os.File)
	if !ok {
		return nil
	}
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	// Progress that cannot be shown is no reason to stop looking.
	return func(line string) { _, _ = io.WriteString(f, "\r\x1b[K"+line) }
}

// unreadable says whether err is about a value in the database, such as a number
// that overflows or a text that is not JSON, and not about the database itself.
func unreadable(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return strings.HasPrefix(pg.Code, "22") // data exception
	}
	var lite *sqlite.Error
	return errors.As(err, &lite) && (strings.Contains(lite.Error(), "integer overflow") ||
		strings.Contains(lite.Error(), "malformed JSON"))
}

// show writes a value of a row as a finding shows it.
func show(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case []byte:
		return string(v)
	}
	return fmt.Sprint(value)
}

// thousands writes n with commas.
func thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
