package store

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// A planner asks SQLite how it would answer before it lets a query through.
type planner struct {
	*db.DB
	t *testing.T
}

func (p planner) explain(ctx context.Context, query string, args []any) {
	p.t.Helper()
	rows, err := p.DB.QueryContext(ctx, `EXPLAIN QUERY PLAN `+query, args...)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			p.t.Fatal(err)
		}
		if strings.HasPrefix(detail, "SCAN ") {
			p.t.Errorf("%s\n\t%s", detail, query)
		}
	}
	if err := rows.Err(); err != nil {
		p.t.Fatal(err)
	}
}

func (p planner) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	p.t.Helper()
	p.explain(ctx, query, args)
	return p.DB.QueryContext(ctx, query, args...)
}

func (p planner) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	p.t.Helper()
	p.explain(ctx, query, args)
	return p.DB.QueryRowContext(ctx, query, args...)
}

// The pages of a user read rows of the user's connections by indexes, however many rows others have.
func TestPagesOfUsersUseIndexes(t *testing.T) {
	t.Parallel()
	q, ctx := planner{dbtest.Open(t, db.SQLite), t}, t.Context()
	if _, err := ListDailyTotals(ctx, q, "wac_x", "", "2026-11-01"); err != nil {
		t.Error(err)
	}
	if _, err := ListDailyRefunds(ctx, q, "wac_x", "", time.Unix(1_800_000_000, 0)); err != nil {
		t.Error(err)
	}
	if _, err := ListUsedModels(ctx, q, "wac_x", "2026-11-01", 5); err != nil {
		t.Error(err)
	}
	if _, err := LiveConnectionsOfAccount(ctx, q, "wac_x", 5); err != nil {
		t.Error(err)
	}
	if _, err := entriesBetween(ctx, q, EntryFilter{AccountID: "wac_x", Model: "m"}, 1, 9, 5); err != nil {
		t.Error(err)
	}
	for _, f := range []ConnectionFilter{{}, {AccountID: "wac_x"}, {AppID: "app_x", Status: rules.Frozen}} {
		if _, err := browseConnections(ctx, q, f, "", 5); err != nil {
			t.Error(err)
		}
	}
	if _, err := SpendsOfAccount(ctx, q, "wac_x", 0, 5); err != nil {
		t.Error(err)
	}
	if _, err := FrozenConnections(ctx, q, "wac_x", rules.FrozenByOperator, "why"); err != nil {
		t.Error(err)
	}
	if _, err := FindFreezeTime(ctx, q, "conn_x"); err != sql.ErrNoRows {
		t.Error(err)
	}
}
