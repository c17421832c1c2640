package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// An app may have millions of daily totals: a row for each connection, day, feature and model. So those of days that
// are over are summed once, in app_days, and a sum over months reads these and the daily totals of one or two days. All
// of it is read in steps, so that no statement runs into its time limit, however much there is.

// totalsPerStep is how many daily totals one statement reads. Each may be on a page of its own, and needs the page of
// its account's balance.
const totalsPerStep = 300

// closedDay returns the first day that is not over. A day counts as over 24 hours later: a batch around midnight may
// have added to it, and the clocks of nodes are not quite the same.
func closedDay(now time.Time) string { return now.UTC().Add(-24 * time.Hour).Format(time.DateOnly) }

// AppDay sums the calls of an app on a day.
type AppDay struct {
	Day                    string // 2026-11-21, UTC
	AppID                  string
	Sandbox                bool   // of test accounts
	FeatureLabel, Model    string // "" = of all, or of none
	rules.DailyTotalsDelta        // AppID and AccountID are empty
}

// key is what two sums have in common that are one.
func (a *AppDay) key() AppDay {
	return AppDay{Day: a.Day, AppID: a.AppID, Sandbox: a.Sandbox, FeatureLabel: a.FeatureLabel, Model: a.Model}
}

// addTo adds the sums to others.
func (a *AppDay) addTo(sum *rules.DailyTotalsDelta) {
	sum.Calls += a.Calls
	sum.InputTokens += a.InputTokens
	sum.CachedTokens += a.CachedTokens
	sum.OutputTokens += a.OutputTokens
	sum.ProviderCostMC += a.ProviderCostMC
	sum.SvcFeeMC += a.SvcFeeMC
	sum.DevMarginMC += a.DevMarginMC
	sum.UserChargeMC += a.UserChargeMC
	sum.CacheSavedMC += a.CacheSavedMC
}

// sumColumns are the columns of both tables that are summed.
var sumColumns = []string{
	"calls", "input_tokens", "cached_tokens", "output_tokens", "provider_cost_mc", "svc_fee_mc", "dev_margin_mc",
	"user_charge_mc", "cache_saved_mc",
}

// sums returns where the values of sumColumns are read to.
func (a *AppDay) sums() []any {
	return []any{
		&a.Calls, &a.InputTokens, &a.CachedTokens, &a.OutputTokens, &a.ProviderCostMC, &a.SvcFeeMC, &a.DevMarginMC,
		&a.UserChargeMC, &a.CacheSavedMC,
	}
}

// AppDayFilter selects calls of an app.
type AppDayFilter struct {
	AppID              string
	Sandbox            bool   // those of test accounts, and no others
	From, Before       string // days; "" = no bound
	ByFeature, ByModel bool   // sums for each, else the label or model is ""
}

// ReadAppDays sums an app's calls by day, and by feature and model if asked for, in that order.
func ReadAppDays(ctx context.Context, q db.Queryer, f AppDayFilter) ([]AppDay, error) {
	if f.Before == "" {
		f.Before = "~" // after every day
	}
	head, err := readHead(ctx, q) // first: what is summed meanwhile is not read twice
	if err != nil {
		return nil, fmt.Errorf("ledger: days of %s: %w", f.AppID, err)
	}
	list, err := listClosedDays(ctx, q, f, min(head, f.Before))
	if err != nil {
		return nil, fmt.Errorf("ledger: days of %s: %w", f.AppID, err)
	}
	open, err := sumOpenDays(ctx, q, f, max(head, f.From))
	if err != nil {
		return nil, fmt.Errorf("ledger: open days of %s: %w", f.AppID, err)
	}
	return append(list, open...), nil
}

// readHead returns the first day that is not in app_days.
func readHead(ctx context.Context, q db.Queryer) (day string, err error) {
	err = q.QueryRowContext(ctx, `SELECT day FROM app_days_head`).Scan(&day)
	return day, err
}

