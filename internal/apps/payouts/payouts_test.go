package payouts_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/purserhq/purser/emulator/stripe"
	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/payouts"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	api "github.com/purserhq/purser/internal/base/stripe"
	"github.com/purserhq/purser/internal/ledger/audit"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/mail"
	"github.com/purserhq/purser/internal/people/topups"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

const day = 24 * time.Hour

// A world is a developer whose app has a user, and an emulated Stripe.
type world struct {
	*payouts.Store
	t      *testing.T
	at     string       // the database's address
	clock  atomic.Int64 // Unix nanoseconds: the ledger's writer reads it, too
	stripe *stripe.Server
	dev    accounts.Account
	user   accounts.Account
	app    apps.App
	payee  string // acct_…

	payments  *topups.Store
	stripeURL string
}

// each runs f on both databases.
func each(t *testing.T, f func(w *world)) {
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, e)
			f(w)
			w.verify()
		})
	}
}

func (w *world) now() time.Time { return time.Unix(0, w.clock.Load()) }

// pass lets time pass.
func (w *world) pass(d time.Duration) { w.clock.Add(int64(d)) }

func newWorld(t *testing.T, e db.Engine) *world {
	t.Helper()
	w := &world{t: t, at: dbtest.URL(t, e)}
	w.pass(time.Duration(time.Now().Add(-10 * day).UnixNano()))
	w.stripe = stripe.New(stripe.Options{Key: "sk_test_key", WebhookSecret: "whsec_0123456789abcdef", Now: w.now})
	server := httptest.NewServer(w.stripe)
	t.Cleanup(server.Close)
	w.stripeURL = server.URL
	w.open()
	people := accounts.NewStore(w.DB, w.now)
	err := w.DB.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
		if w.dev, err = people.Create(ctx, tx, accounts.NewAccount{Email: "dev@example.com"}); err != nil {
			return err
		}
		if w.user, err = people.Create(ctx, tx, accounts.NewAccount{Email: "user@example.com"}); err != nil {
			return err
		}
		w.app, _, err = w.Apps.Create(ctx, tx, apps.New{
			OwnerID: w.dev.ID, Name: "App", RedirectURIs: []string{"https://app.example.com/back"},
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// open begins a node on the world's database. It is the one that the world's steps are taken on.
func (w *world) open() {
	w.t.Helper()
	d, err := db.Open(w.t.Context(), w.at)
	if err != nil {
		w.t.Fatal(err)
	}
	d.RelaxLimits(12)
	ledger := store.NewWriter(d, w.now)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- ledger.Run(ctx) }()
	w.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
		_ = d.Close()
	})
	w.Store, w.payments = w.node(d, ledger, w.stripeURL)
	w.payments.Transfers = w.Store
}

// node returns the services of a node, which asks Stripe at an address.
func (w *world) node(d *db.DB, ledger *store.Writer, stripeURL string) (*payouts.Store, *topups.Store) {
	w.t.Helper()
	mails, log := &mail.Store{DB: d, Now: w.now}, slog.New(slog.DiscardHandler)
	payments := &topups.Store{DB: d, Ledger: ledger, Mails: mails, Now: w.now, Log: log,
		Config: topups.Config{Key: "sk_test_key", WebhookSecret: "whsec_0123456789abcdef", BaseURL: stripeURL}}
	if err := payments.Configure(); err != nil {
		w.t.Fatal(err)
	}
	return &payouts.Store{
		DB:           d,
		Ledger:       ledger,
		Apps:         apps.NewStore(d, w.now, true),
		Stripe:       payments.Stripe(),
		Account:      payments.Account(),
		Config:       payouts.Config{Every: 7 * day, Window: 2 * day, MinimumMC: money.Dollar},
		DashboardURL: "https://purser.example.com",
		Mails:        mails,
		Log:          log,
		Now:          w.now,
	}, payments
}

func (w *world) do(c rules.Command) rules.Result {
	w.t.Helper()
	r, err := w.Ledger.Do(w.t.Context(), c)
	if err != nil {
		w.t.Fatalf("%T: %v", c, err)
	}
	return r
}

