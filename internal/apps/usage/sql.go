package usage

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/ledger/store"
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

// bucketStart returns the first day of the bucket of a day.
func (i Interval) bucketStart(day string) (string, error) {
	switch i {
	case Month:
		return day[:len("2026-11")] + "-01", nil
	case Week:
		at, err := time.Parse(time.DateOnly, day)
		if err != nil {
			return "", err
		}
		return FormatDay(at.AddDate(0, 0, -(int(at.Weekday())+6)%7)), nil
	}
	return day, nil
}

// statement returns the SQL of a query by connections, or of one connection. It reads the daily totals of connections.
func (q Query) statement(engine db.Engine) string {
	c := columns[q.GroupBy]
	return `SELECT bucket, name, CAST(SUM(calls) AS BIGINT), CAST(SUM(refused) AS BIGINT), CAST(SUM(input) AS BIGINT),
		CAST(SUM(output) AS BIGINT), CAST(SUM(cached) AS BIGINT), CAST(SUM(charge) AS BIGINT),
		CAST(SUM(cost) AS BIGINT), CAST(SUM(margin) AS BIGINT), CAST(SUM(saved) AS BIGINT) FROM (
		SELECT ` + q.Interval.bucketOf(engine,
		"r.day") + ` AS bucket, ` + c.called + ` AS name, r.calls AS calls, 0 AS refused,
			r.input_tokens AS input, r.output_tokens AS output, r.cached_tokens AS cached, r.user_charge_mc AS charge,
			r.provider_cost_mc AS cost, r.dev_margin_mc AS margin, r.cache_saved_mc AS saved
		FROM daily_totals r JOIN balances b ON b.account_id = r.account_id
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
	read := listGroups
	if q.GroupBy == ByConnection || q.Connection != "" {
		read = listConnections
	}
	list, err := read(ctx, d, q)
	if err != nil {
		return nil, fmt.Errorf("usage: %w", err)
	}
	return list, nil
}

// listGroups is List for all connections together. It reads the sums of the app's days.
func listGroups(ctx context.Context, d *db.DB, q Query) ([]Row, error) {
	days, err := store.ReadAppDays(ctx, d, store.AppDayFilter{
		AppID:     q.AppID,
		Sandbox:   q.Sandbox,
		From:      FormatDay(q.From),
		Before:    FormatDay(q.To.UTC().AddDate(0, 0, 1)),
		ByFeature: q.GroupBy == ByFeature || q.Feature != "",
		ByModel:   q.GroupBy == ByModel || q.Model != "",
	})
	if err != nil {
		return nil, err
	}
	refused, err := listRefused(ctx, d, q)
	if err != nil {
		return nil, err
	}
	type place struct{ bucket, group string }
	sums := map[place]Sum{}
	add := func(day, group string, s Sum) error {
		bucket, err := q.Interval.bucketStart(day)
		if err != nil {
			return err
		}
		s.Add(sums[place{bucket, group}])
		sums[place{bucket, group}] = s
		return nil
	}
	for i := range days {
		a := &days[i]
		if q.Feature != "" && a.FeatureLabel != q.Feature || q.Model != "" && a.Model != q.Model {
			continue
		}
		group := map[Group]string{ByFeature: a.FeatureLabel, ByModel: a.Model}[q.GroupBy]
		if err := add(a.Day, group, sumOf(a)); err != nil {
			return nil, err
		}
	}
	for _, r := range refused {
		if err := add(r.Bucket, r.Group, r.Sum); err != nil {
			return nil, err
		}
	}
	var list []Row
	for at, sum := range sums {
		if at.bucket > q.AfterBucket || at.bucket == q.AfterBucket && at.group > q.AfterGroup {
			list = append(list, Row{Bucket: at.bucket, Group: at.group, Sum: sum})
		}
	}
	slices.SortFunc(list, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Bucket, b.Bucket), cmp.Compare(a.Group, b.Group))
	})
	if q.Limit > 0 {
		list = list[:min(len(list), q.Limit)]
	}
	return list, nil
}

func sumOf(a *store.AppDay) Sum {
	return Sum{
		Calls:    a.Calls,
		Input:    a.InputTokens,
		Output:   a.OutputTokens,
		Cached:   a.CachedTokens,
		ChargeMC: a.UserChargeMC,
		CostMC:   a.ProviderCostMC,
		MarginMC: a.DevMarginMC,
		SavedMC:  a.CacheSavedMC,
	}
}

// listRefused counts refusals by day and group.
func listRefused(ctx context.Context, d *db.DB, q Query) ([]Row, error) {
	from, to := q.From.UTC().Truncate(24*time.Hour), q.To.UTC().Truncate(24*time.Hour).AddDate(0, 0, 1)
	return db.QueryAll(ctx, d, db.ScanFields(func(r *Row) []any {
		return []any{&r.Bucket, &r.Group, &r.Refused}
	}), `SELECT `+dayOf(d.Engine, "f.created_us")+`, `+columns[q.GroupBy].refused+`, COUNT(*) FROM refusals f
		WHERE f.app_id = $1 AND f.request_id >= $2 AND f.request_id < $3 AND ($4 = '' OR f.model = $4)
			AND ($5 = '' OR f.feature = $5) GROUP BY 1, 2`,
		q.AppID, id.Floor(id.Request, from), id.Floor(id.Request, to), q.Model, q.Feature)
}

// listConnections is List by connections, or of one.
func listConnections(ctx context.Context, d *db.DB, q Query) ([]Row, error) {
	sandbox, limit, from, to := 0, q.Limit, q.From.UTC(), q.To.UTC()
	if q.Sandbox {
		sandbox = 1
	}
	if limit == 0 {
		limit = 1_000_000
	}
	first := from.Truncate(24 * time.Hour)
	return db.QueryAll(ctx, d, db.ScanFields(func(r *Row) []any {
		return []any{
			&r.Bucket, &r.Group, &r.Calls, &r.Refused, &r.Input, &r.Output, &r.Cached, &r.ChargeMC, &r.CostMC,
			&r.MarginMC, &r.SavedMC,
		}
	}), q.statement(d.Engine), q.AppID, FormatDay(from), FormatDay(to), sandbox, q.Model, q.Feature, q.Connection,
		id.Floor(id.Request, first), id.Floor(id.Request, to.Truncate(24*time.Hour).AddDate(0, 0, 1)),
		q.AfterBucket, q.AfterGroup, limit)
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
	called := map[Group]string{ByModel: "l.model", ByFeature: "COALESCE(l.feature_label, '')"}[by]
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
