package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// maxRowsPerSearch is how many rows of an app one page of BrowseSpends and of BrowseRefusals reads. Without it, a
// filter that few rows pass would read all rows of the app.
const maxRowsPerSearch = 5_000

// A SpendKind selects spend rows by what they are.
type SpendKind string

// The kinds of spend rows. AnySpend selects refunds too, and Billed calls alone.
const (
	AnySpend       SpendKind = ""
	Billed         SpendKind = "billed"
	BilledExactly  SpendKind = "settled"
	BilledEstimate SpendKind = "estimated"
	Refunds        SpendKind = "refund"
)

// A CallFilter selects calls of an app. Empty and zero fields select all.
type CallFilter struct {
	AppID                        string
	FromID                       string // no older row; a ledger id of spends, a request id of refusals
	Model, Feature, ConnectionID string

	Kind        SpendKind // of spends
	MinChargeMC money.MC  // of spends

	StatusFrom, StatusTo int // of refusals: HTTP statuses, both included; 0, 0 = any
}

// selectsSome reports whether the filter leaves rows of the app out, apart from those older than FromID.
func (f *CallFilter) selectsSome() bool {
	return f.Model != "" || f.Feature != "" || f.ConnectionID != "" || f.Kind != AnySpend || f.MinChargeMC > 0 ||
		f.StatusTo > 0
}

// conditions collects the conditions of a query and their arguments.
type conditions struct {
	text strings.Builder
	args []any
}

func (c *conditions) add(condition string, value any) {
	c.args = append(c.args, value)
	fmt.Fprintf(&c.text, " AND "+condition, len(c.args))
}

func (c *conditions) addCommon(f *CallFilter) {
	for _, column := range []struct{ name, value string }{
		{"model", f.Model}, {"feature", f.Feature}, {"connection_id", f.ConnectionID},
	} {
		if column.value != "" {
			c.add(column.name+" = $%d", column.value)
		}
	}
}

// BrowseSpends returns spend rows of an app that pass f, newest first: at most limit with an id below before, or from
// the newest if it is "". searchedTo is the id of the oldest row that was looked at; "" = there is no older one.
func BrowseSpends(ctx context.Context, q db.Queryer, f CallFilter, before string,
	limit int) (list []rules.Entry, searchedTo string, err error) {
	before, searchedTo, err = boundSearch(ctx, q, &f, before, `SELECT id FROM ledger WHERE app_id = $1
		AND type = 'spend' AND id < $2 AND id >= $3 ORDER BY id DESC LIMIT 1 OFFSET $4`)
	if err != nil {
		return nil, "", err
	}
	c := conditions{args: []any{f.AppID, before, max(f.FromID, searchedTo)}}
	c.addCommon(&f)
	switch f.Kind {
	case AnySpend:
	case Billed:
		c.text.WriteString(" AND status = 'settled'")
	case Refunds:
		c.text.WriteString(" AND status = 'reversed'")
	default:
		c.text.WriteString(" AND status = 'settled'")
		c.add("settlement = $%d", string(f.Kind))
	}
	if f.MinChargeMC > 0 {
		c.add("user_charge_mc >= $%d", int64(f.MinChargeMC))
	}
	c.args = append(c.args, limit)
	list, err = db.QueryAll(ctx, q, scanEntry, fmt.Sprintf(`SELECT `+entryValues+` FROM ledger WHERE app_id = $1
		AND type = 'spend' AND id < $2 AND id >= $3%s ORDER BY id DESC LIMIT $%d`, c.text.String(), len(c.args)),
		c.args...)
	return list, searchedTo, err
}

// BrowseRefusals is BrowseSpends for refused calls.
func BrowseRefusals(ctx context.Context, q db.Queryer, f CallFilter, before string,
	limit int) (list []rules.Refusal, searchedTo string, err error) {
	before, searchedTo, err = boundSearch(ctx, q, &f, before, `SELECT request_id FROM refusals WHERE app_id = $1
		AND request_id < $2 AND request_id >= $3 ORDER BY request_id DESC LIMIT 1 OFFSET $4`)
	if err != nil {
		return nil, "", err
	}
	c := conditions{args: []any{f.AppID, before, max(f.FromID, searchedTo)}}
	c.addCommon(&f)
	if f.StatusTo > 0 {
		c.add("status >= $%d", f.StatusFrom)
		c.add("status <= $%d", f.StatusTo)
	}
	c.args = append(c.args, limit)
	list, err = db.QueryAll(ctx, q, scanRefusal, fmt.Sprintf(`SELECT `+refusalValues+` FROM refusals WHERE app_id = $1
		AND request_id < $2 AND request_id >= $3%s ORDER BY request_id DESC LIMIT $%d`, c.text.String(), len(c.args)),
		c.args...)
	return list, searchedTo, err
}

// boundSearch returns before, or what is behind every id, and the id of the last row that one page may read; "" =
// there are not more rows than that. The query reads an index alone.
func boundSearch(ctx context.Context, q db.Queryer, f *CallFilter, before, query string) (_, last string, err error) {
	if before == "" {
		before = "~" // behind every id
	}
	if !f.selectsSome() {
		return before, "", nil
	}
	err = q.QueryRowContext(ctx, query, f.AppID, before, f.FromID, maxRowsPerSearch-1).Scan(&last)
	if errors.Is(err, sql.ErrNoRows) {
		return before, "", nil
	}
	return before, last, err
}
