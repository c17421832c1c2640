package commands

import (
	"encoding/csv"
	"strconv"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestJournal prints a month in which everything happened, beside a test account and another month: debits are equal to
// credits, and the users' account is what the balances say. The rounded entry adds up, too.
func TestJournal(t *testing.T) {
	t.Parallel()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			target := dbtest.URL(t, e)
			d, err := db.Open(t.Context(), target)
			if err != nil {
				t.Fatal(err)
			}
			b := apitest.NewBooks(t, d) // 21 November 2026
			t.Cleanup(func() {
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			})
			b.Do(rules.TopUp{AccountID: "wac_1", AmountMC: 50 * money.Dollar})
			b.Do(rules.TopUp{AccountID: "wac_test", AmountMC: 50 * money.Dollar, Sandbox: true})
			connect := func(account, app string, sandbox bool) rules.Connection {
				return b.Do(rules.Connect{
					ConnectionID: id.New(id.Connection, b.Now()),
					AppID:        app,
					AccountID:    account,
					RequestedMC:  10 * money.Dollar,
					Sandbox:      sandbox,
				}).Connection
			}
			conn, test := connect("wac_1", "app_1", false), connect("wac_test", "app_2", true)
			b.Spend(test, 777)
			for i := range 5 {
				b.Spend(conn, money.MC(1_000_003+i))
			}
			refunded := b.Spend(conn, 2_345_678)
			b.Do(rules.Reverse{EntryID: refunded.ID, AccountID: "wac_1", Reason: "failed"})
			goodwill := id.New(id.Goodwill, b.Now())
			b.Do(rules.GiveGoodwill{GoodwillID: goodwill, AccountID: "wac_1", AmountMC: money.Dollar, Reason: "Sorry."})
			b.Do(rules.WithdrawGoodwill{GoodwillID: goodwill, Reason: "Twice."})
			b.Do(rules.Revoke{ConnectionID: conn.ID})
			dev := rules.EndPayout{PayoutID: "po_1", AppID: "app_1", DeveloperID: "wac_dev"}
			for n, matured := range []money.MC{10 * money.Cent, 17 * money.Cent} { // the second of 7 cents fails
				b.Do(rules.BeginPayout{
					PayoutID:    dev.PayoutID,
					AppID:       dev.AppID,
					DeveloperID: dev.DeveloperID,
					Margin:      rules.MaturedMargin{Records: int64(n), Day: "2026-11-20", MaturedMC: matured},
				})
				dev.PayoutID = "po_2"
			}
			dev.Failure = "closed"
			b.Do(dev)
			balance, err := store.GetBalance(t.Context(), d, "wac_1")
			if err != nil {
				t.Fatal(err)
			}
			b.Do(rules.TakeDisputedMargin{
				Loss: rules.Loss{AccountID: "wac_1", Seq: balance.Seq, LossMC: 3 * money.Cent},
				Shares: []rules.DisputedShare{
					{AppID: dev.AppID, DeveloperID: dev.DeveloperID, TotalMC: 3 * money.Cent},
				},
			})

			code, out, text := command(nil, "ledger", "journal", "--database", target, "--month", "2026-11")
			if code != exitOK {
				t.Fatalf("exit %d: %s", code, text)
			}
			sums := sumJournal(t, out, 2, 3, 4)
			var all int64
			for _, sum := range sums {
				all += sum
			}
			if all != 0 {
				t.Errorf("debits minus credits: %d", all)
			}
			var owed int64
			err = d.QueryRowContext(t.Context(), `SELECT available_mc + reserved_mc FROM balances
				WHERE account_id = 'wac_1'`).Scan(&owed)
			if err != nil || sums["users' balances"] != -owed {
				t.Errorf("the journal says %v, the balances that users are owed %d: %v", sums, owed, err)
			}
			if sums["cash"] != int64(50*money.Dollar-10*money.Cent) || sums["goodwill"] != 0 ||
				sums["refunded calls"] != 2_345_678/2 || sums["disputed margin"] != int64(-3*money.Cent) {
				t.Errorf("%v", sums)
			}
			if strings.Contains(out, "wac_test") || !strings.Contains(out, "refund of call "+refunded.ID) {
				t.Errorf("the journal:\n%s", out)
			}
			code, out, text = command(nil, "ledger", "journal", "--database", target, "--month", "2026-11", "--rounded")
			rounded := sumJournal(t, strings.ReplaceAll(out, ".", ""), 1, 2, 3)
			all = 0
			for _, sum := range rounded {
				all += sum
			}
			if code != exitOK || all != 0 || rounded["cash"] != 4990 {
				t.Errorf("exit %d, %s\n%s", code, text, out)
			}
			code, out, _ = command(nil, "ledger", "journal", "--database", target, "--month", "2026-10")
			if code != exitOK || strings.Count(out, "\n") != 1 {
				t.Errorf("the month before: exit %d\n%s", code, out)
			}
			code, _, text = command(nil, "ledger", "journal", "--database", target, "--month", "October")
			if code != exitUsage || !strings.Contains(text, "--month: must be a month such as 2026-11") {
				t.Errorf("exit %d, %s", code, text)
			}
		})
	}
}

// sumJournal returns debits minus credits by account. Columns are counted from 0.
func sumJournal(t *testing.T, text string, account, debit, credit int) map[string]int64 {
	t.Helper()
	lines, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]int64{}
	for _, line := range lines[1:] {
		for column, sign := range map[int]int64{debit: 1, credit: -1} {
			if line[column] == "" {
				continue
			}
			n, err := strconv.ParseInt(line[column], 10, 64)
			if err != nil || n <= 0 {
				t.Fatalf("%q: %v", line, err)
			}
			sums[line[account]] += sign * n
		}
	}
	return sums
}
