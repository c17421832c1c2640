// Package calltest is what tests of whole nodes share: how calls are billed, whose they are, and how far they are.
package calltest

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/nodetest"
)

// Bill is what an answer says about its money.
type Bill struct {
	HoldMC      int64  `json:"hold_amount_mc"`
	CostMC      int64  `json:"provider_cost_mc"`
	FeeMC       int64  `json:"svc_fee_mc"`
	MarginMC    int64  `json:"dev_margin_mc"`
	ChargeMC    int64  `json:"user_charge_mc"`
	RemainingMC int64  `json:"allocation_remaining_mc"`
	Settlement  string `json:"settlement"`
}

// ReadBill reads the bill of an answer, of a whole one or of a stream.
func ReadBill(answer []byte) (b Bill, err error) {
	_, rest, ok := bytes.Cut(answer, []byte(`"svc":`))
	if !ok {
		return b, errors.New("the answer has no bill")
	}
	return b, json.NewDecoder(bytes.NewReader(rest)).Decode(&b)
}

// Spends reads the spend rows of a database by their keys.
func Spends(t testing.TB, database string) map[string][]Bill {
	t.Helper()
	d := dbtest.OpenReadOnly(t, database)
	defer d.Close()
	rows, err := d.QueryContext(t.Context(),
		`SELECT key, hold_amount_mc, provider_cost_mc, svc_fee_mc, dev_margin_mc, user_charge_mc, remaining_mc, `+
			`settlement FROM ledger WHERE type = 'spend'`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	list := map[string][]Bill{}
	for rows.Next() {
		var key string
		var r Bill
		if err := rows.Scan(&key, &r.HoldMC, &r.CostMC, &r.FeeMC, &r.MarginMC, &r.ChargeMC, &r.RemainingMC,
			&r.Settlement); err != nil {
			t.Fatal(err)
		}
		if child := rules.ChildOfKey(key); child != "" {
			key = strings.TrimPrefix(key, child+"/")
		}
		list[key] = append(list[key], r)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

// Spend returns the only spend row of a key.
func Spend(t testing.TB, database, key string) Bill {
	t.Helper()
	list := Spends(t, database)[key]
	if len(list) != 1 {
		t.Fatalf("key %s has %d rows", key, len(list))
	}
	return list[0]
}

// AwaitWords waits until words of the key's stream are on the disk. The first checkpoint may have none.
func AwaitWords(t testing.TB, n *nodetest.Node, key string) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, "two checkpoints of a stream", func() bool {
		return dbtest.Number(t, n.DB, `SELECT COUNT(*) FROM checkpoints JOIN holds USING (request_id)
			WHERE key = $1`, key) >= 2
	})
}

// AwaitHold waits until the key's hold is as wanted: open, failed or gone.
func AwaitHold(t testing.TB, n *nodetest.Node, key, want string) {
	t.Helper()
	d := dbtest.OpenReadOnly(t, n.DB)
	defer d.Close()
	testkit.Eventually(t, testkit.Patience, "hold "+want, func() bool {
		var state string
		err := d.QueryRowContext(t.Context(), `SELECT COALESCE((SELECT state FROM holds WHERE key = $1), 'gone')`,
			key).Scan(&state)
		if err != nil {
			t.Fatal(err)
		}
		return state == want
	})
	if want != "open" {
		return
	}
	resp, err := http.Get(n.BaseURL + "/readyz") // its answer follows what the node has read of the hold
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close() // the status does not matter
}