func (w *world) exec(query string, args ...any) {
	w.t.Helper()
	err := w.DB.InTx(w.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, query, args...)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// pays pays $100 into the user's balance.
func (w *world) pays(payment string) {
	w.t.Helper()
	w.exec(`INSERT INTO checkouts (id, account_id, token, cents, created_us) VALUES ($1, $2, $1, 10000, 1)`,
		payment, w.user.ID)
	w.do(rules.OpenPayment{PaymentID: payment, AccountID: w.user.ID, AmountMC: 100 * money.Dollar})
	w.do(rules.MarkPaymentPaid{PaymentID: payment, PaymentIntent: "pi_" + payment})
	w.do(rules.SettlePayment{PaymentID: payment})
}

// topUp pays $100 into the user's balance and connects the app with all of it.
func (w *world) topUp() {
	w.t.Helper()
	w.pays("top_1")
	w.do(rules.Connect{ConnectionID: "con_1", AppID: w.app.ID, AccountID: w.user.ID, RequestedMC: 100 * money.Dollar})
}

// call bills a call with a margin of dollars, and a cost of as many.
func (w *world) call(key string, dollars int64) {
	w.t.Helper()
	w.callOn("con_1", w.app.ID, key, dollars)
}

// callOn is call on a connection of an app.
func (w *world) callOn(connectionID, appID, key string, dollars int64) {
	w.t.Helper()
	amount := money.MC(dollars) * money.Dollar
	call := rules.Call{
		ConnectionID: connectionID, AccountID: w.user.ID, AppID: appID, Key: key, RequestID: "req_" + key,
		Fingerprint: key, Model: "m", HoldMC: 2 * amount, Terms: "{}",
	}
	attempt := w.do(rules.Hold{Call: call, NodeID: "n", Claim: key}).Attempt
	w.do(rules.Settle{
		Call: call, Attempt: attempt, Settlement: rules.Settled, Usage: rules.Usage{JSON: "{}"},
		Charge: rules.Amounts{ProviderCostMC: amount, DevMarginMC: amount, UserChargeMC: 2 * amount},
	})
}

// run runs the job.
func (w *world) run() {
	w.t.Helper()
	if err := w.Run(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// onboard answers all of Stripe's questions.
func (w *world) onboard() {
	w.t.Helper()
	link, err := w.Onboard(w.t.Context(), w.dev)
	if err != nil {
		w.t.Fatal(err)
	}
	u, err := url.Parse(link)
	if err != nil {
		w.t.Fatal(err)
	}
	w.payee = u.Path[len("/connect/"):]
	w.steer(w.payee, "enable")
	if p, err := w.GetPayee(w.t.Context(), w.dev.ID); err != nil || !p.Enabled {
		w.t.Fatalf("%+v, %v", p, err)
	}
}

func (w *world) steer(who, do string, pairs ...string) {
	w.t.Helper()
	with := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		with.Set(pairs[i], pairs[i+1])
	}
	if err := w.stripe.Steer(who, do, with); err != nil {
		w.t.Fatal(err)
	}
}

// wants compares the transfers that Stripe has, in cents, and the states of the payouts, newest first.
func (w *world) wants(cents []int64, states ...string) {
	w.t.Helper()
	var got []int64
	for _, body := range w.stripe.Transfers() {
		var t struct {
			Amount      int64  `json:"amount"`
			Destination string `json:"destination"`
		}
		if err := json.Unmarshal(body, &t); err != nil || t.Destination != w.payee {
			w.t.Fatalf("%s, %v", body, err)
		}
		got = append(got, t.Amount)
	}
	list, err := store.PayoutsOfDeveloper(w.t.Context(), w.DB, w.dev.ID, 10)
	if err != nil {
		w.t.Fatal(err)
	}
	var found []string
	for _, p := range list {
		found = append(found, p.Status)
	}
	if len(got) != len(cents) || len(found) != len(states) {
		w.t.Fatalf("transfers %d, payouts %q; want %d, %q", got, found, cents, states)
	}
	for i := range cents {
		if got[i] != cents[i] {
			w.t.Errorf("transfers %d, want %d", got, cents)
		}
	}
	for i := range states {
		if found[i] != states[i] {
			w.t.Errorf("payouts %q, want %q", found, states)
		}
	}
}

// transferUnheard makes the transfer of the payout that is open, as if a crash had come after it and before its record,
// so long ago that Stripe has forgotten the key of the request.
func (w *world) transferUnheard(cents int64) {
	w.t.Helper()
	open, err := store.OpenPayouts(w.t.Context(), w.DB, 10)
	if err != nil || len(open) != 1 {
		w.t.Fatal(len(open), err)
	}
	_, err = api.Create[api.Transfer](w.t.Context(), w.Stripe, api.Params{
		"amount":         strconv.FormatInt(cents, 10),
		"currency":       "usd",
		"destination":    w.payee,
		"transfer_group": open[0].ID,
	}, "")
	if err != nil {
		w.t.Fatal(err)
	}
}

// transferLost makes a transfer of a payout of the app that the books do not have.
func (w *world) transferLost(payoutID string, cents int64) {
	w.t.Helper()
	_, err := api.Create[api.Transfer](w.t.Context(), w.Stripe, api.Params{
		"amount":              strconv.FormatInt(cents, 10),
		"currency":            "usd",
		"destination":         w.payee,
		"transfer_group":      payoutID,
		"metadata[payout_id]": payoutID,
		"metadata[app_id]":    w.app.ID,
	}, "")
	if err != nil {
		w.t.Fatal(err)
	}
}

// margin is the margin of the app.
func (w *world) margin() payouts.AppMargin {
	w.t.Helper()
	return w.marginOf(w.app.ID)
}

// marginOf is the margin of an app of the developer.
func (w *world) marginOf(appID string) payouts.AppMargin {
	w.t.Helper()
	list, err := w.ListMargins(w.t.Context(), w.dev.ID)
	for _, m := range list {
		if m.ID == appID {
			return m
		}
	}
	w.t.Fatalf("%s of %+v, %v", appID, list, err)
	return payouts.AppMargin{}
}

// secondApp makes another app of the developer, and connects the user's money with it.
func (w *world) secondApp(connectionID string, dollars int64) (appID string) {
	w.t.Helper()
	err := w.DB.InTx(w.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		app, _, err := w.Apps.Create(ctx, tx, apps.New{
			OwnerID: w.dev.ID, Name: "Second", RedirectURIs: []string{"https://second.example.com/back"},
		})
		appID = app.ID
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.do(rules.Connect{
		ConnectionID: connectionID, AppID: appID, AccountID: w.user.ID,
		RequestedMC: money.MC(dollars) * money.Dollar,
	})
	return appID
}

// verify runs the audit. The calls of these tests have no terms, so only what is said of payouts counts.
func (w *world) verify() {
	w.t.Helper()
	var out bytes.Buffer
	if _, err := audit.VerifyAndPrint(w.t.Context(), w.at, &out, w.now()); err != nil {
		w.t.Fatal(err)
	}
	for line := range bytes.Lines(out.Bytes()) {
		isOf := bytes.HasPrefix(line, []byte("I35")) || bytes.HasPrefix(line, []byte("I2 "))
		if isOf && !bytes.Contains(line, []byte(" 0 findings")) {
			w.t.Errorf("%s", out.String())
			return
		}
	}
}

// TestDeveloperIsPaid pays what has matured, once a week, at most once, and waits for a week and a payee.
func TestDeveloperIsPaid(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.topUp()
		w.call("k1", 10)
		w.run()
		w.wants(nil) // nobody has said whom to pay
		w.onboard()
		w.run()
		w.wants(nil) // the call is too young
		w.pass(3 * day)
		w.steer("", "transfers", "status", "balance")
		w.run()
		w.wants(nil, "begun")
		w.steer("", "transfers", "status", "")
		w.transferUnheard(1000)
		w.run()
		w.wants([]int64{1000}, "paid")
		w.mailed("We paid you $10.00", "We sent $10.00 of your app’s margin")
		w.call("k2", 5)
		w.pass(3 * day)
		w.run() // not a week later
		w.wants([]int64{1000}, "paid")
		w.pass(4 * day)
		w.run()
		w.run()
		w.wants([]int64{1000, 500}, "paid", "paid")
		w.mailed("We paid you $5.00", "We sent $5.00 of your app’s margin")
		if m := w.margin(); m.EarnedMC != 15*money.Dollar || m.TakenMC != 15*money.Dollar || m.Balance() != 0 {
			t.Errorf("%+v", m)
		}
	})
}

// TestPayoutFails gives the amount of a payout back that Stripe refuses or reverses, and waits for money that we do not
// have at Stripe yet.
func TestPayoutFails(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.beginsWaiting()
		w.meter()
		w.steer("", "transfers", "status", "refuse")
		w.run()
		w.wants(nil, "begun") // Stripe repeats its answer to the first attempt, and after an hour another one follows
		w.pass(61 * time.Minute)
		w.run()
		w.wants(nil, "failed")
		w.alarmed("payout_refused", 1)
		w.mailed("We couldn’t pay you $10.00", "Stripe did not pay $10.00 of your app’s margin")
		if m := w.margin(); m.Balance() != 10*money.Dollar {
			t.Errorf("%+v", m)
		}
		w.steer("", "transfers", "status", "")
		w.pass(7 * day)
		w.run()
		w.wants([]int64{1000}, "paid", "failed")
		w.steer("", "transfers", "status", "reversed")
		w.run()
		w.wants([]int64{1000}, "failed", "failed")
		if n := w.mailsTo("We couldn’t pay you $10.00"); n != 2 {
			t.Errorf("%d emails about two payouts that failed", n)
		}
		w.steer(w.payee, "restrict")
		w.pass(7 * day)
		w.run()
		w.wants([]int64{1000}, "failed", "failed")
	})
}

