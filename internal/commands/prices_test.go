package commands

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
)

// ownModel is a price file with a model that the built-in list does not know.
const ownModel = `date: 2026-10-01
models:
  - id: our-luna
    provider: openai
    family: gpt-6
    context_tokens: 100000
    max_output_tokens: 1000
    vision: false
    tools: false
    forced_tool_choice: false
    reasoning: false
    temperature: free
    source: a contract
    prices: [{input: "1.00", cached: "0.10", output: "2.00"}]
...
`

// TestPricesBill compares a ledger with one call of a day, of a model that only the operator's own price file knows.
func TestPricesBill(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	url := "sqlite:" + filepath.Join(folder, "purser.db")
	d, err := db.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	d.RelaxLimits(12)
	charged := time.Date(2026, 10, 3, 12, 0, 0, 0, time.UTC)
	for _, statement := range []string{
		`INSERT INTO accounts (id, email, password_hash, created_us) VALUES ('wac_1', 'a@example.com', '', 0)`,
		`INSERT INTO apps (id, owner_id, name, client_id, secret_hash, redirect_uris, allowed_models,
				tier, provider_mode, test_allowlist, dev_margin_ppm, created_us)
			VALUES ('app_1', 'wac_1', 'A', 'cid_1', '', '[]', '[]', 'full-live', 'live', '[]', 0, 0)`,
		`INSERT INTO ledger (id, account_id, seq, type, status, app_id, model, provider_cost_mc, svc_fee_mc,
				dev_margin_mc, user_charge_mc, available_delta_mc, reserved_delta_mc, allocation_delta_mc,
				consumed_delta_mc, created_us, hash)
			VALUES ('` + id.New(id.Ledger,
			charged) + `', 'wac_1', 1, 'spend', 'settled', 'app_1', 'our-luna', 1000000000, 0, 0,
				1000000000, 0, 0, 0, 0, ` + strconv.FormatInt(charged.UnixMicro(), 10) + `, 'x')`,
	} {
		if _, err := d.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	write("prices.yaml", ownModel)
	settings := write("purser.yaml", "database: "+url+"\nbase_url: https://api.example.com\nenvelope_key: "+
		strings.Repeat("A", 43)+"=\nprices: "+filepath.Join(folder, "prices.yaml")+"\n")
	const head = "date,model,cost\n"
	for _, c := range []struct {
		bill, args string
		code       int
		out, err   string
	}{
		{bill: "2026-10-03,our-luna,10.00\n", args: "--month 2026-10", out: "our-luna  $10.00  $10.00"},
		{bill: "2026-10-03,our-luna,10.00\n", args: "--month 2026-10 --provider openai", out: "$10.00  $10.00"},
		{
			bill: "2026-10-03,claude,1.00\n",
			args: "--month 2026-10 --provider anthropic",
			code: 1,
			out:  "claude   $0.00",
		},
		{bill: "2026-10-03,our-luna,10.06\n", args: "--month 2026-10", code: 1, out: "differs"},
		{bill: "2026-10-03,our-luna,10.05\n", args: "--month 2026-10", out: "$10.05       $0.05"},
		{bill: "2026-11-03,our-luna,10.00\n", args: "--month 2026-10", code: 2, err: "no line is of 2026-10"},
		{bill: "x,y,z\n", args: "--month 2026-10", code: 2, err: "line 2"},
		{bill: "", args: "--month october", code: 2, err: "not a month"},
		{bill: "", args: "--month 2026-10 --tolerance x", code: 2, err: "--tolerance"},
	} {
		bill := write("bill.csv", head+c.bill)
		code, out, errors := command(nil, append([]string{"prices", "bill", "--config", settings, bill},
			strings.Fields(c.args)...)...)
		if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(errors, c.err) {
			t.Errorf("%s, %s: %d\n%s%s", c.bill, c.args, code, out, errors)
		}
		if strings.Contains(c.args, "anthropic") && strings.Contains(out, "our-luna") {
			t.Errorf("a model of another provider is compared:\n%s", out)
		}
	}
}
