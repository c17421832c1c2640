package receipts

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestMergeLog merges two lists by their ids, up to where one of them may go on in the database.
func TestMergeLog(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		billed, refused, want string
		limit                 int
	}{
		{"", "", "", 5},
		{"d b", "c a", "d c b a", 5},
		{"d b", "c a", "d c b", 2}, // older billed calls than b may be newer than a
		{"d c", "b a", "d c", 2},
		{"b a", "d c", "d c", 2},
		{"b", "d c", "d c", 2},
		{"c", "", "c", 1},
	} {
		var billed []rules.Entry
		for _, id := range strings.Fields(tt.billed) {
			billed = append(billed, rules.Entry{ID: "led_" + id})
		}
		var refused []rules.Refusal
		for _, id := range strings.Fields(tt.refused) {
			refused = append(refused, rules.Refusal{RequestID: "req_" + id})
		}
		var got []string
		for _, row := range mergeLog(billed, refused, tt.limit) {
			got = append(got, strings.TrimPrefix(row.ID, "req_"))
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s and %s of at most %d: %v, want %s", tt.billed, tt.refused, tt.limit, got, tt.want)
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
	if requestFilter := (requestFilter{statusFrom: 200, statusTo: 299}); requestFilter.chooses(&got) {
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
	rows, err := e.DB.QueryContext(ctx, text+query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var plan string
		var a, b, c any
		if err := rows.Scan(&plan); err != nil {
			if err := rows.Scan(&a, &b, &c, &plan); err != nil {
				return nil, fmt.Errorf("plan: %w", err)
			}
		}
		*e.plans = append(*e.plans, plan)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	return e.DB.QueryContext(ctx, query, args...)
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
			_, _, err := logOfApp(t.Context(), explainer{d, e, &plans}, "app_x", web.Page{Limit: 100},
				requestFilter{model: "m"})
			if err != nil {
				t.Fatal(err)
			}
			text := strings.Join(plans, "\n")
			for _, index := range []string{"ledger_app", "refusals_app"} {
				if !strings.Contains(text, index) {
					t.Errorf("%s is not used:\n%s", index, text)
				}
			}
			if strings.Contains(text, "SCAN ledger") || strings.Contains(text, "Seq Scan") ||
				strings.Contains(text, "TEMP B-TREE") || strings.Contains(text, "Sort") {
				t.Errorf("reads or sorts too much:\n%s", text)
			}
		})
	}
}
