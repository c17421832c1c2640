package operator_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// A leaver is a person who tops up, takes money back, and leaves.
type leaver struct {
	*bundle
	t         *testing.T
	accountID string
	browser   *apitest.Browser
}

// newLeaver returns a person with a balance of $20 that one card payment brought.
func newLeaver(t *testing.T, d *db.DB) *leaver {
	t.Helper()
	b := newBundle(t, d, token)
	l := &leaver{bundle: b, t: t}
	l.accountID, l.browser = b.join(t, person)
	l.steer(l.checkout("20"), "pay")
	l.pass(2 * time.Hour)
	return l
}

// checkout opens a checkout and returns Stripe's session.
func (l *leaver) checkout(amount string) string {
	l.t.Helper()
	form := url.Values{"amount": {amount}}
	form.Set("token", l.browser.Get("/top-up").Found(l.t, `name="token" value="([^"]+)"`))
	to := l.browser.Post("/top-up", form).To
	return to[strings.LastIndexByte(to, '/')+1:]
}

// pass lets time pass, and the jobs run.
func (l *leaver) pass(d time.Duration) {
	l.t.Helper()
	l.nowUS.Add(d.Microseconds())
	if err := l.topups.RunDue(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
	if err := l.payouts.Run(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
}

func (l *leaver) steer(who, do string, pairs ...string) {
	l.t.Helper()
	with := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		with.Set(pairs[i], pairs[i+1])
	}
	if err := l.stripe.Steer(who, do, with); err != nil {
		l.t.Fatal(err)
	}
}

// toCard asks for money back.
func (l *leaver) toCard(amount string) {
	l.t.Helper()
	form := url.Values{"amount": {amount}, "present": {password}}
	form.Set("token", l.browser.Get("/top-up/refund").Found(l.t, `name="token" value="([^"]+)"`))
	l.browser.Post("/top-up/refund", form).Leads(l.t, "/top-up/refund?done=1")
}

// leave is the closing by the person, with what the page says.
func (l *leaver) leave(status int, texts ...string) {
	l.t.Helper()
	l.browser.Post("/settings/data/close", url.Values{"confirm": {person}, "present": {password}}).
		Want(l.t, status, texts...)
}

// operate is a request of the operator about the person's account.
func (l *leaver) operate(what string, status int, says string) {
	l.t.Helper()
	body := `{"reason":"Asked for by its user."}`
	if what == "settle" {
		body = `{"amount_mc":2000000000,"reason":"Paid by bank transfer."}`
	}
	want(l.t, what, l.api.Do(l.t, "POST", "/v1/operator/accounts/"+l.accountID+"/"+what, body), status, says)
}

func (l *leaver) has(amount money.MC) {
	l.t.Helper()
	b, err := store.GetBalance(l.t.Context(), l.d, l.accountID)
	if err != nil || b.AvailableMC != amount {
		l.t.Errorf("the balance is %s, should be %s; %v", b.AvailableMC.Display(), amount.Display(), err)
	}
}

// TestLeavingWithMoneyOnItsWay closes no account while money is on its way to or from a card, neither for its user nor
// for an operator, and says what it is.
func TestLeavingWithMoneyOnItsWay(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		l := newLeaver(t, d)
		l.leave(409, "You still have $20.00. Return it to your card", `href="/top-up/refund"`)
		l.steer("", "refunds", "status", "pending")
		l.toCard("20")
		l.browser.Get("/settings/data/close").Want(t, 200, "$20.00 is on its way back to your card")
		l.leave(409, "$20.00 is on its way back to your card", `href="/top-up/refund"`)
		l.operate("close", 503, "not carried out the refund yet")
		// Its connections are revoked and Stripe was asked: both stand in the log, with the reason.
		log := l.api.Do(t, "GET", "/v1/operator/log?subject="+l.accountID, "")
		for _, step := range []string{"suspend", "close_begun", "close_refunds"} {
			want(t, "a step", log, 200,
				`"action":"`+step+`","subject":"`+l.accountID+`","reason":"Asked for by its user."`)
		}
		want(t, "it is not closed", l.api.Do(t, "GET", "/v1/operator/accounts/"+l.accountID, ""), 200, `"suspended"`)
		l.steer("", "refunds", "status", "succeeded")
		l.operate("close", 200, `"goes_on":[]`)
		l.has(0)
	})
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		l := newLeaver(t, d)
		l.toCard("20")
		session := l.checkout("10")
		l.steer(session, "later") // by a bank debit, which takes days
		l.leave(409, "A top-up of $10.00 is in progress. A payment from a bank account can take 7 business days")
		l.operate("close", 400, "a top-up of $10.00 is being cleared or charged")
		want(t, "the log", l.api.Do(t, "GET", "/v1/operator/log?action=close_begun", ""), 200, l.accountID)
		want(t, "the log", l.api.Do(t, "GET", "/v1/operator/log?action=close_refunds", ""), 200, "[]")
		l.steer(session, "bounce")
		l.pass(2 * time.Hour)
		l.operate("close", 200, `"status":"closed"`)
	})
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) { // nobody has paid it: it ends with the account
		l := newLeaver(t, d)
		l.toCard("20")
		l.checkout("10")
		l.leave(200, "Your account is closed")
	})
}