// mailed checks that the developer got one email of a subject, and what it says.
func (w *world) mailed(subject, says string) {
	w.t.Helper()
	list, err := w.Mails.ListNewest(w.t.Context(), 100)
	if err != nil {
		w.t.Fatal(err)
	}
	list = slices.DeleteFunc(list, func(m mail.Mail) bool { return m.Subject != subject })
	if len(list) != 1 || list[0].To != w.dev.Email || !strings.Contains(list[0].Text, says) {
		w.t.Errorf("emails %q: %+v, want one that says %q", subject, list, says)
	}
}

// TestTransferOfAnotherAmount finds a transfer for a payout that is not of its amount: only the operator can judge it,
// so the payout stays open and nothing else is sent, with an alarm at each run.
func TestTransferOfAnotherAmount(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.beginsWaiting()
		w.steer("", "transfers", "status", "")
		w.transferUnheard(900)
		w.meter()
		for n := range 2 {
			w.pass(61 * time.Minute)
			w.run()
			w.wants([]int64{900}, "begun")
			w.alarmed("payout_differs", n+1)
		}
		if list, err := w.Mails.ListNewest(t.Context(), 10); err != nil || len(list) != 0 {
			t.Errorf("%+v, %v", list, err)
		}
	})
}

// TestManyPayees pays the developer who comes after a page of others, none of whom can be looked up.
func TestManyPayees(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.ready()
		w.exec(`WITH RECURSIVE n (i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM n WHERE i < 199)
			INSERT INTO payees (account_id, stripe_id, created_us) SELECT 'a_' || i, 'acct_' || i, 1 FROM n`)
		w.run()
		w.wants([]int64{1000}, "paid")
	})
}

// between lets f answer requests to Stripe before the emulated one does.
func (w *world) between(f func(http.ResponseWriter, *http.Request) bool) {
	w.t.Helper()
	other := w.another(f)
	w.Stripe, w.Account = other.Stripe, other.Account
}

// another is a second node on the same database. f answers its requests to Stripe before the emulated one does.
func (w *world) another(f func(http.ResponseWriter, *http.Request) bool) *payouts.Store {
	w.t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if !f(rw, r) {
			w.stripe.ServeHTTP(rw, r)
		}
	}))
	w.t.Cleanup(s.Close)
	other, _ := w.node(w.DB, w.Ledger, s.URL)
	return other
}

// TestRefusedLookUpEndsNoPayout refuses to make a transfer for a fault of ours, then loses Stripe's answer to one, and
// refuses to say whether there is one, though it lists others. The payout stays open until Stripe says that it has the
// transfer.
func TestRefusedLookUpEndsNoPayout(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.topUp()
		w.call("k1", 10)
		w.onboard()
		w.pass(3 * day)
		status, method := 403, http.MethodPost
		w.between(func(rw http.ResponseWriter, r *http.Request) bool {
			isOfAll := r.Method == http.MethodGet && !r.URL.Query().Has("transfer_group")
			if status == 0 || r.Method != method || r.URL.Path != "/v1/transfers" || isOfAll {
				return false
			}
			rw.Header().Set("Content-Type", "application/json")
			rw.WriteHeader(status)
			_, _ = fmt.Fprintf(rw, `{"error": {"type": "invalid_request_error", "message": "refused with %d"}}`, status)
			return true
		})
		w.run()
		w.wants(nil, "begun") // our key may not make transfers
		status = 0
		w.transferUnheard(1000)
		method = http.MethodGet
		for _, status = range []int{400, 401, 403, 404, 429} {
			w.run()
			w.wants([]int64{1000}, "begun")
		}
		status = 0
		w.run()
		w.wants([]int64{1000}, "paid")
		w.pass(7 * day)
		w.run()
		w.wants([]int64{1000}, "paid")
	})
}

