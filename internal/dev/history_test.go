package dev

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/dev/history"
	"github.com/purserhq/purser/internal/ledger/audit"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestHistoryIsClean makes the sample history of an empty database, once, and audits the ledger: a short one and a long
// one.
func TestHistoryIsClean(t *testing.T) {
	t.Parallel()
	for e, days := range map[db.Engine]int{db.SQLite: history.MinDays, db.Postgres: 60} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			o := Options{
				Days:      days,
				Data:      t.TempDir(),
				Listen:    "127.0.0.1:0",
				Database:  dbtest.URL(t, e),
				Providers: "mock",
				Lease:     5 * time.Minute,
			}
			l, err := listenLoopback()
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			log := slog.New(slog.DiscardHandler)
			c, err := configure(o, l.Addr(), time.Now, log)
			if err != nil {
				t.Fatal(err)
			}
			s, err := open(t.Context(), o, c, log)
			if err != nil {
				t.Fatal(err)
			}
			defer s.DB.Close()
			if mine, err := history.Claim(t.Context(), s.DB); err != nil || mine {
				t.Errorf("a second start would make it again: %t, %v", mine, err)
			}
			var out bytes.Buffer
			findings, err := audit.VerifyAndPrint(context.Background(), o.Database, &out, time.Now())
			if err != nil || findings > 0 {
				t.Errorf("ledger verify: %d findings, %v\n%s", findings, err, out.String())
			}
			for _, c := range []struct {
				what, query string
				perDay      float64 // of them; 0 = one in all
			}{
				{"charges", `SELECT COUNT(*) FROM ledger WHERE type = 'spend' AND status = 'settled'`, 17},
				{"days with charges", `SELECT COUNT(DISTINCT day) FROM daily_totals`, 0.84},
				{"refunds", `SELECT COUNT(*) FROM ledger WHERE type = 'spend' AND status = 'reversed'`, 0},
				{"refusals", `SELECT COUNT(*) FROM refusals`, 0.34},
				{"logos", `SELECT COUNT(*) / 3 FROM app_logos`, 0},
				{"users", `SELECT COUNT(*) / 40 FROM accounts`, 0},
				{"paused connections", `SELECT COUNT(*) FROM connections WHERE frozen_by = 'user'`, 0},
				{"pending requests", `SELECT COUNT(*) FROM allocation_requests WHERE status = 'pending'`, 0},
				{"failed deliveries", `SELECT COUNT(*) FROM deliveries WHERE status = 'failed'`, 0},
				{"full caps", `SELECT COUNT(*) FROM refusals WHERE code = 'allocation_exhausted'`, 0},
				{"voice replies", `SELECT COUNT(*) FROM realtime_replies`, 0},
				{"paid by free credit", `SELECT COUNT(*) FROM ledger WHERE paid_by = 'free_credit'`, 1.7},
				{"paid by wallets", `SELECT COUNT(*) FROM ledger WHERE paid_by = 'wallet'`, 1.7},
				{"payments", `SELECT COUNT(*) FROM payment_records WHERE kind = 'settled'`, 0.34},
				{"failed payments", `SELECT COUNT(*) FROM payment_records WHERE kind = 'failed'`, 0},
			} {
				var n int
				least := max(1, c.perDay*float64(days))
				if err := s.DB.QueryRowContext(t.Context(), c.query).Scan(&n); err != nil || float64(n) < least {
					t.Errorf("%s: %d, want %.0f, %v", c.what, n, least, err)
				}
			}
			future := s.DB.Now().UnixMicro()
			for _, table := range []string{"ledger", "refusals", "events", "connections", "accounts", "deliveries"} {
				var newest int64
				query := `SELECT MAX(created_us) FROM ` + table
				if err := s.DB.QueryRowContext(t.Context(), query).Scan(&newest); err != nil || newest > future {
					t.Errorf("%s: the newest row is of %v, %v", table, time.UnixMicro(newest), err)
				}
			}
		})
	}
}
