package console

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/store"
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

// newCallSum returns the sum of an app's calls on a day.
func newCallSum(a *store.AppDay, name string) callSum {
	return callSum{
		Name:    name,
		Calls:   a.Calls,
		Input:   a.InputTokens,
		Output:  a.OutputTokens,
		Revenue: a.UserChargeMC,
		Cost:    a.ProviderCostMC,
		Margin:  a.DevMarginMC,
		Cached:  a.CachedTokens,
		Saved:   a.CacheSavedMC,
	}
}

// sumBy sums an app's calls since a day by a column of the daily totals. It never adds fake to real money: of a live
// app, it leaves out test accounts.
func sumBy(ctx context.Context, q db.Queryer, app apps.App, column string, since time.Time) ([]callSum, error) {
	days, err := store.ReadAppDays(ctx, q, store.AppDayFilter{
		AppID:     app.ID,
		Sandbox:   app.Tier == apps.Sandbox,
		From:      formatDay(since),
		ByFeature: column == "feature",
		ByModel:   column == "model",
	})
	if err != nil {
		return nil, fmt.Errorf("console: sums by %s: %w", column, err)
	}
	sums := map[string]callSum{}
	for i := range days {
		a := &days[i]
		name := map[string]string{"day": a.Day, "feature": a.FeatureLabel, "model": a.Model}[column]
		sum := newCallSum(a, name)
		sum.add(sums[name])
		sums[name] = sum
	}
	list := make([]callSum, 0, len(sums))
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		list = append(list, sums[name])
	}
	return list, nil
}

// sumByApp sums the calls of each of the apps since a day: by app, and then by day.
func sumByApp(ctx context.Context, q db.Queryer, list []apps.Membership, since time.Time) (
	map[string]map[string]callSum, error) {
	byApp := map[string]map[string]callSum{}
	for _, app := range list {
		days, err := sumBy(ctx, q, app.App, "day", since)
		if err != nil {
			return nil, err
		}
		byApp[app.ID] = map[string]callSum{}
		for _, s := range days {
			byApp[app.ID][s.Name] = s
		}
	}
	return byApp, nil
}

// listTopConnections sums the calls since a day of the connections whose users spent most, and counts the connections
// with calls. It never adds fake to real money, as sumBy.
func listTopConnections(ctx context.Context, q db.Queryer, app apps.App, since time.Time) (list []callSum, count int64,
	err error) {
	sandbox := 0
	if app.Tier == apps.Sandbox {
		sandbox = 1
	}
	list, err = db.QueryAll(ctx, q, db.ScanFields(func(s *callSum) []any {
		return []any{&s.Name, &s.Calls, &s.Revenue, &count}
	}), `SELECT r.connection_id, CAST(SUM(r.calls) AS BIGINT), CAST(SUM(r.user_charge_mc) AS BIGINT), COUNT(*) OVER ()
		FROM daily_totals r JOIN balances b ON b.account_id = r.account_id
		WHERE r.app_id = $1 AND r.day >= $2 AND b.sandbox = $3
		GROUP BY r.connection_id ORDER BY 3 DESC, 1 LIMIT $4`, app.ID, formatDay(since), sandbox, maxTop)
	if err != nil {
		return nil, 0, fmt.Errorf("console: top connections: %w", err)
	}
	return list, count, nil
}

// findFirsts reports whether an app has ever had a connection, and a billed call.
func findFirsts(ctx context.Context, q db.Queryer, appID string) (connected, called bool, err error) {
	var c, r int64
	err = q.QueryRowContext(ctx,
		`SELECT CASE WHEN EXISTS (SELECT 1 FROM connections WHERE app_id = $1) THEN 1 ELSE 0 END,
		CASE WHEN EXISTS (SELECT 1 FROM daily_totals WHERE app_id = $1) THEN 1 ELSE 0 END`, appID).Scan(&c, &r)
	if err != nil {
		return false, false, fmt.Errorf("console: first connection and call: %w", err)
	}
	return c == 1, r == 1, nil
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
	err = q.QueryRowContext(ctx, `SELECT COUNT(DISTINCT connection_id), CAST(COALESCE(SUM(amount_mc), 0) AS BIGINT)
		FROM holds WHERE state <> 'failed' AND app_id = $1 AND paid_by = 'wallet'`, appID).Scan(&connections, &held)
	if err != nil {
		return 0, 0, fmt.Errorf("console: held now: %w", err)
	}
	return connections, held, nil
}

// dayOf returns the SQL of the UTC day of a column with microseconds.
func dayOf(engine db.Engine, column string) string {
	if engine == db.SQLite {
		return "date(" + column + " / 1000000, 'unixepoch')"
	}
	return "to_char(to_timestamp(" + column + " / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD')"
}