// listClosedDays reads the sums of days that are over, up to before.
func listClosedDays(ctx context.Context, q db.Queryer, f AppDayFilter, before string) ([]AppDay, error) {
	if f.From >= before {
		return nil, nil
	}
	feature, model := `''`, `''`
	if f.ByFeature {
		feature = `feature`
	}
	if f.ByModel {
		model = `model`
	}
	var sums strings.Builder
	for _, column := range sumColumns {
		sums.WriteString(`, CAST(SUM(` + column + `) AS BIGINT)`)
	}
	return db.QueryAll(ctx, q, db.ScanFields(func(a *AppDay) []any {
		a.AppID, a.Sandbox = f.AppID, f.Sandbox
		return append([]any{&a.Day, &a.FeatureLabel, &a.Model}, a.sums()...)
	}), `SELECT day, `+feature+`, `+model+sums.String()+` FROM app_days
		WHERE app_id = $1 AND sandbox = $2 AND day >= $3 AND day < $4 GROUP BY 1, 2, 3 ORDER BY 1, 2, 3`,
		f.AppID, db.BoolInt(f.Sandbox), f.From, before)
}

// A walkedTotal is one row of daily_totals.
type walkedTotal struct {
	connectionID string
	AppDay
}

func scanWalked(row db.Row) (t walkedTotal, err error) {
	var sandbox int64
	err = row.Scan(append([]any{&t.Day, &t.connectionID, &t.FeatureLabel, &t.Model, &t.AppID, &sandbox},
		t.sums()...)...)
	t.Sandbox = sandbox != 0
	return t, err
}

// walkQuery reads one step of the daily totals that a condition finds, in an order that an index has.
func walkQuery(condition, order string) string {
	return `SELECT r.day, r.connection_id, r.feature, r.model, r.app_id, b.sandbox, r.` +
		strings.Join(sumColumns, `, r.`) + `
		FROM (SELECT * FROM daily_totals WHERE ` + condition + ` ORDER BY ` + order + ` LIMIT ` +
		fmt.Sprint(totalsPerStep) + `) AS r JOIN balances b ON b.account_id = r.account_id ORDER BY ` + order
}

// sumOpenDays sums the daily totals of an app from a day on.
func sumOpenDays(ctx context.Context, q db.Queryer, f AppDayFilter, from string) ([]AppDay, error) {
	sums := daySums{}
	for last := (walkedTotal{AppDay: AppDay{Day: from}}); ; {
		step, err := db.QueryAll(ctx, q, scanWalked,
			walkQuery(`app_id = $1 AND (day, connection_id, feature, model) > ($2, $3, $4, $5) AND day < $6`,
				`day, connection_id, feature, model`),
			f.AppID, last.Day, last.connectionID, last.FeatureLabel, last.Model, f.Before)
		if err != nil {
			return nil, err
		}
		for _, t := range step {
			if last = t; t.Sandbox != f.Sandbox {
				continue
			}
			if !f.ByFeature {
				t.FeatureLabel = ""
			}
			if !f.ByModel {
				t.Model = ""
			}
			sums.add(&t.AppDay)
		}
		if len(step) < totalsPerStep {
			return sums.list(), nil
		}
	}
}

// A DayWalk sums the daily totals of all apps on a day, in steps. When it is cut off, it goes on where it was: a day
// may take longer than a run of a job, and a run that began anew would never end. It is for one job.
type DayWalk struct {
	day  string
	last walkedTotal
	sums daySums
}

