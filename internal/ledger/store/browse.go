package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// maxRowsPerPage is how many rows of an account one page of BrowseEntries reads.
// Without it, a filter that few rows pass would read the whole chain.
const maxRowsPerPage = 8_000

// clockSlack is how many rows of a chain the clocks of nodes may have put out of
// order around a moment.
const clockSlack = 100

// An EntryFilter selects rows of an account. Empty and zero fields select all.
type EntryFilter struct {
	AccountID, ConnectionID, AppID, Model string
	Type                                  rules.EntryType
	Reversed                              bool  // of spends: refunds instead of calls
	FromUS, ToUS                          int64 // from, and before
}

// BrowseEntries returns rows that pass f with a seq below before (0 = from the
// newest), newest first, at most limit. next is the before of the next page; 0 = there
// are no older rows. A page may be short or empty and still have a next one.
func BrowseEntries(ctx context.Context, q db.Queryer, f EntryFilter, before int64,
	limit int) (list []rules.Entry, next int64, err error) {
	b, err := GetBalance(ctx, q, f.AccountID)
	if err != nil {
		return nil, 0, err
	}
	last, first := b.Seq+1, int64(1)
	if f.ToUS > 0 {
		at, err := findSeqAt(ctx, q, f.AccountID, b.Seq, f.ToUS)
		if err != nil {
			return nil, 0, err
		}
		last = min(last, at+clockSlack)
	}
	if f.FromUS > 0 {
		at, err := findSeqAt(ctx, q, f.AccountID, b.Seq, f.FromUS)
		if err != nil {
			return nil, 0, err
		}
		first = max(first, at-clockSlack)
	}
	if before > 0 {
		last = min(last, before)
	}
	span := max(first, last-maxRowsPerPage)
	if list, err = entriesBetween(ctx, q, f, span, last, limit+1); err != nil {
		return nil, 0, err
	}
	switch {
	case len(list) > limit:
		return list[:limit], list[limit-1].Seq, nil
	case span > first:
		return list, span, nil
	}
	return list, 0, nil
}

// entriesBetween reads the rows with first ≤ seq < last.
func entriesBetween(ctx context.Context, q db.Queryer, f EntryFilter, first, last int64,
	limit int) ([]rules.Entry, error) {
	where, args := f.conditions()
	args = append(args, f.AccountID, first, last, limit)
	n := len(args)
	return db.QueryAll(ctx, q, scanEntry,
		fmt.Sprintf(`SELECT `+entryValues+
			` FROM ledger WHERE %s account_id = $%d AND seq >= $%d AND seq < $%d ORDER BY seq DESC LIMIT $%d`, where,
			n-3, n-2, n-1, n), args...)
}

// conditions is the filter's part of the WHERE clause.
func (f EntryFilter) conditions() (string, []any) {
	var b strings.Builder
	var args []any
	is := func(condition string, value any) {
		args = append(args, value)
		fmt.Fprintf(&b, "%s $%d AND ", condition, len(args))
	}
	for column, value := range map[string]string{
		"connection_id =": f.ConnectionID,
		"app_id =":        f.AppID,
		"model =":         f.Model,
		"type =":          string(f.Type),
	} {
		if value != "" {
			is(column, value)
		}
	}
	if f.Type == rules.EntrySpend && f.Reversed {
		is("status =", "reversed")
	} else if f.Type == rules.EntrySpend {
		is("status <>", "reversed")
	}
	if f.FromUS > 0 {
		is("created_us >=", f.FromUS)
	}
	if f.ToUS > 0 {
		is("created_us <", f.ToUS)
	}
	return b.String(), args
}

// findSeqAt returns the seq of the first row at or after a time, or the seq after the
// last row. Rows are numbered without gaps in the order of time, so a binary search
// finds it. Rows that are gone, of a year that the operator has
// detached, are passed over.
func findSeqAt(ctx context.Context, q db.Queryer, accountID string, last, us int64) (int64, error) {
	low, high := int64(1), last+1
	for low < high {
		middle := (low + high) / 2
		seq, created, err := readRowFrom(ctx, q, accountID, middle)
		switch {
		case errors.Is(err, sql.ErrNoRows) && low == 1: // all up to the last one are gone
			return last + 1, nil
		case errors.Is(err, sql.ErrNoRows):
			high = middle
		case err != nil:
			return 0, fmt.Errorf("ledger: row %d of %s: %w", middle, accountID, err)
		case created < us:
			low = seq + 1
		default:
			high = middle
		}
	}
	return low, nil
}

