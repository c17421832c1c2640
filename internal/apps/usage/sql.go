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

// hourOf returns the SQL of the UTC hour of a column with microseconds, as FormatHour writes it.
func hourOf(engine db.Engine, column string) string {
	if engine == db.SQLite {
		return "strftime('%Y-%m-%d %H:00', " + column + " / 1000000, 'unixepoch')"
	}
	return "to_char(to_timestamp(" + column + " / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24\":00\"')"
}

// tokensOf returns the SQL of the input and output tokens of a ledger row, as the daily totals count them.
func tokensOf(engine db.Engine) (input, output string) {
	sum := func(classes ...string) (text string) {
		for i, class := range classes {
			if i > 0 {
				text += " + "
			}
			if engine == db.SQLite {
				text += "COALESCE(json_extract(l.usage, '$." + class + "'), 0)"
			} else {
				text += "COALESCE((l.usage::json->>'" + class + "')::bigint, 0)"
			}
		}
		return text
	}
	return sum("input", "cached", "cache_write", "audio_input", "audio_cached", "image_input", "image_cached"),
		sum("output", "audio_output")
}

// maxLateness is how much later than its id a row may be written: a call takes ten minutes at most, and its settlement
// is repeated or awaited as long. A row of a call that a dead node left behind for longer is in no hour.
const maxLateness = 2 * time.Hour

// hourStatement returns the SQL of ListHours. A row is of the hour in which it was written, as it is of that day in the
// daily totals. All sides read a range of an index that begins with the app, so that the age and the size of the ledger
// do not matter; ids are of the time when a call began.
func hourStatement(engine db.Engine, by Group) string {
	called := map[Group]string{ByModel: "l.model", ByFeature: "COALESCE(l.bucket, '')"}[by]
	if called == "" {
		called = "''"
	}
	input, output := tokensOf(engine)
	return `SELECT bucket, name, CAST(SUM(calls) AS BIGINT), CAST(SUM(refused) AS BIGINT), CAST(SUM(input) AS BIGINT),
		CAST(SUM(output) AS BIGINT), CAST(SUM(charge) AS BIGINT), CAST(SUM(cost) AS BIGINT),
		CAST(SUM(margin) AS BIGINT) FROM (
		SELECT ` + hourOf(engine, "l.created_us") + ` AS bucket, ` + called + ` AS name, 1 AS calls, 0 AS refused,
			` + input + ` AS input, ` + output + ` AS output, l.user_charge_mc AS charge, l.provider_cost_mc AS cost,
			l.dev_margin_mc AS margin
		FROM ledger l JOIN balances b ON b.account_id = l.account_id
		WHERE l.app_id = $1 AND l.type = 'spend' AND l.status = 'settled' AND l.id >= $2 AND l.id < $3
			AND l.created_us >= $7 AND l.created_us < $8 AND b.sandbox = $4
		UNION ALL
		SELECT ` + hourOf(engine, "l.created_us") + `, ` + called + `, 0, 0, 0, 0,
			-l.user_charge_mc, -l.provider_cost_mc, -l.dev_margin_mc
		FROM ledger l JOIN balances b ON b.account_id = l.account_id
		WHERE l.app_id = $1 AND l.type = 'spend' AND l.status = 'reversed' AND l.id >= $2 AND l.id < $3
			AND l.created_us >= $7 AND l.created_us < $8 AND b.sandbox = $4
		UNION ALL
		SELECT ` + hourOf(engine, "f.created_us") + `, ` + columns[by].refused + `, 0, 1, 0, 0, 0, 0, 0
		FROM refusals f WHERE f.app_id = $1 AND f.request_id >= $5 AND f.request_id < $6
			AND f.created_us >= $7 AND f.created_us < $8) x
		GROUP BY bucket, name ORDER BY bucket, name`
}

// ListHours sums the calls of an app by hour, from one time to before another. It reads the ledger, because daily
// totals have no hours, and does not sum what the cache did.
func ListHours(ctx context.Context, d *db.DB, q Query) ([]Row, error) {
	sandbox := 0
	if q.Sandbox {
		sandbox = 1
	}
	began := q.From.Add(-maxLateness)
	list, err := db.QueryAll(ctx, d, db.ScanFields(func(r *Row) []any {
		return []any{
			&r.Bucket, &r.Group, &r.Calls, &r.Refused, &r.Input, &r.Output, &r.ChargeMC, &r.CostMC, &r.MarginMC,
		}
	}), hourStatement(d.Engine, q.GroupBy), q.AppID, id.Floor(id.Ledger, began), id.Floor(id.Ledger, q.To), sandbox,
		id.Floor(id.Request, began), id.Floor(id.Request, q.To), q.From.UnixMicro(), q.To.UnixMicro())
	if err != nil {
		return nil, fmt.Errorf("usage: hours: %w", err)
	}
	return list, nil
}
