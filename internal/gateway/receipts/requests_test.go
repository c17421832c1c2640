package receipts

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestMergeLog merges two lists by their ids, up to where one of them may go on in the database.
func TestMergeLog(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ billed, refused, oldest, want string }{
		{"", "", "", ""},
		{"d b", "c a", "", "d c b a"},
		{"d b", "c a", "req_b", "d c b"}, // older billed calls than b may be newer than a
		{"d c", "b a", "req_c", "d c"},
		{"b a", "d c", "req_c", "d c"},
		{"b", "d c", "req_c", "d c"},
		{"c", "", "", "c"},
	} {
		rows := func(ids string) (list []LoggedRequest) {
			for _, id := range strings.Fields(ids) {
				list = append(list, LoggedRequest{ID: "req_" + id})
			}
			return list
		}
		var got []string
		for _, row := range mergeLog(rows(tt.billed), rows(tt.refused), tt.oldest) {
			got = append(got, strings.TrimPrefix(row.ID, "req_"))
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s and %s from %s: %v, want %s", tt.billed, tt.refused, tt.oldest, got, tt.want)
		}
	}
}

// TestRefundRow shows a refund with negative amounts, so that the rows add up to what was paid.
func TestRefundRow(t *testing.T) {
	t.Parallel()
	got := newBilledRow(&rules.Entry{
		ID:         "led_2",
		ReversalOf: "led_1",
		Amounts:    rules.Amounts{ProviderCostMC: 100, SvcFeeMC: 5, DevMarginMC: 20, UserChargeMC: 125},
	})
	if got.Status != "refund" || got.HTTPStatus != nil || *got.RefundOf != "req_1" || got.UserChargeMC != -125 ||
		got.UserChargeDisplay != "-$0.00000125" || got.ProviderCostMC+got.SvcFeeMC+got.DevMarginMC != -125 {
		t.Errorf("%+v", got)
	}
	if c, _ := (&LogFilter{StatusFrom: 200, StatusTo: 299}).spends("app_x"); c.Kind != store.Billed {
		t.Error("a refund has an HTTP status")
	}
}

// An explainer collects how a database would answer the queries that it gets.
type explainer struct {
	*db.DB
	engine db.Engine
	plans  *[]string
}

func (e explainer) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	text := "EXPLAIN QUERY PLAN "
	if e.engine == db.Postgres {
		text = "EXPLAIN "
	}
	if err := e.explain(ctx, text+query, args); err != nil {
		return nil, err
	}
	return e.DB.QueryContext(ctx, query, args...)
}

func (e explainer) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	text := "EXPLAIN QUERY PLAN "
	if e.engine == db.Postgres {
		text = "EXPLAIN "
	}
	if err := e.explain(ctx, text+query, args); err != nil {
		panic(err)
	}
	return e.DB.QueryRowContext(ctx, query, args...)
}

func (e explainer) explain(ctx context.Context, query string, args []any) error {
	rows, err := e.DB.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var plan string
		var a, b, c any
		if err := rows.Scan(&plan); err != nil {
			if err := rows.Scan(&a, &b, &c, &plan); err != nil {
				return fmt.Errorf("plan: %w", err)
			}
		}
		*e.plans = append(*e.plans, plan)
	}
	return rows.Err()
}

// TestLogUsesIndexes reads an app's part of an index and no whole table, on both engines.
func TestLogUsesIndexes(t *testing.T) {
	t.Parallel()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			var plans []string
			d := dbtest.Open(t, e)
			if e == db.Postgres { // without statistics it scans a table that is empty
				if _, err := d.ExecContext(t.Context(), "SET enable_seqscan = off"); err != nil {
					t.Fatal(err)
				}
			}
			for _, f := range []LogFilter{
				{},
				{Model: "m", MinChargeMC: 5, Since: time.Unix(1, 0), Until: time.Unix(2, 0)},
				{Status: StatusEstimated, Connection: "conn_x"},
				{Feature: "chat", StatusFrom: 400, StatusTo: 499},
			} {
				if _, err := ListLog(t.Context(), explainer{d, e, &plans}, "app_x", &f,
					web.Page{Limit: 100}); err != nil {
					t.Fatal(err)
				}
			}
			text := strings.Join(plans, "\n")
			ofLedger := "ledger_app"
			if e == db.Postgres { // the index of a partition
				ofLedger = "ledger_y2026_app"
			}
			for _, index := range []string{ofLedger, "refusals_app"} {
				if !strings.Contains(text, index) {
					t.Errorf("%s is not used:\n%s", index, text)
				}
			}
			if strings.Contains(text, "SCAN ledger") || strings.Contains(text, "Seq Scan") ||
				strings.Contains(text, "TEMP B-TREE") || strings.Contains(text, "Sort  (") {
				t.Errorf("reads or sorts too much:\n%s", text)
			}
		})
	}
}

// TestSearchIsBounded finds the one old refusal of a model among thousands of others, on the second page: the first one
// says how far it has searched.
func TestSearchIsBounded(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		if _, err := d.ExecContext(t.Context(), `WITH RECURSIVE numbers (n) AS
			(SELECT 1000001 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1007000)
			INSERT INTO refusals (request_id, connection_id, app_id, status, code, message, details, model, created_us)
			SELECT 'req_' || n, 'conn_x', 'app_x', 402, 'allocation_exhausted', 'm', '{}',
				CASE WHEN n = 1000007 THEN 'rare' ELSE 'common' END, 1 FROM numbers`); err != nil {
			t.Fatal(err)
		}
		f := LogFilter{Model: "rare"}
		log, err := ListLog(t.Context(), d, "app_x", &f, web.Page{Limit: 25})
		if err != nil || len(log.Rows) != 0 || !log.IsCut || log.Next != "req_1002001" {
			t.Fatalf("the first page: %+v, %v", log, err)
		}
		log, err = ListLog(t.Context(), d, "app_x", &f, web.Page{Limit: 25, StartingAfter: log.Next})
		if err != nil || len(log.Rows) != 1 || log.IsCut || log.Next != "" || log.Rows[0].ID != "req_1000007" {
			t.Fatalf("the second page: %+v, %v", log, err)
		}
		log, err = ListLog(t.Context(), d, "app_x", &LogFilter{Model: "common"}, web.Page{Limit: 25})
		if err != nil || len(log.Rows) != 25 || log.IsCut || log.Next != log.Rows[24].ID {
			t.Fatalf("a full page: %d rows, %+v, %v", len(log.Rows), log.Next, err)
		}
	})
}
