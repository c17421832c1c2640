package server_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/ledger/tiers"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// liveApp is a limited-live app, answered by the mock, with connections of real accounts.
type liveApp struct {
	d      *db.DB
	w      *store.Writer
	id     string
	conns  []rules.Connection
	tokens []string
}

// newLiveApp makes the app beside a running node, through the stores.
func newLiveApp(t *testing.T, d *db.DB, prefix string, connections int, allocationMC money.MC) *liveApp {
	t.Helper()
	w := apitest.StartLedger(t, d, d.Now)
	people, tokens := accounts.NewStore(d, d.Now), &oauth.Store{DB: d, Ledger: w, Now: d.Now}
	l := &liveApp{d: d, w: w}
	err := d.InTx(db.ForJob(t.Context()), func(ctx context.Context, tx *db.Tx) error { // it hashes passwords
		developer, err := people.Create(ctx, tx, accounts.NewAccount{
			Email:     prefix + "live@example.com",
			Password:  id.NewSecret(),
			Developer: true,
		})
		if err != nil {
			return err
		}
		app, _, err := apps.NewStore(d, d.Now, true).Create(ctx, tx, apps.New{
			OwnerID:      developer.ID,
			Name:         "Live app",
			RedirectURIs: []string{"https://example.com/back"},
			Tier:         tiers.LimitedLive,
			ProviderMode: apps.Mock,
			DevMargin:    money.One / 5,
		})
		if l.id = app.ID; err != nil {
			return err
		}
		for i := range connections {
			user, err := people.Create(ctx, tx,
				accounts.NewAccount{Email: fmt.Sprintf("%suser%d@example.com", prefix, i), Password: id.NewSecret()})
			if err != nil {
				return err
			}
			if _, err := w.DoTx(ctx, tx, rules.TopUp{AccountID: user.ID, AmountMC: 2 * allocationMC}); err != nil {
				return err
			}
			r, err := w.DoTx(ctx, tx, rules.Connect{
				ConnectionID: id.New(id.Connection, d.Now()),
				AppID:        app.ID,
				AccountID:    user.ID,
				RequestedMC:  allocationMC,
			})
			if err != nil {
				return err
			}
			token, err := tokens.IssueTokens(ctx, tx, r.Connection.ID, app.ID, "")
			if err != nil {
				return err
			}
			l.conns, l.tokens = append(l.conns, r.Connection), append(l.tokens, token.AccessToken)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// openHold opens a hold of so much on a connection for a node: of free credit, or of the
// wallet, as the limits are.
func (l *liveApp) openHold(t *testing.T, node string, c rules.Connection, amount money.MC, free bool,
	list []limits.Limit) {
	t.Helper()
	cost := amount * 100 / 105 // a hold is 105 % of the cost, rounded up
	if (cost*105+99)/100 != amount {
		l.openHold(t, node, c, 2, free, list) // no cost makes this sum
		l.openHold(t, node, c, amount-2, free, list)
		return
	}
	terms := fmt.Sprintf(
		`{"rates":{"book":"test","mc_per_million":[[0,0,0,0,%d]]},"margin_ppm":0,"fee_ppm":0,"input_tokens":0,`+
			`"max_tokens":1000000`, cost)
	key := servertest.UUID()
	h := rules.Hold{Claim: key, NodeID: node, Limits: list, Call: rules.Call{
		ConnectionID: c.ID,
		AccountID:    c.AccountID,
		AppID:        l.id,
		Key:          key,
		RequestID:    id.New(id.Request, l.d.Now()),
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
	r, err := l.w.Do(t.Context(), h)
	if err != nil || r.Outcome != rules.Applied || (r.Call.PaidBy == rules.PaidByFreeCredit) != free {
		t.Fatalf("%+v, %v", r, err)
	}
}

// fillDay leaves so much of the app's day, and no free credit, by calls in flight.
func (l *liveApp) fillDay(t *testing.T, node string, left money.MC) {
	t.Helper()
	whale := l.conns[len(l.conns)-1]
	var free []limits.Limit
	pool, onApp, onAll := rules.FreeCreditSubjects(l.id, whale.AccountID, l.d.Now())
	for _, subject := range []string{pool, onApp, onAll} {
		free = append(free, limits.Limit{Subject: subject, Unit: limits.Spend, Max: int64(money.Max)})
	}
	l.openHold(t, node, whale, tiers.DefaultFreeCredit.PoolMC, true, free)
	terms := tiers.PolicyOf(tiers.LimitedLive)
	l.openHold(t, node, whale, terms.AppDayMC-left, false, terms.Limits(l.id, whale.AccountID)[1:]) // of the app alone
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
	call := money.MC(queryOne(t, a.Node, probe.key).HoldMC)
	const node = "node_of_the_test" // which lives longer than the test
	if _, err := d.ExecContext(t.Context(), `INSERT INTO nodes (id, started_us, lease_us) VALUES ($1, $2, $3)`, node,
		d.Now().UnixMicro(), d.Now().Add(time.Hour).UnixMicro()); err != nil {
		t.Fatal(err)
	}
	for _, race := range []struct {
		left money.MC
		won  int
	}{{10 * call, 10}, {10*call - 1, 9}} {
		l := newLiveApp(t, d, fmt.Sprint(race.won, "-"), 9, 300*money.Dollar)
		l.fillDay(t, node, race.left)
		var replies []<-chan reply
		for i := range 64 {
			c := books.addCall(false, "")
			c.body, c.as = probe.body, l.tokens[i%8] // the same text costs the same
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
		told := number(t, a.DB, `SELECT COUNT(*) FROM events WHERE type = 'app.spend_limit_reached' AND app_id = $1`,
			l.id)
		if won != race.won || refused != 64-race.won || told != 1 {
			t.Errorf("with %d mc for calls of %d: %d won, %d refused, %d told", race.left, call, won, refused, told)
		}
	}
	a.Verify()
}