// TestDisputedMarginIsNotPaid takes of the margin what the balance cannot bear of a dispute, and pays it once the
// dispute is won.
func TestDisputedMarginIsNotPaid(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.topUp()
		w.call("k1", 10)
		w.onboard()
		w.pass(time.Hour)
		w.do(rules.DisputePayment{PaymentID: "top_1", DisputeID: "du_1"})
		w.exec(
			`INSERT INTO disputes (id, payment_id, cents, contested, changed_us) VALUES ('du_1', 'top_1', 9000, 1, $1)`,
			w.now().Add(3*day).UnixMicro(),
		)
		w.pass(3 * day)
		w.run() // the balance bears $80 of $90, and the other $10 are half of what the calls cost
		w.wants([]int64{500}, "paid")
		w.exec(`UPDATE disputes SET cents = 10000 WHERE id = 'du_1'`)
		w.run()
		if m := w.margin(); m.DisputedMC != 10*money.Dollar || m.Balance() != -5*money.Dollar {
			t.Errorf("%+v", m)
		}
		w.exec(`UPDATE disputes SET contested = 0 WHERE id = 'du_1'`)
		w.pass(7 * day)
		w.run()
		w.wants([]int64{500, 500}, "paid", "paid")
		if m := w.margin(); m.DisputedMC != 0 || m.Balance() != 0 {
			t.Errorf("%+v", m)
		}
	})
}

// TestOneDisputeKeepsNoOthersFromBeingPaid: what one account has lost cannot be counted. Apps that it has never used
// are paid; those of a developer of whom it has used one wait.
func TestOneDisputeKeepsNoOthersFromBeingPaid(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.topUp()
		w.call("k1", 10)
		w.onboard()
		w.pass(3 * day)
		broken := w.dev.ID // who has used no app
		user := w.user
		w.user = w.dev
		w.pays("top_broken")
		w.user = user
		w.disputes("top_broken")
		w.DB.Fail(func(query string, args []any) bool {
			return strings.Contains(query, "kind = 'disputed'") && len(args) == 1 && args[0] == broken
		})
		w.disputes("top_1")
		broken = w.user.ID
		w.run()
		w.wants(nil)
		w.wins("top_1")
		w.pass(day)
		broken = w.dev.ID
		w.exec(`UPDATE disputes SET changed_us = changed_us + 1`)
		w.run()
		w.wants([]int64{1000}, "paid")
	})
}

// disputes opens a dispute of all of a payment of $100.
func (w *world) disputes(payment string) {
	w.t.Helper()
	w.do(rules.DisputePayment{PaymentID: payment, DisputeID: "du_" + payment})
	w.exec(`INSERT INTO disputes (id, payment_id, cents, contested, changed_us) VALUES ($1, $2, 10000, 1, $3)`,
		"du_"+payment, payment, w.now().UnixMicro())
}

// wins ends the dispute of a payment well.
func (w *world) wins(payment string) {
	w.t.Helper()
	w.exec(`UPDATE disputes SET contested = 0, changed_us = $2 WHERE payment_id = $1`, payment, w.now().UnixMicro())
	w.decided(payment)
}

// decided ends what the disputes of a payment have stopped.
func (w *world) decided(payment string) {
	w.t.Helper()
	list, err := db.QueryAll(w.t.Context(), w.DB, db.ScanColumn[string], `SELECT id FROM disputes
		WHERE payment_id = $1`, payment)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, dispute := range list {
		w.do(rules.EndDispute{PaymentID: payment, DisputeID: dispute})
	}
}

// disputed checks what disputed payments take of the app's margin.
func (w *world) disputed(want money.MC) {
	w.t.Helper()
	w.run()
	if m := w.margin(); m.DisputedMC != want {
		w.t.Errorf("disputes take %s, want %s", m.DisputedMC.Display(), want.Display())
	}
	w.verify()
}

// loses ends the dispute of all of a payment badly.
func (w *world) loses(payment string) {
	w.t.Helper()
	w.do(rules.ReversePayment{PaymentID: payment, Reason: rules.ReasonDisputeLost, TotalMC: 100 * money.Dollar})
	w.decided(payment)
}

// TestPaymentsOfAnAccountTakeItsMarginOnce disputes several top-ups that one call may have been paid from: together
// they take what it brought, also when some are won or lost, and when it is refunded.
func TestPaymentsOfAnAccountTakeItsMarginOnce(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		payments := []string{"top_1", "top_2", "top_3", "top_4"}
		for _, p := range payments[1:] {
			w.pays(p)
		}
		w.topUp()
		w.call("k1", 10)
		w.pass(time.Hour)
		for _, p := range payments[1:] {
			w.disputes(p)
			w.disputed(0) // the balance bears it
		}
		w.disputes("top_1")
		w.disputed(10 * money.Dollar)
		w.exec(`UPDATE disputes SET cents = 9750`) // ten dollars less: half of what the call cost
		w.disputed(5 * money.Dollar)
		w.wins("top_2")
		w.disputed(0)
		w.exec(`UPDATE disputes SET cents = 10000, contested = 1`)
		w.disputed(10 * money.Dollar)
		for _, p := range payments {
			w.loses(p)
			w.disputed(10 * money.Dollar)
		}
		w.pays("top_5") // which pays the debt
		w.disputed(0)
		w.disputes("top_5")
		w.disputed(10 * money.Dollar)
		w.do(rules.Reverse{EntryID: "led_k1", AccountID: w.user.ID, Reason: "provider_error"})
		w.disputed(0)
	})
}

