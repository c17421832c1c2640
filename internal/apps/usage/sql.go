package usage

import (
	"context"
	"fmt"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
)

// bucketOf returns the SQL of the first day of the bucket of a day.
func (i Interval) bucketOf(engine db.Engine, day string) string {
	switch {
	case i == Month:
		return "substr(" + day + ", 1, 7) || '-01'"
	case i == Week && engine == db.SQLite:
		return "date(" + day + ", '-6 days', 'weekday 1')"
	case i == Week:
		return "to_char(date_trunc('week', CAST(" + day + " AS date)), 'YYYY-MM-DD')"
	}
	return day
}

// dayOf returns the SQL of the UTC day of a column with microseconds.
func dayOf(engine db.Engine, column string) string {
	if engine == db.SQLite {
		return "date(" + column + " / 1000000, 'unixepoch')"
	}
	return "to_char(to_timestamp(" + column + " / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD')"
}

// statement returns the SQL of a query.
func (q Query) statement(engine db.Engine) string {
	c := columns[q.GroupBy]
	return `SELECT bucket, name, CAST(SUM(calls) AS BIGINT), CAST(SUM(refused) AS BIGINT), CAST(SUM(input) AS BIGINT),
		CAST(SUM(output) AS BIGINT), CAST(SUM(cached) AS BIGINT), CAST(SUM(charge) AS BIGINT),
		CAST(SUM(cost) AS BIGINT), CAST(SUM(margin) AS BIGINT), CAST(SUM(saved) AS BIGINT) FROM (
		SELECT ` + q.Interval.bucketOf(engine,
		"r.day") + ` AS bucket, ` + c.called + ` AS name, r.calls AS calls, 0 AS refused,
			r.input_tokens AS input, r.output_tokens AS output, r.cached_tokens AS cached, r.user_charge_mc AS charge,
			r.provider_cost_mc AS cost, r.dev_margin_mc AS margin, r.cache_saved_mc AS saved
		FROM rollups r JOIN balances b ON b.account_id = r.account_id
		WHERE r.app_id = $1 AND r.day >= $2 AND r.day <= $3 AND b.sandbox = $4 AND ($5 = '' OR r.model = $5)
			AND ($6 = '' OR r.feature = $6) AND ($7 = '' OR r.connection_id = $7)
		UNION ALL
		SELECT ` + q.Interval.bucketOf(engine, dayOf(engine,
		"f.created_us")) + `, ` + c.refused + `,
			0, 1, 0, 0, 0, 0, 0, 0, 0
		FROM refusals f WHERE f.app_id = $1 AND f.request_id >= $8 AND f.request_id < $9 AND ($5 = '' OR f.model = $5)
			AND ($6 = '' OR f.feature = $6) AND ($7 = '' OR f.connection_id = $7)) x
		WHERE bucket > $10 OR bucket = $10 AND name > $11 GROUP BY bucket, name ORDER BY bucket, name LIMIT $12`
}

// List returns the rows, by bucket and group. A bucket and group without a call and a refusal has none.
func List(ctx context.Context, d *db.DB, q Query) ([]Row, error) {
	sandbox, limit, from, to := 0, q.Limit, q.From.UTC(), q.To.UTC()
	if q.Sandbox {
		sandbox = 1
	}
	if limit == 0 {
		limit = 1_000_000
	}
	first := from.Truncate(24 * time.Hour)
	list, err := db.QueryAll(ctx, d, db.ScanFields(func(r *Row) []any {
		return []any{
			&r.Bucket, &r.Group, &r.Calls, &r.Refused, &r.Input, &r.Output, &r.Cached, &r.ChargeMC, &r.CostMC,
			&r.MarginMC, &r.SavedMC,
		}
	}), q.statement(d.Engine), q.AppID, FormatDay(from), FormatDay(to), sandbox, q.Model, q.Feature, q.Connection,
		id.Floor(id.Request, first), id.Floor(id.Request, to.Truncate(24*time.Hour).AddDate(0, 0, 1)),
		q.AfterBucket, q.AfterGroup, limit)
	if err != nil {
		return nil, fmt.Errorf("usage: %w", err)
	}
	return list, nil
}
