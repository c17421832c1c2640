package store

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// fillTotals inserts daily totals of an app: of three days, of so many connections each, one of them of a test account,
// with two models.
func fillTotals(t *testing.T, d *db.DB, connections int) {
	t.Helper()
	for _, text := range []string{
		`INSERT INTO balances (account_id, sandbox, available_mc, reserved_mc, seq, head)
			VALUES ('wac_r', 0, 0, 0, 0, ''), ('wac_t', 1, 0, 0, 0, '')`,
		`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)
			INSERT INTO daily_totals (day, connection_id, feature, model, app_id, account_id, calls, input_tokens,
				output_tokens, provider_cost_mc, svc_fee_mc, dev_margin_mc, user_charge_mc, cached_tokens,
				cache_saved_mc)
			SELECT days.day, 'conn_' || i, 'chat', models.model, 'app_' || (i % 2),
				CASE WHEN i <= 2 THEN 'wac_t' ELSE 'wac_r' END, 1, 2, 3, 4, 5, 6, 15, 1, 7
			FROM n, (SELECT '2026-11-01' AS day UNION ALL SELECT '2026-11-02' UNION ALL SELECT '2026-11-27') AS days,
				(SELECT 'a' AS model UNION ALL SELECT 'b') AS models`,
	} {
		var args []any
		if text[0] == 'W' {
			args = append(args, connections)
		}
		if _, err := d.ExecContext(t.Context(), text, args...); err != nil {
			t.Fatal(err)
		}
	}
}

// A sum is the same whether its days are summed by the job or not, and is read in steps.
func TestAppDays(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		const connections = 2*totalsPerStep + 2 // of two apps
		fillTotals(t, d, connections)
		ctx, now := t.Context(), time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
		check := func(when string) {
			t.Helper()
			list, err := ReadAppDays(ctx, d, AppDayFilter{AppID: "app_1", From: "2026-11-02", ByModel: true})
			if err != nil || len(list) != 4 {
				t.Fatalf("%s: %d sums, %v", when, len(list), err)
			}
			for i, want := range []struct{ day, model string }{
				{"2026-11-02", "a"}, {"2026-11-02", "b"}, {"2026-11-27", "a"}, {"2026-11-27", "b"},
			} {
				if g := list[i]; g.Day != want.day || g.Model != want.model || g.FeatureLabel != "" ||
					g.Calls != totalsPerStep || g.DevMarginMC != 6*totalsPerStep || g.CacheSavedMC != 7*totalsPerStep {
					t.Errorf("%s: %+v, want %v", when, g, want)
				}
			}
			test, err := ReadAppDays(ctx, d, AppDayFilter{AppID: "app_0", Sandbox: true, Before: "2026-11-02"})
			if err != nil || len(test) != 1 || test[0].Calls != 2 || test[0].UserChargeMC != 30 {
				t.Errorf("%s: test accounts: %+v, %v", when, test, err)
			}
			m, err := ReadAppMargin(ctx, d, "app_1", now)
			if err != nil || m.EarnedMC != 3*2*6*totalsPerStep || m.ClosedMC != 2*2*6*totalsPerStep ||
				m.ClosedDay != "2026-11-27" {
				t.Errorf("%s: %+v, %v", when, m, err)
			}
			if day, err := LastMarginDay(ctx, d, "app_1"); err != nil || day != "2026-11-27" {
				t.Errorf("%s: last margin on %q, %v", when, day, err)
			}
		}
		check("before the job")
		if err := CloseDays(ctx, d, &DayWalk{}, now); err != nil {
			t.Fatal(err)
		}
		if head, err := readHead(ctx, d); err != nil || head != "2026-11-27" {
			t.Errorf("days are closed up to %q, %v", head, err)
		}
		check("after the job")
		// Closed days are not read from the totals of connections any more.
		if _, err := d.ExecContext(ctx, `DELETE FROM daily_totals WHERE day < '2026-11-27'`); err != nil {
			t.Fatal(err)
		}
		check("without the totals")
		if err := CloseDays(ctx, d, &DayWalk{}, now); err != nil {
			t.Fatal(err)
		}
	})
}

// A job that has no time left keeps the days that it has summed.
func TestCloseDaysKeepsItsProgress(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		fillTotals(t, d, 4)
		ctx, now := t.Context(), time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
		ended, cancel := context.WithCancel(ctx)
		if err := closeOneDay(ctx, d, &DayWalk{}, "2026-11-01"); err != nil {
			t.Fatal(err)
		}
		if _, err := d.ExecContext(ctx, `UPDATE app_days_head SET day = '2026-11-02'`); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := CloseDays(ended, d, &DayWalk{}, now); err == nil {
			t.Error("a job without time ended as if it were done")
		}
		if head, err := readHead(ctx, d); err != nil || head != "2026-11-02" {
			t.Errorf("days are closed up to %q, %v", head, err)
		}
	})
}