// readRowFrom reads the first row of an account from a seq on.
func readRowFrom(ctx context.Context, q db.Queryer, accountID string, from int64) (seq, createdUS int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT seq, created_us FROM ledger WHERE account_id = $1 AND seq >= $2
		ORDER BY seq LIMIT 1`, accountID, from).Scan(&seq, &createdUS)
	return seq, createdUS, err
}

// A DailyTotal is what was spent on a day by one app, feature and model, free credit
// included.
type DailyTotal struct {
	Day                 string // 2026-11-21, UTC
	ConnectionID, AppID string
	Feature, Model      string // Feature: "" = none, other = not registered
	Calls               int64
	InputTokens         int64 // ListDailyTotals alone reads the tokens
	OutputTokens        int64
	UserChargeMC        money.MC
}

// ListDailyTotals returns what an account has spent since a day, on all connections or
// on the named one. It reads the daily totals and no ledger row.
func ListDailyTotals(ctx context.Context, q db.Queryer,
	accountID, connectionID, sinceDay string) ([]DailyTotal, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(t *DailyTotal) []any {
		return []any{
			&t.Day, &t.ConnectionID, &t.AppID, &t.Feature, &t.Model, &t.Calls, &t.InputTokens, &t.OutputTokens,
			&t.UserChargeMC,
		}
	}), `SELECT day, connection_id, app_id, feature, model, calls, input_tokens, output_tokens, user_charge_mc
		FROM daily_totals
		WHERE connection_id IN (SELECT id FROM connections WHERE account_id = $1 AND ($2 = '' OR id = $2))
		AND day >= $3`, accountID, connectionID, sinceDay)
}

// ListDailyRefunds returns what was refunded of an account's calls since a day, on all connections or on the named one,
// by the day of the refund: UserChargeMC is the refund, and Calls is 0. The daily totals are less it. It reads the rows
// of the account that are no charges, by their index.
func ListDailyRefunds(ctx context.Context, q db.Queryer,
	accountID, connectionID string, since time.Time) ([]DailyTotal, error) {
	return db.QueryAll(ctx, q, func(r db.Row) (t DailyTotal, err error) {
		var day int64
		err = r.Scan(&day, &t.ConnectionID, &t.AppID, &t.Feature, &t.Model, &t.UserChargeMC)
		t.Day = time.Unix(day*86400, 0).UTC().Format(time.DateOnly)
		return t, err
	}, `SELECT created_us / 86400000000, connection_id, app_id, COALESCE(feature_label, ''), model,
			CAST(SUM(user_charge_mc) AS BIGINT)
		FROM ledger WHERE account_id = $1 AND created_us >= $2 AND (type <> 'spend' OR status = 'reversed')
			AND type = 'spend' AND ($3 = '' OR connection_id = $3)
		GROUP BY 1, 2, 3, 4, 5`, accountID, since.UnixMicro(), connectionID)
}

// HourLayout is how ListHourlyTotals writes an hour.
const HourLayout = "2006-01-02 15:00"

// ListHourlyTotals returns what an account has spent since a time, on all connections or on the named one, by hour: Day
// is in HourLayout. It reads the account's ledger rows from then on.
func ListHourlyTotals(ctx context.Context, q db.Queryer, accountID, connectionID string, sinceUS int64) ([]DailyTotal,
	error) {
	b, err := GetBalance(ctx, q, accountID)
	if err != nil {
		return nil, err
	}
	first, err := findSeqAt(ctx, q, accountID, b.Seq, sinceUS)
	if err != nil {
		return nil, err
	}
	return db.QueryAll(ctx, q, func(r db.Row) (t DailyTotal, err error) {
		var hour int64
		err = r.Scan(&hour, &t.ConnectionID, &t.AppID, &t.Feature, &t.Model, &t.Calls, &t.UserChargeMC)
		t.Day = time.Unix(hour*3600, 0).UTC().Format(HourLayout)
		return t, err
	}, `SELECT created_us / 3600000000, connection_id, app_id, COALESCE(feature_label, ''), model,
			CAST(SUM(CASE status WHEN 'settled' THEN 1 ELSE 0 END) AS BIGINT),
			CAST(SUM(CASE status WHEN 'settled' THEN user_charge_mc ELSE -user_charge_mc END) AS BIGINT)
		FROM ledger WHERE account_id = $1 AND seq >= $2 AND created_us >= $3 AND type = 'spend'
			AND status IN ('settled', 'reversed') AND ($4 = '' OR connection_id = $4)
		GROUP BY 1, 2, 3, 4, 5`, accountID, first-clockSlack, sinceUS, connectionID)
}

// ListUsedModels returns the models of the calls of an account since a day, in the order of their names, at most limit.
func ListUsedModels(ctx context.Context, q db.Queryer, accountID, sinceDay string, limit int) ([]string, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(model *string) []any { return []any{model} }),
		`SELECT DISTINCT model FROM daily_totals WHERE connection_id IN (SELECT id FROM connections WHERE account_id
			= $1)
		AND day >= $2 ORDER BY model LIMIT $3`, accountID, sinceDay, limit)
}

// AverageOutput returns how many output tokens the calls of a connection under a feature label and
// with a model have had since a day, on average, rounded up; false = there are none. It reads the
// daily totals and no ledger row.
func AverageOutput(ctx context.Context, q db.Queryer,
	connectionID, featureLabel, model, sinceDay string) (tokens int64, ok bool, err error) {
	var calls, output int64
	err = q.QueryRowContext(ctx, `SELECT COALESCE(SUM(calls), 0), COALESCE(SUM(output_tokens), 0) FROM daily_totals
		WHERE connection_id = $1 AND day >= $2 AND feature = $3 AND model = $4`,
		connectionID, sinceDay, featureLabel, model).Scan(&calls, &output)
	if err != nil || calls <= 0 {
		return 0, false, err
	}
	return (output + calls - 1) / calls, true, nil
}

// SumRecentCalls sums up the calls of an app since a day, and what they were charged. It reads only the newest daily
// totals, at most so many rows.
func SumRecentCalls(ctx context.Context, q db.Queryer,
	appID, sinceDay string, rows int) (calls int64, chargeMC money.MC, err error) {
	err = q.QueryRowContext(ctx, `SELECT COALESCE(SUM(calls), 0), COALESCE(SUM(user_charge_mc), 0)
		FROM (SELECT calls, user_charge_mc FROM daily_totals
			WHERE app_id = $1 AND day >= $2 ORDER BY day DESC LIMIT $3) AS newest`,
		appID, sinceDay, rows).Scan(&calls, &chargeMC)
	return calls, chargeMC, err
}