// TestLossThatTheBalanceBore loses a dispute of one of two top-ups, of which the other covers all that was spent:
// nothing was lost, so the app keeps its margin.
func TestLossThatTheBalanceBore(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.pays("top_2")
		w.topUp()
		w.call("k1", 10)
		w.pass(time.Hour)
		w.disputes("top_2")
		w.disputed(0)
		w.loses("top_2")
		w.disputed(0)
		w.call("k2", 30) // most of what is left is spent, and then disputed
		w.disputes("top_1")
		w.disputed(40 * money.Dollar)
		w.wins("top_1")
		w.disputed(0)
	})
}

// TestLossWhoseCallsAreGone: what disputed payments took of a margin stays when the ledger no longer has the calls that
// they paid for.
func TestLossWhoseCallsAreGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite)
	w.topUp()
	w.call("k1", 10)
	w.pass(time.Hour)
	w.disputes("top_1")
	w.disputed(10 * money.Dollar)
	w.exec(`DROP TRIGGER payment_records_no_update`)
	w.exec(`UPDATE payment_records SET entry_id = 'led_gone' WHERE kind = 'settled'`)
	w.exec(`UPDATE disputes SET cents = 9999, changed_us = changed_us + 1`)
	w.run()
	if m := w.margin(); m.DisputedMC != 10*money.Dollar {
		t.Errorf("%+v", m)
	}
}

// TestAppsBearALossTogether disputes all that an account has spent at two apps. Each app bears its share, whichever
// calls are refunded between, and each gets it back with the dispute that is won.
func TestAppsBearALossTogether(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.pays("top_1")
		first := w.secondApp("con_1", 50)
		second := w.secondApp("con_2", 50)
		w.callOn("con_1", first, "k1", 10)
		w.callOn("con_1", first, "k2", 10)
		w.callOn("con_2", second, "k3", 5)
		w.pass(time.Hour)
		wants := func(ofFirst, ofSecond money.MC) {
			w.t.Helper()
			w.run()
			w.verify()
			if a, b := w.marginOf(first).DisputedMC, w.marginOf(second).DisputedMC; a != ofFirst || b != ofSecond {
				w.t.Errorf("disputes take %s and %s, want %s and %s", a.Display(), b.Display(), ofFirst.Display(),
					ofSecond.Display())
			}
		}
		w.disputes("top_1")
		wants(20*money.Dollar, 5*money.Dollar)
		w.do(rules.Reverse{EntryID: "led_k3", AccountID: w.user.ID, Reason: "provider_error"})
		wants(20*money.Dollar, 0)
		w.do(rules.Reverse{EntryID: "led_k1", AccountID: w.user.ID, Reason: "provider_error"})
		wants(10*money.Dollar, 0)
		w.do(rules.Reverse{EntryID: "led_k2", AccountID: w.user.ID, Reason: "provider_error"})
		wants(0, 0)
		w.wins("top_1")
		wants(0, 0)
	})
}

// TestMarginOfARefundedCallComesBack refunds the only call that a disputed payment paid for: nothing is taken of a
// margin that is not there, whatever becomes of the dispute.
func TestMarginOfARefundedCallComesBack(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.topUp()
		w.call("k1", 10)
		w.pass(time.Hour)
		w.disputes("top_1")
		w.disputed(10 * money.Dollar)
		w.do(rules.Reverse{EntryID: "led_k1", AccountID: w.user.ID, Reason: "provider_error"})
		w.disputed(0)
		w.wins("top_1")
		w.disputed(0)
		if m := w.margin(); m.TakenMC != 0 {
			t.Errorf("%+v", m)
		}
	})
}

// A person is the user of a random history, and what it has made.
type person struct {
	*world
	random   *rand.Rand
	n        int
	apps     []string
	payments []string
	open     map[string]bool // disputes
	calls    []string        // that were not refunded
}

// step does one thing that may happen to a person's money.
func (p *person) step() {
	p.n++
	pick := func() string { return p.payments[p.random.IntN(len(p.payments))] }
	switch p.random.IntN(16) {
	case 0, 1:
		payment := fmt.Sprint("top_", p.n)
		p.pays(payment)
		p.payments = append(p.payments, payment)
	case 2, 3, 4, 5, 6, 7:
		n := p.random.IntN(len(p.apps))
		connection, call := fmt.Sprint("con_", n), fmt.Sprint("k", p.n)
		if dollars := p.makeReady(connection); dollars >= 2 {
			p.callOn(connection, p.apps[n], call, max(dollars/2/(1+p.random.Int64N(3)), 1))
			p.calls = append(p.calls, call)
		}
	case 8: // somebody refunds a part of a payment, which fails if a lost dispute has taken it
		_, _ = p.Ledger.Do(p.t.Context(), rules.ReversePayment{
			PaymentID: pick(), Reason: "refunded", TotalMC: 10 * money.Dollar,
		})
	case 9:
		if len(p.calls) > 0 {
			i := p.random.IntN(len(p.calls))
			p.do(rules.Reverse{EntryID: "led_" + p.calls[i], AccountID: p.user.ID, Reason: "provider_error"})
			p.calls = slices.Delete(p.calls, i, i+1)
		}
	case 10, 11, 12:
		if payment := pick(); !p.open[payment] {
			p.open[payment] = true
			cents, dispute := min(100*(1+p.random.Int64N(200)), 10000), fmt.Sprint("du_", p.n)
			// As if it were decided, so that spending goes on and more histories lose something.
			p.do(rules.DisputePayment{PaymentID: payment, DisputeID: dispute, Lost: true})
			p.exec(`INSERT INTO disputes (id, payment_id, cents, contested, changed_us) VALUES ($1, $2, $3, 1, $4)`,
				dispute, payment, cents, p.now().UnixMicro())
		}
	default:
		payment := pick()
		d, err := store.ReadDisputedPayment(p.t.Context(), p.DB, payment, 0)
		switch {
		case err != nil:
			p.t.Fatal(err)
		case !p.open[payment] || d.DisputedMC > 0: // no dispute, or a lost one
		case p.random.IntN(2) == 0:
			p.wins(payment)
			p.open[payment] = false
		default:
			var cents int64
			if err := p.DB.QueryRowContext(p.t.Context(), `SELECT cents FROM disputes WHERE payment_id = $1
				AND contested = 1`, payment).Scan(&cents); err == nil {
				before, err := store.GetPayment(p.t.Context(), p.DB, payment)
				if err != nil {
					p.t.Fatal(err)
				}
				p.do(rules.ReversePayment{
					PaymentID: payment,
					Reason:    rules.ReasonDisputeLost,
					TotalMC:   min(money.MC(cents)*money.Cent, before.AmountMC-before.ReversedMC),
				})
				p.decided(payment)
			}
		}
	}
}