// TestMoneyComesBackToAClosedAccount has the bank reject a refund after its account was closed: an operator returns it
// to the card again, or pays the user otherwise and records it. Nothing is sent to an address that is erased.
func TestMoneyComesBackToAClosedAccount(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		l := newLeaver(t, d)
		l.toCard("20")
		l.leave(200, "Your account is closed")
		l.operate("close", 400, "the account is closed")
		l.operate("settle", 400, "amount: must be at most $0.00")
		l.do(t, rules.GiveGoodwill{
			GoodwillID: "gwc_late", AccountID: l.accountID, AmountMC: 20 * money.Dollar, Reason: "It came back.",
		})
		l.operate("close", 400, "nothing of its balance can go to a card")
		l.operate("settle", 200, `"status":"closed"`)
		l.has(0)
		var mails int
		if err := d.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM mails WHERE recipient LIKE '%@closed'`).
			Scan(&mails); err != nil || mails != 0 {
			t.Errorf("%d mails to an address that is erased; %v", mails, err)
		}
		log := l.api.Do(t, "GET", "/v1/operator/log?action=settle", "")
		want(t, "log", log, 200, `"settled_mc":2000000000`)
	})
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		l := newLeaver(t, d)
		b, err := store.GetBalance(t.Context(), d, l.accountID)
		if err != nil || b.AvailableMC != 20*money.Dollar {
			t.Fatal(b, err)
		}
		l.operate("settle", 400, "suspended or closed")
		l.exec(t, `UPDATE accounts SET closed_us = 1 WHERE id = '`+l.accountID+`'`) // as if the payment had come late
		l.steer("", "refunds", "status", "pending")
		l.operate("close", 200, `"pending_mc":2000000000`)
		l.operate("settle", 400, "a refund is pending")
		l.steer("", "refunds", "status", "succeeded")
		l.operate("close", 200, `"refunded_mc":2000000000`)
		l.has(0)
	})
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		l := newLeaver(t, d)
		l.operate("suspend", 200, `"suspended"`)
		l.operate("settle", 200, `"suspended"`) // of a payment: it is returned to nobody again
		l.has(0)
		l.operate("close", 200, `"refunded_mc":0,`)
	})
}

// TestSettledOnce repeats a settlement whose answer was lost: it is recorded once.
func TestSettledOnce(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		l := newLeaver(t, d)
		l.operate("suspend", 200, `"suspended"`)
		settle := func(settlementID string, amount money.MC, status int, says string) {
			t.Helper()
			body := fmt.Sprintf(`{"id":%q,"amount_mc":%d,"reason":"Paid by bank transfer."}`, settlementID, amount)
			a := l.api.Do(t, "POST", "/v1/operator/accounts/"+l.accountID+"/settle", body)
			want(t, "settle", a, status, says)
		}
		first, second := id.New(id.Settlement, time.Now()), id.New(id.Settlement, time.Now())
		for range 3 {
			settle(first, 6*money.Dollar, 200, `"suspended"`)
			l.has(14 * money.Dollar)
		}
		settle(first, 7*money.Dollar, 400, "id: another settlement has it")
		settle("stl_1", 7*money.Dollar, 400, "id: must be stl_ and 26 characters")
		settle(second, 15*money.Dollar, 400, "amount: must be at most $14.00")
		settle(second, 6*money.Dollar, 200, `"suspended"`)
		l.has(8 * money.Dollar)
		log := l.api.Do(t, "GET", "/v1/operator/log?action=settle", "")
		if n := strings.Count(log.Body, `"settled_mc"`); n != 2 {
			t.Errorf("%d entries of the log\n%s", n, log.Body)
		}
	})
}

// TestDeveloperLeavesWithMargin names margin that is not paid on the page, to the operator and in the last email, and
// pays it when it has matured, also less than the minimum. An app that was suspended before waits until that is lifted,
// and does not come back by it.
func TestDeveloperLeavesWithMargin(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		l := newLeaver(t, d)
		developerID, developer := l.join(t, "leaving@example.com")
		l.exec(t, `UPDATE accounts SET developer = 1 WHERE id = '`+developerID+`'`)
		var app apps.App
		registry := apps.NewStore(d, func() time.Time { return time.UnixMicro(l.nowUS.Load()) }, false)
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
			app, _, err = registry.Create(ctx, tx, apps.New{
				OwnerID: developerID, Name: "Writer", Tier: apps.LimitedLive,
			})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		c := l.do(t, rules.Connect{
			ConnectionID: "conn_1", AppID: app.ID, AccountID: l.accountID, RequestedMC: 10 * money.Dollar,
		}).Connection
		books := apitest.NewBooks(t, d)
		books.Pass(2 * time.Hour)
		books.Spend(c, 2*money.Dollar) // of which the margin is $0.50
		leave := func(status int, texts ...string) {
			t.Helper()
			form := url.Values{"confirm": {"leaving@example.com"}, "present": {password}}
			developer.Post("/settings/data/close", form).Want(t, status, texts...)
		}
		leave(409, "over 1 connection. Revoke those first")
		const revoke = "/v1/operator/connections/conn_1/revoke"
		want(t, "revoke", l.api.Do(t, "POST", revoke, `{"reason":"The developer leaves."}`), 200, `"status":"revoked"`)
		want(t, "again", l.api.Do(t, "POST", revoke, `{"reason":"x"}`), 400, "already")
		l.has(18 * money.Dollar)
		l.mailed(person, "We disconnected Writer", "The developer leaves.")

		developer.Get("/settings/data/close").Want(t, 200, "Your apps earned $0.50 that is not paid yet")
		l.onboard(developerID)
		// The call was on the 21st, and two days must pass after that day.
		developer.Get("/settings/data/close").Want(t, 200, "the last of it after 24 November 2026, 00:00 UTC")
		leave(200, "Your account is closed")
		l.mailed("leaving@example.com", "Your account is closed", "$0.50 that is not paid yet")
		want(t, "lift", l.api.Do(t, "POST", "/v1/operator/apps/"+app.ID+"/lift", ""), 400, "the app has ended")
		l.pass(24 * time.Hour)
		if n := len(l.stripe.Transfers()); n != 0 {
			t.Errorf("%d transfers before it has matured", n)
		}
		l.pass(48 * time.Hour)
		l.pass(48 * time.Hour)
		if list := l.stripe.Transfers(); len(list) != 1 || !strings.Contains(string(list[0]), `"amount":50`) {
			t.Errorf("transfers: %s", list)
		}
	})
}

// onboard lets Stripe pay a developer.
func (l *leaver) onboard(developerID string) {
	l.t.Helper()
	a, err := l.people.Get(l.t.Context(), developerID)
	if err != nil {
		l.t.Fatal(err)
	}
	link, err := l.payouts.Onboard(l.t.Context(), a)
	if err != nil {
		l.t.Fatal(err)
	}
	u, err := url.Parse(link)
	if err != nil {
		l.t.Fatal(err)
	}
	l.steer(strings.TrimPrefix(u.Path, "/connect/"), "enable")
	if p, err := l.payouts.GetPayee(l.t.Context(), developerID); err != nil || !p.Enabled {
		l.t.Fatalf("%+v, %v", p, err)
	}
}

// mailed wants an email to an address.
func (l *leaver) mailed(to, subject, says string) {
	l.t.Helper()
	var n int
	if err := l.d.QueryRowContext(l.t.Context(), `SELECT COUNT(*) FROM mails WHERE recipient = $1 AND subject = $2
		AND text LIKE $3`, to, subject, "%"+says+"%").Scan(&n); err != nil || n != 1 {
		l.t.Errorf("%d mails %q to %s say %q; %v", n, subject, to, says, err)
	}
}

// TestReviewsAreMailed tells the developer how a review has ended.
func TestReviewsAreMailed(t *testing.T) {
	t.Parallel()
	b := newBundle(t, dbtest.Open(t, db.SQLite), token)
	l := &leaver{bundle: b, t: t}
	b.exec(t, `INSERT INTO golive_requests (id, app_id, from_tier, to_tier, status, created_us)
		VALUES ('glr_1', '`+b.app.ID+`', 'limited-live', 'full-live', 'pending', 1)`)
	want(t, "refuse", b.api.Do(t, "POST", "/v1/operator/go-live/glr_1/refuse", `{"reason":"The name is taken."}`), 200,
		`"status":"refused"`)
	l.mailed("developer@example.com", "Reader was not approved", "The name is taken.")
}

// TestSettleDuringADispute pays nobody otherwise what a bank may still take back: while a payment is disputed, an
// operator can neither settle it nor is told to do so. What the dispute does not need can be settled.
func TestSettleDuringADispute(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"won", "lost"} {
		dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
			l := newLeaver(t, d)
			l.do(t, rules.GiveGoodwill{
				GoodwillID: "gwc_x", AccountID: l.accountID, AmountMC: 20 * money.Dollar, Reason: "Sorry.",
			})
			session := l.checkout("10")
			l.steer(session, "pay")
			l.pass(2 * time.Hour)
			l.steer(session, "dispute")
			l.hearOfDisputes()
			l.operate("suspend", 200, `"suspended"`)
			settle := func(amount string, status int, says string) {
				t.Helper()
				want(t, "settle", l.api.Do(t, "POST", "/v1/operator/accounts/"+l.accountID+"/settle",
					`{"amount_mc":`+amount+`,"reason":"Paid by bank transfer."}`), status, says)
			}
			settle("4100000000", 400, "amount: must be at most $40.00")
			settle("2000000000", 200, `"suspended"`) // of the other payment
			l.has(30 * money.Dollar)
			settle("2100000000", 400, "amount: must be at most $20.00")
			l.operate("close", 400, "$10.00 is disputed")
			l.has(30 * money.Dollar)
			l.steer(session, end)
			l.hearOfDisputes()
			l.has(map[string]money.MC{"won": 30, "lost": 20}[end] * money.Dollar)
			refunded := map[string]string{"won": `"refunded_mc":1000000000`, "lost": `"refunded_mc":0`}[end]
			l.operate("close", 200, refunded)
			l.has(0)
		})
	}
}

// hearOfDisputes lets the reconciliation of the day find what became of disputes.
func (l *leaver) hearOfDisputes() {
	l.t.Helper()
	l.pass(25 * time.Hour)
	if err := l.topups.Reconcile(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
}

// TestClosingReturnsAllOfAPayment returns also what is left of a payment of which a return was on its way when the
// operator closes the account: goodwill is withdrawn afterwards, because its user has spent it first.
func TestClosingReturnsAllOfAPayment(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		l := newLeaver(t, d)
		l.do(t, rules.GiveGoodwill{
			GoodwillID: "gwc_x", AccountID: l.accountID, AmountMC: 5 * money.Dollar, Reason: "Sorry.",
		})
		l.steer("", "refunds", "status", "pending")
		l.toCard("10")
		l.steer("", "refunds", "status", "succeeded")
		l.operate("close", 200, `"refunded_mc":2000000000`)
		l.has(0)
	})
}

// TestHeldForOwnWorkIsNamed names in the emails about a revoke and a suspension what an app can still charge.
func TestHeldForOwnWorkIsNamed(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		l := newLeaver(t, d)
		var app apps.App
		registry := apps.NewStore(d, func() time.Time { return time.UnixMicro(l.nowUS.Load()) }, false)
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
			app, _, err = registry.Create(ctx, tx, apps.New{
				OwnerID: l.accountID, Name: "Writer", Tier: apps.LimitedLive,
			})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		books := apitest.NewBooks(t, d)
		connect := func(id string) {
			l.do(t, rules.Connect{
				ConnectionID: id, AppID: app.ID, AccountID: l.accountID, RequestedMC: 5 * money.Dollar,
			})
			books.Do(rules.Hold{NodeID: "n", Claim: id, Pending: "app", Call: rules.Call{
				ConnectionID: id, AccountID: l.accountID, AppID: app.ID, Key: id, RequestID: "req_" + id,
				Fingerprint: "f", Model: rules.OwnWork, HoldMC: 3 * money.Dollar,
				Terms: `{"own_work":{"amount_mc":300000000,"description":"A search"},"fee_ppm":50000}`,
			}})
		}
		connect("conn_1")
		want(t, "revoke", l.api.Do(t, "POST", "/v1/operator/connections/conn_1/revoke", `{"reason":"Abuse."}`), 200,
			`"status":"revoked"`)
		l.mailed(person, "We disconnected Writer", "$2.00 that it had not used is back")
		l.mailed(person, "We disconnected Writer",
			"can still charge up to $3.00 that it holds for its own work, within ten minutes")
		connect("conn_2")
		l.operate("suspend", 200, `"suspended"`)
		l.mailed(person, "Your account is suspended",
			"Apps can still charge up to $6.00 that they hold for their own work, within ten minutes")
	})
}
