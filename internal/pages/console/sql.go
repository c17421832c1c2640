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

// A callSum sums calls.
type callSum struct {
	Name                  string
	Calls, Input, Output  int64
	Revenue, Cost, Margin money.MC
	Cached                int64    // of Input: read from the provider's cache
	Saved                 money.MC // by the cache; negative = writing cost more
}

func (s *callSum) add(t callSum) {
	s.Calls += t.Calls
	s.Input += t.Input
	s.Output += t.Output
	s.Revenue += t.Revenue
	s.Cost += t.Cost
	s.Margin += t.Margin
	s.Cached += t.Cached
	s.Saved += t.Saved
}

// sumColumns are the sums of callSum. On PostgreSQL, a SUM of BIGINT is NUMERIC unless it is cast.
const sumColumns = `CAST(SUM(r.calls) AS BIGINT), CAST(SUM(r.input_tokens) AS BIGINT),
	CAST(SUM(r.output_tokens) AS BIGINT), CAST(SUM(r.user_charge_mc) AS BIGINT),
	CAST(SUM(r.provider_cost_mc) AS BIGINT), CAST(SUM(r.dev_margin_mc) AS BIGINT),
	CAST(SUM(r.cached_tokens) AS BIGINT), CAST(SUM(r.cache_saved_mc) AS BIGINT)`

// querySums returns one sum for each group.
func querySums(ctx context.Context, q db.Queryer, text string, args ...any) ([]callSum, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(s *callSum) []any {
		return []any{&s.Name, &s.Calls, &s.Input, &s.Output, &s.Revenue, &s.Cost, &s.Margin, &s.Cached, &s.Saved}
	}), text, args...)
}

// sumBy sums an app's calls since a day by a column of the daily totals. It never adds fake to real money: of a live
// app, it leaves out test accounts.
func sumBy(ctx context.Context, q db.Queryer, app apps.App, column string, since time.Time) ([]callSum, error) {
	sandbox := 0
	if app.Tier == apps.Sandbox {
		sandbox = 1
	}
	list, err := querySums(ctx, q,
		`SELECT r.`+column+`, `+sumColumns+` FROM rollups r JOIN balances b ON b.account_id = r.account_id
		WHERE r.app_id = $1 AND r.day >= $2 AND b.sandbox = $3 GROUP BY r.`+column+` ORDER BY r.`+column, app.ID,
		formatDay(since), sandbox)
	if err != nil {
		return nil, fmt.Errorf("console: sums by %s: %w", column, err)
	}
	return list, nil
}

// sumByApp sums the calls of each of the apps in which an account has a role, since a day.
func sumByApp(ctx context.Context, q db.Queryer, accountID string, since time.Time) (map[string]callSum, error) {
	list, err := querySums(ctx, q,
		`SELECT r.app_id, `+sumColumns+
			` FROM apps a JOIN rollups r ON r.app_id = a.id JOIN balances b ON b.account_id = r.account_id
		WHERE a.id IN (`+apps.MemberAppsSQL+
			`) AND r.day >= $2 AND b.sandbox = CASE WHEN a.tier = 'sandbox' THEN 1 ELSE 0 END
		GROUP BY r.app_id`, accountID, formatDay(since))
	if err != nil {
		return nil, fmt.Errorf("console: sums by app: %w", err)
	}
	byID := map[string]callSum{}
	for _, s := range list {
		byID[s.Name] = s
	}
	return byID, nil
}

func formatDay(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// A refusalCount counts the refusals with one code.
type refusalCount struct {
	code   string
	n      int64
	lastUS int64
}

// countRefusals counts an app's refusals since a time by code, the most frequent first.
func countRefusals(ctx context.Context, q db.Queryer, appID string, since time.Time) (list []refusalCount, err error) {
	list, err = db.QueryAll(ctx, q, db.ScanFields(func(r *refusalCount) []any {
		return []any{&r.code, &r.n, &r.lastUS}
	}), `SELECT code, COUNT(*), MAX(created_us) FROM refusals WHERE app_id = $1 AND request_id >= $2
		GROUP BY code ORDER BY 2 DESC, code`, appID, id.Floor(id.Request, since))
	if err != nil {
		return nil, fmt.Errorf("console: refusals: %w", err)
	}
	return list, nil
}

// sumHeld sums what is held for an app's calls in progress, and counts the connections that hold it.
func sumHeld(ctx context.Context, q db.Queryer, appID string) (connections int64, held money.MC, err error) {
	err = q.QueryRowContext(ctx,
		`SELECT COUNT(*), CAST(COALESCE(SUM(held_mc), 0) AS BIGINT) FROM connections WHERE app_id = $1 AND held_mc > 0`,
		appID).Scan(&connections, &held)
	if err != nil {
		return 0, 0, fmt.Errorf("console: held now: %w", err)
	}
	return connections, held, nil
}