// makeReady resumes a connection, allocates all that is available to it, and returns how many dollars it may spend.
func (p *person) makeReady(connectionID string) int64 {
	p.t.Helper()
	b, err := store.GetBalance(p.t.Context(), p.DB, p.user.ID)
	if err != nil {
		p.t.Fatal(err)
	}
	c, err := store.GetConnection(p.t.Context(), p.DB, connectionID)
	if err != nil {
		p.t.Fatal(err)
	}
	if c.Status == rules.Frozen && b.AvailableMC >= 0 {
		p.do(rules.Resume{ConnectionID: connectionID, By: rules.FrozenByOperator, DespiteDispute: true})
	} else if c.Status == rules.Frozen {
		return 0
	}
	if b.AvailableMC > 0 {
		c = p.do(rules.ChangeCap{ConnectionID: connectionID, TargetMC: c.AllocationMC + b.AvailableMC}).Connection
	}
	return int64(c.RemainingMC() / money.Dollar)
}

// check compares what disputes take with what the person's account is short of, and with what its calls brought.
func (p *person) check() (taken money.MC) {
	p.t.Helper()
	b, err := store.GetBalance(p.t.Context(), p.DB, p.user.ID)
	if err != nil {
		p.t.Fatal(err)
	}
	var open, lost, margin money.MC
	for _, q := range []struct {
		into  *money.MC
		query string
	}{
		{&lost, `SELECT CAST(COALESCE(SUM(amount_mc), 0) AS BIGINT) FROM payment_records
			WHERE kind = 'reversed' AND reason = 'dispute_lost'`},
		{&open, `SELECT CAST(COALESCE(SUM(cents), 0) * 1000000 AS BIGINT) FROM disputes WHERE contested = 1`},
		{&margin, `SELECT CAST(COALESCE(SUM(dev_margin_mc), 0) AS BIGINT) FROM ledger l WHERE type = 'spend'
			AND status = 'settled' AND NOT EXISTS (SELECT 1 FROM ledger r WHERE r.reversal_of = l.id)`},
		{&taken, `SELECT CAST(COALESCE(SUM(amount_mc), 0) AS BIGINT) FROM margin_records WHERE kind = 'disputed'`},
	} {
		if err := p.DB.QueryRowContext(p.t.Context(), q.query).Scan(q.into); err != nil {
			p.t.Fatal(err)
		}
	}
	loss := max(open-lost-b.AvailableMC-b.ReservedMC, 0)
	if taken < 0 || taken > min(margin, loss) {
		p.t.Fatalf("step %d: disputes take %s of a margin of %s, and %s are lost", p.n, taken.Display(),
			margin.Display(), loss.Display())
	}
	return taken
}

// TestRandomDisputes tops up, calls, refunds, disputes, wins and loses in random order. After each step what disputes
// take is at most what was lost, and at most what the calls brought; the audit computes each share again.
func TestRandomDisputes(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := &person{
			world: w, random: rand.New(rand.NewPCG(14, 110)), payments: []string{"top_0"}, open: map[string]bool{},
		}
		w.pays("top_0")
		for n := range 3 {
			p.apps = append(p.apps, w.secondApp(fmt.Sprint("con_", n), 30))
		}
		took, gaveBack, before := 0, 0, money.MC(0)
		for range 80 {
			p.step()
			w.pass(time.Minute)
			w.run()
			taken := p.check()
			if taken > before {
				took++
			} else if taken < before {
				gaveBack++
			}
			if before = taken; p.n%20 == 0 {
				w.verify()
			}
		}
		if took < 5 || gaveBack < 5 {
			t.Errorf("%d steps took margin, %d gave it back: the history is too tame", took, gaveBack)
		}
	})
}

