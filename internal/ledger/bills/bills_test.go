package bills

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

const day = "2026-10-03"

func TestRead(t *testing.T) {
	t.Parallel()
	want := []Cost{{day, "gpt-6-luna", 150_000_000}, {day, "gpt-6-luna-2026-08-01, input", 1}}
	for name, text := range map[string]string{
		"plain": `date,model,cost
2026-10-03,gpt-6-luna,1.5
2026-10-03,"GPT-6-luna-2026-08-01, input",0.0000000051
`,
		"other order": "\ufeff" + `Cost,Extra,Date,Line_Item
$1.50,x,2026-10-03T00:00:00Z,gpt-6-luna
1e-8,,2026-10-03 00:00,"gpt-6-luna-2026-08-01, input"
`,
		"later in UTC": `start_time_iso,sku,amount_value
2026-10-02T23:00:00-02:00,gpt-6-luna,1.50
2026-10-03,"gpt-6-luna-2026-08-01, input",0.00000001
`,
	} {
		got, err := Read(strings.NewReader(text), Columns{})
		if err != nil || !cmp.Equal(got, want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if got, err := Read(strings.NewReader("a,b,c\ngpt-6-luna,2026-10-03,-2\n"), Columns{"B", "a", "c"}); err != nil ||
		got[0].AmountMC != -2*money.Dollar {
		t.Errorf("named columns: %v, %v", got, err)
	}
	for text, want := range map[string]string{
		"":                              "head",
		"date,model\n":                  "no column is the amount",
		"date,model,cost\nx,y,1\n":      `line 2: "x" does not begin with a date`,
		"date,model,cost\n2026-10-03\n": "line 2: 1 columns are too few",
		"date,model,cost\n2026-10-03,m,1\n2026-10-03,m,one\n": `line 3: "one" is not an amount`,
		"date,model,cost\n2026-10-03,m,1e30\n":                "more than an amount can be",
	} {
		if _, err := Read(strings.NewReader(text), Columns{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestCompare has a model that agrees within the tolerance, one that is billed 1 % higher, and one that only the bill
// has.
func TestCompare(t *testing.T) {
	t.Parallel()
	ledger := []Cost{
		{day, "gpt-6", 100 * money.Dollar},
		{day, "gpt-6-luna", 100 * money.Dollar},
		{"2026-10-04", "gpt-6-luna", 100 * money.Dollar},
	}
	bill := []Cost{
		{day, "gpt-6-2026-08-01, input", 60 * money.Dollar},
		{day, "gpt-6-2026-08-01, output", 40*money.Dollar + money.Dollar/2}, // half a percent
		{day, "gpt-6-luna", 100 * money.Dollar},
		{"2026-10-04", "gpt-6-luna", 102 * money.Dollar},
		{day, "gpt-60", 3 * money.Dollar},
		{day, "web search", money.Dollar / 100}, // a cent is rounding
	}
	models, days := Compare(ledger, bill, 5000)
	wantModels := []Difference{
		{"", "gpt-60", 0, 3 * money.Dollar, true},
		{"", "gpt-6-luna", 200 * money.Dollar, 202 * money.Dollar, true},
		{"", "gpt-6", 100 * money.Dollar, 100*money.Dollar + money.Dollar/2, false},
		{"", "web search", 0, money.Dollar / 100, false},
	}
	wantDays := []Difference{
		{day, "gpt-60", 0, 3 * money.Dollar, true},
		{"2026-10-04", "gpt-6-luna", 100 * money.Dollar, 102 * money.Dollar, true},
	}
	if d := cmp.Diff(wantModels, models) + cmp.Diff(wantDays, days); d != "" {
		t.Error(d)
	}
}

// TestReadLedger counts settled live calls in the month, by day and model, and nothing else, whatever the apps' modes
// are now.
func TestReadLedger(t *testing.T) {
	t.Parallel()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			d := dbtest.Open(t, e)
			month := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
			exec(t, d, `INSERT INTO accounts (id, email, password_hash, created_us)
				VALUES ('wac_1', 'a@example.com', '', 0)`)
			for app, mode := range map[string]string{"app_live": "live", "app_mock": "mock"} {
				exec(t, d, `INSERT INTO apps (id, owner_id, name, client_id, secret_hash, redirect_uris, allowed_models,
						tier, provider_mode, test_allowlist, dev_margin_ppm, created_us)
					VALUES ($1, 'wac_1', 'A', $1, '', '[]', '[]', 'full-live', $2, '[]', 0, 0)`, app, mode)
			}
			seq := 0
			add := func(at time.Time, app, status, model string, costMC int64) {
				seq++
				asked := at.Add(-time.Minute) // the id has the time of the request
				terms := `{"margin_ppm":0}`
				if app == "app_mock" {
					terms = `{"margin_ppm":0,"mock":true}`
				}
				exec(t, d, `INSERT INTO ledger (id, account_id, seq, type, status, reversal_of, app_id, model, terms,
						provider_cost_mc, svc_fee_mc, dev_margin_mc, user_charge_mc, available_delta_mc,
						reserved_delta_mc, allocation_delta_mc, consumed_delta_mc, created_us, hash)
					VALUES ($1, 'wac_1', $2, 'spend', $3, $4, $5, $6, $10, $7, 0, 0, $7, 0, 0, 0, 0, $8, $9)`,
					id.New(id.Ledger, asked), seq, status, reversal(status), app, model, costMC, at.UnixMicro(),
					fmt.Sprint("hash", seq), terms)
			}
			add(month.Add(-time.Second), "app_live", "settled", "gpt-6", 1)
			add(month, "app_live", "settled", "gpt-6", 10)
			add(month.Add(23*time.Hour), "app_live", "settled", "gpt-6", 20)
			add(month.Add(23*time.Hour), "app_live", "reversed", "gpt-6", -20)
			add(month.Add(24*time.Hour), "app_live", "settled", "gpt-6", 40)
			add(month.Add(24*time.Hour), "app_mock", "settled", "gpt-6", 80)
			add(month.AddDate(0, 1, 0), "app_live", "settled", "gpt-6", 160)
			exec(t, d, `UPDATE apps SET provider_mode = CASE provider_mode WHEN 'live' THEN 'mock' ELSE 'live' END`)
			got, err := ReadLedger(t.Context(), d, month, month.AddDate(0, 1, 0))
			want := []Cost{{"2026-10-01", "gpt-6", 30}, {"2026-10-02", "gpt-6", 40}}
			if err != nil || !cmp.Equal(got, want) {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

func reversal(status string) any {
	if status == "reversed" {
		return "led_1"
	}
	return nil
}

func exec(t *testing.T, d *db.DB, query string, args ...any) {
	t.Helper()
	if _, err := d.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatal(err)
	}
}
