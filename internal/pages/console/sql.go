package console

import (
	"context"
	"fmt"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
)

// A sum is what calls came to.
type sum struct {
	Name                  string
	Calls, Input, Output  int64
	Revenue, Cost, Margin money.MC
}

func (s *sum) add(t sum) {
	s.Calls += t.Calls
	s.Input += t.Input
	s.Output += t.Output
	s.Revenue += t.Revenue
	s.Cost += t.Cost
	s.Margin += t.Margin
}

// figures sums what a row of rollups has. A SUM is NUMERIC on PostgreSQL unless
// it is cast.
const figures = `CAST(SUM(r.calls) AS BIGINT), CAST(SUM(r.input_tokens) AS BIGINT), CAST(SUM(r.output_tokens) AS BIGINT),
	CAST(SUM(r.user_charge_mc) AS BIGINT), CAST(SUM(r.provider_cost_mc) AS BIGINT), CAST(SUM(r.dev_margin_mc) AS BIGINT)`

// sums reads one line for each group.
func sums(ctx context.Context, q db.Queryer, text string, args ...any) ([]sum, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(s *sum) []any {
		return []any{&s.Name, &s.Calls, &s.Input, &s.Output, &s.Revenue, &s.Cost, &s.Margin}
	}), text, args...)
}

// by sums an app's calls since a day by a column of rollups. Fake and real money
// are never added up: a live app shows what real accounts spent.
func by(ctx context.Context, q db.Queryer, app apps.App, column string, since time.Time) ([]sum, error) {
	fake := 0
	if app.Tier == apps.Sandbox {
		fake = 1
	}
	list, err := sums(ctx, q,
		`SELECT r.`+column+`, `+figures+` FROM rollups r JOIN balances b ON b.account_id = r.account_id
		WHERE r.app_id = $1 AND r.day >= $2 AND b.sandbox = $3 GROUP BY r.`+column+` ORDER BY r.`+column, app.ID,
		day(since), fake)
	if err != nil {
		return nil, fmt.Errorf("console: sums by %s: %w", column, err)
	}
	return list, nil
}

// byApp sums the calls of each of a developer's apps since a day.
func byApp(ctx context.Context, q db.Queryer, ownerID string, since time.Time) (map[string]sum, error) {
	list, err := sums(ctx, q,
		`SELECT r.app_id, `+figures+
			` FROM apps a JOIN rollups r ON r.app_id = a.id JOIN balances b ON b.account_id = r.account_id
		WHERE a.owner_id = $1 AND r.day >= $2 AND b.sandbox = CASE WHEN a.tier = 'sandbox' THEN 1 ELSE 0 END GROUP BY r.app_id`, ownerID, day(since))
	if err != nil {
		return nil, fmt.Errorf("console: sums by app: %w", err)
	}
	byID := map[string]sum{}
	for _, s := range list {
		byID[s.Name] = s
	}
	return byID, nil
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// A refused is how often calls were refused with a code.
type refused struct {
	code   string
	n      int64
	lastUS int64
}

// refusedBy counts an app's refusals since a time by code, the most frequent first.
func refusedBy(ctx context.Context, q db.Queryer, appID string, since time.Time) (list []refused, err error) {
	list, err = db.QueryAll(ctx, q, db.ScanFields(func(r *refused) []any {
		return []any{&r.code, &r.n, &r.lastUS}
	}), `SELECT code, COUNT(*), MAX(created_us) FROM refusals WHERE app_id = $1 AND request_id >= $2 GROUP BY code ORDER BY 2 DESC, code`, appID, id.Floor(id.Request, since))
	if err != nil {
		return nil, fmt.Errorf("console: refusals: %w", err)
	}
	return list, nil
}

// heldNow sums what is held for calls in flight of an app, and on how many
// connections.
func heldNow(ctx context.Context, q db.Queryer, appID string) (connections int64, held money.MC, err error) {
	err = q.QueryRowContext(ctx,
		`SELECT COUNT(*), CAST(COALESCE(SUM(held_mc), 0) AS BIGINT) FROM connections WHERE app_id = $1 AND held_mc > 0`,
		appID).Scan(&connections, &held)
	if err != nil {
		return 0, 0, fmt.Errorf("console: held now: %w", err)
	}
	return connections, held, nil
}