// TestDisputesRaced runs the job on several nodes while disputes are opened and won, and calls are refunded. The next
// run takes exactly what was lost.
func TestDisputesRaced(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.topUp()
		for i := range 8 {
			w.call(fmt.Sprint("k", i), 5)
		}
		w.disputes("top_1")
		var wg sync.WaitGroup
		for n := range 4 {
			wg.Go(func() {
				for range 5 {
					if err := w.Run(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
			wg.Go(func() {
				w.do(rules.Reverse{EntryID: fmt.Sprint("led_k", n), AccountID: w.user.ID, Reason: "provider_error"})
			})
			wg.Go(func() { // as topups does: under the lock of the account's balance
				err := w.DB.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
					if _, err := store.LockBalance(ctx, tx, w.user.ID); err != nil {
						return err
					}
					_, err := tx.ExecContext(ctx, `UPDATE disputes SET cents = $1, changed_us = $2`, 8000+500*n, n+1)
					return err
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		// $30 more than the $60 that are left, of $40 that were spent
		w.exec(`UPDATE disputes SET cents = 9000, changed_us = 99`)
		w.disputed(15 * money.Dollar)
	})
}

// TestRecordsOfPaymentsCount takes over from an earlier version, which took margin payment by payment.
func TestRecordsOfPaymentsCount(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.pays("top_2")
		w.topUp()
		w.call("k1", 10)
		w.pass(time.Hour)
		for n, payment := range []string{"top_1", "top_2"} {
			w.disputes(payment)
			w.exec(`INSERT INTO margin_records (app_id, n, kind, subject, developer_id, amount_mc, taken_mc, created_us)
				VALUES ($1, $2, 'disputed', $3, $4, $5, $6, 1)`, w.app.ID, n+1, payment, w.dev.ID, 5*money.Dollar,
				money.MC(n+1)*5*money.Dollar)
		}
		w.disputed(10 * money.Dollar)
		if m := w.margin(); m.TakenMC != 10*money.Dollar {
			t.Errorf("%+v", m)
		}
		w.wins("top_1")
		w.disputed(0)
	})
}

// TestAppsOfADeveloperAreNetted pays no more than the developer's apps are owed together, and nothing while the
// developer owes it from its own balance.
func TestAppsOfADeveloperAreNetted(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.topUp()
		w.call("k1", 10)
		w.onboard()
		w.pass(3 * day)
		w.run()
		w.wants([]int64{1000}, "paid")
		w.do(rules.Reverse{EntryID: "led_k1", AccountID: w.user.ID, Reason: "provider_error"})
		w.do(rules.Revoke{ConnectionID: "con_1"})
		second := w.secondApp("con_2", 90)
		w.callOn("con_2", second, "k2", 10)
		w.pass(7 * day)
		w.run() // ten dollars were earned, and paid
		w.wants([]int64{1000}, "paid")
		if m := w.marginOf(second); m.Balance() != 10*money.Dollar || m.Payable(0) != 0 {
			t.Errorf("%+v", m)
		}
		w.callOn("con_2", second, "k3", 5)
		w.pass(3 * day)
		w.owes("top_d", 500)
		w.run()
		w.wants([]int64{1000}, "paid")
		w.exec(`INSERT INTO checkouts (id, account_id, token, cents, created_us) VALUES ('top_e', $1, 'e', 50000, 1)`,
			w.dev.ID)
		w.do(rules.OpenPayment{PaymentID: "top_e", AccountID: w.dev.ID, AmountMC: 500 * money.Dollar})
		w.do(rules.MarkPaymentPaid{PaymentID: "top_e", PaymentIntent: "pi_e"})
		w.do(rules.SettlePayment{PaymentID: "top_e"})
		w.run()
		w.wants([]int64{1000, 500}, "paid", "paid")
	})
}

// owes lets the developer spend a payment of dollars, and lose a dispute of it.
func (w *world) owes(payment string, dollars int64) {
	w.t.Helper()
	amount := money.MC(dollars) * money.Dollar
	w.exec(`INSERT INTO checkouts (id, account_id, token, cents, created_us) VALUES ($1, $2, $1, $3, 1)`, payment,
		w.dev.ID, dollars*100)
	w.do(rules.OpenPayment{PaymentID: payment, AccountID: w.dev.ID, AmountMC: amount})
	w.do(rules.MarkPaymentPaid{PaymentID: payment, PaymentIntent: "pi_" + payment})
	w.do(rules.SettlePayment{PaymentID: payment})
	w.do(rules.Connect{ConnectionID: "con_d", AppID: "app_other", AccountID: w.dev.ID, RequestedMC: amount})
	call := rules.Call{
		ConnectionID: "con_d", AccountID: w.dev.ID, AppID: "app_other", Key: "kd", RequestID: "req_kd",
		Fingerprint: "kd", Model: "m", HoldMC: amount, Terms: "{}",
	}
	attempt := w.do(rules.Hold{Call: call, NodeID: "n", Claim: "kd"}).Attempt
	w.do(rules.Settle{
		Call: call, Attempt: attempt, Settlement: rules.Settled, Usage: rules.Usage{JSON: "{}"},
		Charge: rules.Amounts{ProviderCostMC: amount, UserChargeMC: amount},
	})
	w.do(rules.ReversePayment{PaymentID: payment, Reason: rules.ReasonDisputeLost, TotalMC: amount})
}

// TestPausedPayeeIsAskedAgain pays a payee that Stripe had paused, and one that has answered Stripe's questions without
// coming back to the page.
func TestPausedPayeeIsAskedAgain(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.topUp()
		w.call("k1", 10)
		w.onboard()
		w.steer(w.payee, "restrict")
		w.pass(3 * day)
		w.run()
		w.wants(nil)
		w.steer(w.payee, "enable")
		w.run()
		w.wants(nil) // Stripe was asked less than an hour ago
		w.pass(2 * time.Hour)
		w.run()
		w.wants([]int64{1000}, "paid")
		w.call("k2", 5)
		w.exec(`UPDATE payees SET enabled = 0, submitted = 0`)
		w.pass(8 * day)
		w.run()
		w.wants([]int64{1000, 500}, "paid", "paid")
	})
}

// TestHalfEnabledPayee: an account is paid that can both take transfers and pay them out.
func TestHalfEnabledPayee(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite)
	w.onboard()
	for _, lacks := range []string{"restrict-payouts", "restrict-transfers"} {
		w.steer(w.payee, "enable")
		w.steer(w.payee, lacks)
		if p, err := w.GetPayee(t.Context(), w.dev.ID); err != nil || p.Enabled || !p.Submitted {
			t.Errorf("%s: %+v, %v", lacks, p, err)
		}
	}
}

