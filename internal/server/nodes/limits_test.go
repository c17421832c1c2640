package nodes

import (
	"fmt"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/tiers"
	"github.com/purserhq/purser/internal/testkit/calltest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// openHold opens a hold of so much on a connection for a node: of free credit, or of the
// wallet, as the limits are.
func openHold(t *testing.T, l *calltest.LiveApp, node string, c rules.Connection, amount money.MC, free bool,
	list []limits.Limit) {
	t.Helper()
	cost := amount * 100 / 105 // a hold is 105 % of the cost, rounded up
	if (cost*105+99)/100 != amount {
		openHold(t, l, node, c, 2, free, list) // no cost makes this sum
		openHold(t, l, node, c, amount-2, free, list)
		return
	}
	terms := fmt.Sprintf(
		`{"rates":{"book":"test","mc_per_million":[[0,0,0,0,%d]]},"margin_ppm":0,"fee_ppm":0,"input_tokens":0,`+
			`"max_tokens":1000000`, cost)
	key := servertest.UUID()
	h := rules.Hold{Claim: key, NodeID: node, Limits: list, Call: rules.Call{
		ConnectionID: c.ID,
		AccountID:    c.AccountID,
		AppID:        l.ID,
		Key:          key,
		RequestID:    id.New(id.Request, l.DB.Now()),
		Fingerprint:  "f",
		Model:        "gpt-6-luna",
		Terms:        terms + "}",
		HoldMC:       amount,
	}}
	if free {
		h.FreeCredit, h.Limits = &rules.FreeCreditHold{
			Terms:  terms + `,"pool":"` + list[0].Subject + `"}`,
			HoldMC: amount,
			Limits: list,
		}, nil
	}
	r, err := l.Ledger.Do(t.Context(), h)
	if err != nil || r.Outcome != rules.Applied || (r.Call.PaidBy == rules.PaidByFreeCredit) != free {
		t.Fatalf("%+v, %v", r, err)
	}
}

// fillDay leaves so much of the app's day, and no free credit, by calls in flight.
func fillDay(t *testing.T, l *calltest.LiveApp, node string, left money.MC) {
	t.Helper()
	whale := l.Connections[len(l.Connections)-1]
	var free []limits.Limit
	pool, onApp, onAll := rules.FreeCreditSubjects(l.ID, whale.AccountID, l.DB.Now())
	for _, subject := range []string{pool, onApp, onAll} {
		free = append(free, limits.Limit{Subject: subject, Unit: limits.Spend, Max: int64(money.Max)})
	}
	openHold(t, l, node, whale, tiers.DefaultFreeCredit.PoolMC, true, free)
	terms := tiers.PolicyOf(tiers.LimitedLive)
	openHold(t, l, node, whale, terms.AppDayMC-left, false, terms.Limits(l.ID, whale.AccountID)[1:]) // of the app alone
}

// TestNodesAppDay races 64 callers on two processes, over eight connections, for a
// limited-live app's last ten calls of the day; then for ten less a micro-cent.
func TestNodesAppDay(t *testing.T) {
	t.Parallel()
	a, b := startPair(t)
	nodes := []*servertest.Process{a, b}
	d := dbtest.OpenURL(t, a.DB)
	books := newBooks(t, nil)
	probe := books.addCall(false, "!mock delay=8s words=5")
	if r := ask(a.Node, probe); r.status != 200 {
		t.Fatal(r)
	}
	call := money.MC(calltest.Spend(t, a.DB, probe.key).HoldMC)
	const node = "node_of_the_test" // which lives longer than the test
	if _, err := d.ExecContext(t.Context(), `INSERT INTO nodes (id, started_us, lease_us) VALUES ($1, $2, $3)`, node,
		d.Now().UnixMicro(), d.Now().Add(time.Hour).UnixMicro()); err != nil {
		t.Fatal(err)
	}
	for _, race := range []struct {
		left money.MC
		won  int
	}{{10 * call, 10}, {10*call - 1, 9}} {
		l := calltest.NewLiveApp(t, d, fmt.Sprint(race.won, "-"), 9, 300*money.Dollar)
		fillDay(t, l, node, race.left)
		var replies []<-chan reply
		for i := range 64 {
			c := books.addCall(false, "")
			c.body, c.as = probe.body, l.Tokens[i%8] // the same text costs the same
			replies = append(replies, asking(nodes[i%2].Node, c))
		}
		won, refused := 0, 0
		for _, ch := range replies {
			switch r := <-ch; {
			case r.status == 200:
				won++
			case r.status == 429 && r.errorCode() == "app_spend_limited" && r.header.Get("Retry-After") == "1":
				refused++
			default:
				t.Errorf("%+v", r)
			}
		}
		told := dbtest.Number(t, a.DB,
			`SELECT COUNT(*) FROM events WHERE type = 'app.spend_limit_reached' AND app_id = $1`, l.ID)
		if won != race.won || refused != 64-race.won || told != 1 {
			t.Errorf("with %d mc for calls of %d: %d won, %d refused, %d told", race.left, call, won, refused, told)
		}
	}
	a.Verify()
}