// countByDay returns the numbers of a query of days and numbers.
func countByDay(ctx context.Context, d *db.DB, text string, args ...any) (map[string]int64, error) {
	type line struct {
		day string
		n   int64
	}
	list, err := db.QueryAll(ctx, d, db.ScanFields(func(l *line) []any { return []any{&l.day, &l.n} }), text, args...)
	if err != nil {
		return nil, fmt.Errorf("console: counts by day: %w", err)
	}
	days := map[string]int64{}
	for _, l := range list {
		days[l.day] = l.n
	}
	return days, nil
}

// countActive counts the connections that made a call, by day.
func countActive(ctx context.Context, d *db.DB, app apps.App, since time.Time) (map[string]int64, error) {
	sandbox := 0
	if app.Tier == apps.Sandbox {
		sandbox = 1
	}
	return countByDay(ctx, d, `SELECT r.day, COUNT(DISTINCT r.connection_id)
		FROM daily_totals r JOIN balances b ON b.account_id = r.account_id
		WHERE r.app_id = $1 AND r.day >= $2 AND b.sandbox = $3 GROUP BY r.day`, app.ID, formatDay(since), sandbox)
}

// countActiveBetween counts the connections that made a call from a day on and before another.
func countActiveBetween(ctx context.Context, q db.Queryer, app apps.App, from, before time.Time) (n int64, err error) {
	sandbox := 0
	if app.Tier == apps.Sandbox {
		sandbox = 1
	}
	err = q.QueryRowContext(ctx, `SELECT COUNT(DISTINCT r.connection_id)
		FROM daily_totals r JOIN balances b ON b.account_id = r.account_id
		WHERE r.app_id = $1 AND r.day >= $2 AND r.day < $3 AND b.sandbox = $4`,
		app.ID, formatDay(from), formatDay(before), sandbox).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("console: active connections: %w", err)
	}
	return n, nil
}

// countConnections counts the connections of an app that began, and those that were revoked, by day.
func countConnections(ctx context.Context, d *db.DB, appID string, since time.Time) (began, ended map[string]int64,
	err error) {
	since = since.Truncate(24 * time.Hour)
	began, err = countByDay(ctx, d, `SELECT `+dayOf(d.Engine, "created_us")+`, COUNT(*) FROM connections
		WHERE app_id = $1 AND id >= $2 GROUP BY 1`, appID, id.Floor(id.Connection, since))
	if err != nil {
		return nil, nil, err
	}
	ended, err = countByDay(ctx, d, `SELECT `+dayOf(d.Engine, "revoked_us")+`, COUNT(*) FROM connections
		WHERE app_id = $1 AND revoked_us >= $2 GROUP BY 1`, appID, since.UnixMicro())
	return began, ended, err
}

// countRefusalsByDay counts an app's refusals by day and code.
func countRefusalsByDay(ctx context.Context, d *db.DB, appID string, since time.Time) (map[string]map[string]int64,
	error) {
	type line struct {
		day, code string
		n         int64
	}
	list, err := db.QueryAll(ctx, d, db.ScanFields(func(l *line) []any { return []any{&l.day, &l.code, &l.n} }),
		`SELECT `+dayOf(d.Engine, "created_us")+`, code, COUNT(*) FROM refusals
		WHERE app_id = $1 AND request_id >= $2 GROUP BY 1, 2`, appID, id.Floor(id.Request, since))
	if err != nil {
		return nil, fmt.Errorf("console: refusals by day: %w", err)
	}
	days := map[string]map[string]int64{}
	for _, l := range list {
		if days[l.day] == nil {
			days[l.day] = map[string]int64{}
		}
		days[l.day][l.code] = l.n
	}
	return days, nil
}

// maxTimes is the number of calls whose times are read at most.
const maxTimes = 20_000

// callTimes is how long a call took.
type callTimes struct {
	day     string
	firstMS *int64 // nil = it was not streamed
	lastMS  int64
}

// listTimes returns the times of the newest calls of an app since a time.
func listTimes(ctx context.Context, d *db.DB, appID string, since time.Time) ([]callTimes, error) {
	list, err := db.QueryAll(ctx, d, db.ScanFields(func(t *callTimes) []any {
		return []any{&t.day, &t.firstMS, &t.lastMS}
	}), `SELECT `+dayOf(d.Engine, "created_us")+`, first_byte_ms, duration_ms FROM ledger
		WHERE app_id = $1 AND type = 'spend' AND id >= $2 AND duration_ms IS NOT NULL ORDER BY id DESC LIMIT $3`,
		appID, id.Floor(id.Ledger, since), maxTimes)
	if err != nil {
		return nil, fmt.Errorf("console: times: %w", err)
	}
	return list, nil
}