// TestSuspendedAreNotPaid pays no app that is suspended.
func TestSuspendedAreNotPaid(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.topUp()
		w.call("k1", 10)
		w.onboard()
		err := w.DB.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			_, _, err := w.Apps.Suspend(ctx, tx, w.app.ID, "operator", "fraud")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		w.pass(3 * day)
		w.run()
		w.wants(nil)
	})
}

// TestSuspendedSinceItBegan begins a payout while Stripe cannot make its transfer, and then suspends the app: the
// transfer is made once the suspension is lifted.
func TestSuspendedSinceItBegan(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.topUp()
		w.call("k1", 10)
		w.onboard()
		w.pass(3 * day)
		w.steer("", "transfers", "status", "balance")
		w.run()
		w.steer("", "transfers", "status", "")
		change := func(do func(context.Context, *db.Tx) error) {
			if err := w.DB.InTx(t.Context(), do); err != nil {
				t.Fatal(err)
			}
		}
		change(func(ctx context.Context, tx *db.Tx) error {
			_, _, err := w.Apps.Suspend(ctx, tx, w.app.ID, "operator", "fraud")
			return err
		})
		w.run()
		w.pass(61 * time.Minute) // Stripe would repeat its answer until then
		w.run()
		w.wants(nil, "begun")
		change(func(ctx context.Context, tx *db.Tx) error {
			_, _, err := w.Apps.Lift(ctx, tx, w.app.ID)
			return err
		})
		w.run() // Stripe repeats its answer
		w.pass(61 * time.Minute)
		w.run()
		w.wants([]int64{1000}, "paid")
	})
}

// TestOwedLessSinceItBegan begins a payout while Stripe cannot make its transfer, and then a dispute takes a part of
// the margin: what is still owed is paid, by another payout.
func TestOwedLessSinceItBegan(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.beginsWaiting()
		w.disputes("top_1")
		w.exec(`UPDATE disputes SET cents = 9000`) // the balance bears $80, and the margin $5
		w.steer("", "transfers", "status", "")
		w.run() // Stripe repeats its answer
		w.pass(61 * time.Minute)
		w.run()
		w.wants(nil, "failed")
		w.pass(8 * day)
		w.run()
		w.wants([]int64{500}, "paid", "failed")
		if m := w.margin(); m.DisputedMC != 5*money.Dollar || m.Balance() != 0 {
			t.Errorf("%+v", m)
		}
		if list, err := w.Mails.ListNewest(t.Context(), 10); err != nil || len(list) != 1 {
			t.Errorf("%+v, %v", list, err)
		}
	})
}

// TestReversedMarginComesFirst pays nothing of a call that was reversed, before or after it was paid.
func TestReversedMarginComesFirst(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.topUp()
		w.call("k1", 10)
		w.call("k2", 5)
		w.onboard()
		w.pass(3 * day)
		w.do(rules.Reverse{EntryID: "led_k2", AccountID: w.user.ID, Reason: "provider_error"})
		w.run()
		w.wants([]int64{1000}, "paid")
		w.do(rules.Reverse{EntryID: "led_k1", AccountID: w.user.ID, Reason: "provider_error"})
		w.call("k3", 12)
		w.pass(7 * day)
		w.run() // ten dollars of the twelve were paid already
		w.wants([]int64{1000, 200}, "paid", "paid")
	})
}

// TestClosedDeveloperIsPaid pays on what a developer has earned before the account was closed, also less than the
// minimum, and sends no email to an address that is erased. An app that an operator has suspended before waits.
func TestClosedDeveloperIsPaid(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.Config.MinimumMC = 100 * money.Dollar
		w.topUp()
		w.onboard()
		w.call("k1", 10)
		st, err := w.LoadStanding(w.t.Context(), w.DB, w.dev.ID)
		midnight := w.now().UTC().Truncate(day).Add(3 * day)
		if err != nil || st.UnpaidMC != 10*money.Dollar || !st.Payable || st.FromUS != midnight.UnixMicro() {
			w.t.Errorf("%+v, %v; want it paid from %v", st, err, midnight)
		}
		w.pass(4 * day)
		w.run()
		w.wants(nil) // less than the minimum
		suspend := func(reason string) {
			w.t.Helper()
			w.exec(`UPDATE accounts SET closed_us = 1, email = $2 WHERE id = $1`, w.dev.ID, w.dev.ID+"@closed")
			err := w.DB.InTx(w.t.Context(), func(ctx context.Context, tx *db.Tx) error {
				if _, _, err := w.Apps.Lift(ctx, tx, w.app.ID); err != nil && !errors.Is(err, apps.ErrUnchanged) {
					return err
				}
				_, _, err := w.Apps.Suspend(ctx, tx, w.app.ID, apps.ByOperator, reason)
				return err
			})
			if err != nil {
				w.t.Fatal(err)
			}
		}
		suspend("It steals.")
		w.run()
		w.wants(nil)
		st, err = w.LoadStanding(w.t.Context(), w.DB, w.dev.ID)
		if err != nil || st.UnpaidMC != 10*money.Dollar || st.HeldMC != 10*money.Dollar || len(st.Held) != 1 {
			w.t.Errorf("%+v, %v; want it held", st, err)
		}
		suspend(apps.ClosedReason)
		w.run()
		w.wants([]int64{1000}, "paid")
		st, err = w.LoadStanding(w.t.Context(), w.DB, w.dev.ID)
		if err != nil || st.UnpaidMC != 0 || st.UnderWayMC != 0 || st.HeldMC != 0 {
			w.t.Errorf("%+v, %v", st, err)
		}
		list, err := w.Mails.ListNewest(w.t.Context(), 10)
		if err != nil || len(list) != 0 {
			w.t.Errorf("mails to a closed account: %+v, %v", list, err)
		}
	})
}