// Sum sums a day, or goes on with it. A row that changes after the walk has passed it is summed as it was.
func (w *DayWalk) Sum(ctx context.Context, d *db.DB, day string) ([]AppDay, error) {
	if w.day != day {
		*w = DayWalk{day: day, sums: daySums{}}
	}
	for {
		var step []walkedTotal
		err := d.InTurn(ctx, func() (err error) {
			step, err = db.QueryAll(ctx, d, scanWalked,
				walkQuery(`day = $1 AND (connection_id, feature, model) > ($2, $3, $4)`,
					`connection_id, feature, model`),
				day, w.last.connectionID, w.last.FeatureLabel, w.last.Model)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("ledger: totals of %s: %w", day, err)
		}
		for _, t := range step {
			w.last = t
			w.sums.add(&t.AppDay)
		}
		if len(step) < totalsPerStep {
			return w.sums.list(), nil
		}
	}
}

// daySums are sums by what they are of.
type daySums map[AppDay]*AppDay

func (s daySums) add(a *AppDay) {
	sum := s[a.key()]
	if sum == nil {
		of := a.key()
		sum = &of
		s[of] = sum
	}
	a.addTo(&sum.DailyTotalsDelta)
}

// list returns the sums by day, app, feature and model.
func (s daySums) list() []AppDay {
	list := make([]AppDay, 0, len(s))
	for _, sum := range s {
		list = append(list, *sum)
	}
	slices.SortFunc(list, func(a, b AppDay) int {
		return slices.Compare([]string{a.Day, a.AppID, a.FeatureLabel, a.Model},
			[]string{b.Day, b.AppID, b.FeatureLabel, b.Model})
	})
	return list
}

// NextTotalsDay returns the first day from day on that has daily totals; "" = there is none.
func NextTotalsDay(ctx context.Context, q db.Queryer, day string) (next string, err error) {
	err = q.QueryRowContext(ctx, `SELECT COALESCE(MIN(day), '') FROM daily_totals WHERE day >= $1`, day).Scan(&next)
	return next, err
}

// CloseDays sums the days that are over and are not in app_days yet, one after the other, so that a run that ends early
// is no loss; w is where it was. Several nodes may do so at once: they store the same sums.
func CloseDays(ctx context.Context, d *db.DB, w *DayWalk, now time.Time) error {
	closed := closedDay(now)
	for {
		head, err := readHead(ctx, d)
		if err != nil || head >= closed {
			return err
		}
		day, err := NextTotalsDay(ctx, d, head)
		if err != nil {
			return err
		}
		next := closed
		if day != "" && day < closed {
			if err := closeOneDay(ctx, d, w, day); err != nil {
				return err
			}
			if next, err = dayAfter(day); err != nil {
				return err
			}
		}
		if _, err := d.ExecContext(ctx, `UPDATE app_days_head SET day = $1 WHERE day = $2`, next, head); err != nil {
			return err
		}
	}
}

func dayAfter(day string) (string, error) {
	at, err := time.Parse(time.DateOnly, day)
	return at.AddDate(0, 0, 1).Format(time.DateOnly), err
}

// rowsPerInsert bounds the rows of a statement, and of its transaction.
const rowsPerInsert = 500

// closeOneDay stores the sums of a day. Nothing reads them before the head has passed it.
func closeOneDay(ctx context.Context, d *db.DB, w *DayWalk, day string) error {
	list, err := w.Sum(ctx, d, day)
	if err != nil {
		return err
	}
	columns := append([]string{"app_id", "sandbox", "day", "feature", "model"}, sumColumns...)
	set := make([]string, len(sumColumns))
	for i, column := range sumColumns {
		set[i] = column + ` = excluded.` + column
	}
	for rows := range slices.Chunk(list, rowsPerInsert) {
		args := make([]any, 0, len(rows)*len(columns))
		for _, a := range rows {
			args = append(args, a.AppID, db.BoolInt(a.Sandbox), a.Day, a.FeatureLabel, a.Model, a.Calls, a.InputTokens,
				a.CachedTokens, a.OutputTokens, a.ProviderCostMC, a.SvcFeeMC, a.DevMarginMC, a.UserChargeMC,
				a.CacheSavedMC)
		}
		err := d.InTurn(ctx, func() error {
			_, err := d.ExecContext(ctx, `INSERT INTO app_days (`+strings.Join(columns, ", ")+`)
				VALUES `+db.Places(len(rows), len(columns))+`
				ON CONFLICT (app_id, sandbox, day, feature, model) DO UPDATE SET `+strings.Join(set, ", "), args...)
			return err
		})
		if err != nil {
			return fmt.Errorf("ledger: close %s: %w", day, err)
		}
	}
	return nil
}