// TestLongDays: a day that takes longer than each run of the job is summed at some time, and once.
func TestLongDays(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		const connections = 5 * totalsPerStep / 2 // five steps a day
		fillTotals(t, d, connections)
		now, runs := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC), 0
		var w DayWalk
		for done := false; !done; runs++ {
			if runs > 50 {
				t.Fatal("the job has no end")
			}
			run, cancel := context.WithCancel(t.Context())
			steps := 0
			d.Trace(func(query string, _ []any) {
				if strings.Contains(query, "FROM daily_totals WHERE day = $1") {
					steps++
				}
				if steps == 3 {
					cancel()
				}
			})
			done = CloseDays(run, d, &w, now) == nil
			cancel()
		}
		d.Trace(nil)
		list, err := ReadAppDays(t.Context(), d, AppDayFilter{AppID: "app_1", Before: "2026-11-27"})
		const calls = connections - 2 // without those of a test account
		if err != nil || len(list) != 2 || list[0].Calls != calls || list[1].Calls != calls || runs < 4 {
			t.Errorf("%+v after %d runs, %v", list, runs, err)
		}
	})
}

// The newest row of a connection is found, however many rows its account has since.
func TestNewestEntryOfIdleConnection(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		const last = 3*maxRowsPerPage + 100
		begin := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
		// A row each minute. conn_x has the first move, and calls up to row 2000; conn_m a move at 3000 alone.
		if _, err := d.ExecContext(ctx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)
			INSERT INTO ledger (id, account_id, seq, type, status, connection_id, app_id, provider_cost_mc, svc_fee_mc,
				dev_margin_mc, user_charge_mc, available_delta_mc, reserved_delta_mc, allocation_delta_mc,
				consumed_delta_mc, created_us, hash)
			SELECT 'led_' || i, 'wac_x', i, CASE WHEN i IN (1, 3000) THEN 'connect' ELSE 'spend' END, 'settled',
				CASE WHEN i = 3000 THEN 'conn_m' WHEN i = 1 OR i IN (500, 2000) THEN 'conn_x' ELSE 'conn_y' END,
				'app_x', 0, 0, 0, 0, 0, 0, 0, 0, $2 + CAST(i AS BIGINT) * 60000000, 'h' FROM n`, last,
			begin.UnixMicro()); err != nil {
			t.Fatal(err)
		}
		day := begin.Add(2000 * time.Minute).Format(time.DateOnly)
		if _, err := d.ExecContext(ctx, `INSERT INTO daily_totals (day, connection_id, feature, model, app_id,
			account_id, calls, input_tokens, output_tokens, provider_cost_mc, svc_fee_mc, dev_margin_mc, user_charge_mc,
			cached_tokens,
			cache_saved_mc) VALUES ($1, 'conn_x', '', 'm', 'app_x', 'wac_x', 1, 1, 1, 1, 1, 1, 1, 1, 1)`,
			day); err != nil {
			t.Fatal(err)
		}
		for connectionID, want := range map[string]int64{
			"conn_x": 2000, "conn_y": last, "conn_m": 3000, "conn_none": 0,
		} {
			e, err := NewestEntry(ctx, d, "wac_x", connectionID, last)
			if e.Seq != want || (err != nil) != (want == 0) {
				t.Errorf("%s: row %d, %v; want %d", connectionID, e.Seq, err, want)
			}
		}
	})
}

// Reversed calls are summed in steps, of which a microsecond needs several: each counts once, without those of test
// accounts, of another app and of another time.
func TestSumReversedInSteps(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		const rows, sameTime = 4*reversedPerStep + 7, 3*reversedPerStep + 1
		for _, query := range []string{
			`INSERT INTO balances (account_id, sandbox, available_mc, reserved_mc, seq, head)
				VALUES ('wac_r', 0, 0, 0, 0, ''), ('wac_t', 1, 0, 0, 0, '')`,
			fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
				INSERT INTO ledger (id, account_id, seq, type, status, reversal_of, connection_id, app_id,
					provider_cost_mc, svc_fee_mc, dev_margin_mc, user_charge_mc, available_delta_mc, reserved_delta_mc,
					allocation_delta_mc, consumed_delta_mc, created_us, hash)
				SELECT apps.app || i, accounts.account, CASE apps.app WHEN 'app_x' THEN i ELSE %d + i END, 'spend',
					'reversed', 'led_' || apps.app || accounts.account || i, 'conn_x', apps.app, 1, 2, 3, 6, 0, 0, 0, 0,
					CASE WHEN i <= %d THEN 1 ELSE i END, 'h'
				FROM n, (SELECT 'app_x' AS app UNION ALL SELECT 'app_y') AS apps,
					(SELECT 'wac_r' AS account UNION ALL SELECT 'wac_t') AS accounts
				WHERE accounts.account = 'wac_r' AND i %% 7 > 0 OR accounts.account = 'wac_t' AND i %% 7 = 0`,
				rows, rows, sameTime),
		} {
			if _, err := d.ExecContext(ctx, query); err != nil {
				t.Fatal(err)
			}
		}
		for _, of := range []struct{ from, to, want int64 }{
			{0, math.MaxInt64, rows - rows/7},
			{1, 2, sameTime - sameTime/7},
			{2, rows - 1, rows - 2 - sameTime - (rows-2)/7 + sameTime/7},
		} {
			n, sum, err := sumReversed(ctx, d, "app_x", of.from, of.to)
			want := money.MC(of.want)
			if err != nil || n != of.want || sum != (rules.Amounts{
				ProviderCostMC: want, SvcFeeMC: 2 * want, DevMarginMC: 3 * want, UserChargeMC: 6 * want,
			}) {
				t.Errorf("from %d to %d: %d calls, %+v, %v, want %d", of.from, of.to, n, sum, err, of.want)
			}
		}
	})
}
