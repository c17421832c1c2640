package topups_test

import (
	"bytes"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/emulator/stripe"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/topups"
)

const dollars = money.Dollar

// TestPay follows one payment through the pages.
func TestPay(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		session := p.begin("25")
		p.wants(0, rules.PaymentPending)
		receipt := "/top-ups/" + p.payment().ID
		p.Get(receipt+"?back=paid").Want(t, http.StatusOK, "Thank you") // coming back is no payment
		p.wants(0, rules.PaymentPending)
		w.do(session, "pay")
		w.deliver(w.fresh(), http.StatusOK)
		p.wants(25*dollars, rules.PaymentSettled)
		p.Get(receipt).Want(t, http.StatusOK, "Credited", "pi_")
		p.Get("/top-ups").Want(t, http.StatusOK, "$25.00")
		w.person(accounts.NewAccount{}).Get(receipt).Want(t, http.StatusNotFound).Lacks(t, "25.00")
		developer := w.person(accounts.NewAccount{Developer: true})
		tester := w.person(accounts.NewAccount{Sandbox: true, OwnerID: developer.ID})
		for _, path := range []string{"/top-up", "/top-ups", receipt} {
			tester.Get(path).Want(t, http.StatusNotFound)
		}
	})
}

// TestAmounts: an attempt is one attempt, however often it is sent; other amounts
// are others.
func TestAmounts(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		token := p.Get("/top-up").Found(t, tokenField)
		send := func(amount string) (int, string) {
			a := p.Post("/top-up", url.Values{"token": {token}, "amount": {amount}})
			return a.Status, a.To
		}
		for _, amount := range []string{"", "4.99", "1000.01", "12.345", "-5", "1e3", "abc"} {
			if status, to := send(amount); status != http.StatusUnprocessableEntity {
				t.Errorf("%q: %d to %s", amount, status, to)
			}
		}
		_, first := send("5")
		_, again := send("$5.00")
		_, other := send("1000")
		if first == "" || first != again || first == other || other == "" {
			t.Errorf("%q, %q, %q", first, again, other)
		}
		w.do(first[strings.LastIndexByte(first, '/')+1:], "pay")
		w.deliver(w.fresh(), http.StatusOK)
		if status, to := send("5"); status != http.StatusSeeOther || !strings.HasPrefix(to, "/top-ups/top_") {
			t.Errorf("an attempt that is over leads to %d %q", status, to)
		}
		w.verify()
	})
}

// TestDuplicates is F-62: the same event, and others about the same payment.
func TestDuplicates(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		w.do(p.begin("50"), "pay")
		events := w.fresh()
		done := make(chan int, 8)
		for range cap(done) {
			go func() { done <- w.tell(events[1], w.stripe.Sign(events[1])) }()
		}
		for range cap(done) {
			if status := <-done; status != http.StatusOK {
				t.Error(status)
			}
		}
		w.deliver(events, http.StatusOK)
		for i, e := range events { // another id, the same payment
			events[i] = bytes.Replace(e, []byte(`"evt_`), []byte(`"evt_x`), 1)
		}
		w.deliver(events, http.StatusOK)
		p.wants(50*dollars, rules.PaymentSettled)
	})
}

// TestDisorder is F-63: the event of the refund arrives before that of the payment.
func TestDisorder(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		session := p.begin("50")
		w.do(session, "later")
		w.do(session, "clear")
		w.do(session, "refund", "cents", "2000")
		events := w.fresh()
		slices.Reverse(events)
		w.deliver(events[:1], http.StatusOK)
		p.wants(30*dollars, rules.PaymentSettled)
		w.deliver(events[1:], http.StatusOK)
		p.wants(30*dollars, rules.PaymentSettled)
		w.do(session, "refund")
		w.deliver(w.fresh(), http.StatusOK)
		p.wants(0, rules.PaymentSettled)

		q := w.person(accounts.NewAccount{}) // all of it went back before we heard anything
		session = q.begin("10")
		w.do(session, "pay")
		w.do(session, "refund")
		events = w.fresh()
		slices.Reverse(events)
		w.deliver(events, http.StatusOK)
		q.wants(0, rules.PaymentFailed)
	})
}

// TestForgery is F-64.
func TestForgery(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		w.do(p.begin("50"), "pay")
		e := w.fresh()[1]
		good, now := w.stripe.Sign(e), time.Now()
		_, v1, _ := strings.Cut(good, ",")
		for name, c := range map[string]struct {
			event     []byte
			signature string
		}{
			"none":         {e, ""},
			"another":      {e, stripe.Sign("whsec_another_secret_000", now, e)},
			"of nothing":   {e, stripe.Sign("", now, e)},
			"old":          {e, stripe.Sign(secret, now.Add(-time.Hour), e)},
			"time moved":   {e, "t=9999999999," + v1},
			"body altered": {bytes.Replace(e, []byte("5000"), []byte("9000"), 1), good},
			"no event":     {[]byte(`{}`), w.stripe.Sign([]byte(`{}`))},
			"no data": {[]byte(`{"object":"event","id":"evt_1"}`),
				w.stripe.Sign([]byte(`{"object":"event","id":"evt_1"}`))},
			"five megabyte": {bytes.Repeat([]byte(" "), 5<<20), good},
		} {
			if status := w.tell(c.event, c.signature); status != http.StatusBadRequest {
				t.Errorf("%s: %d", name, status)
			}
		}
		p.wants(0, rules.PaymentPending)
		// while a secret is rolled there are two
		if status := w.tell(e, good+",v1="+strings.Repeat("0", 64)); status != http.StatusOK {
			t.Error(status)
		}
		p.wants(50*dollars, rules.PaymentSettled)
	})
}

// TestSecrets: a key needs a secret that signs.
func TestSecrets(t *testing.T) {
	t.Parallel()
	for _, c := range []topups.Config{
		{Key: "sk_test_key"},
		{Key: "sk_test_key", WebhookSecret: "whsec_"},
		{Key: "sk_test_key", WebhookSecret: "0123456789abcdefghij"},
		{WebhookSecret: secret},
	} {
		if err := (&topups.Store{Config: c}).Configure(); err == nil || strings.Contains(err.Error(), "sk_test_key") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestWrong is F-65: what Stripe says is not what was opened.
func TestWrong(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		for _, wrong := range [][]string{
			{"amount_total", "500000"}, {"currency", "eur"}, {"client_reference_id", "top_x"}, {"account_id", "wac_x"},
			{"topup_id", "top_x"}, {"livemode", "true"},
		} {
			p := w.person(accounts.NewAccount{})
			session := p.begin("50")
			w.do(session, "tamper", wrong...)
			w.do(session, "pay")
			w.deliver(w.fresh()[1:], http.StatusBadRequest)
			p.wants(0, rules.PaymentPending)
		}
		p := w.person(accounts.NewAccount{}) // an event that lies about a session that is right
		w.do(p.begin("50"), "pay")
		e := w.fresh()[1]
		for _, lie := range [][2]string{
			{`"amount_total":5000`, `"amount_total":500000`},
			{`"currency":"usd"`, `"currency":"jpy"`},
			{`"livemode":false`, `"livemode":true`},
			{p.ID, "wac_x"},
		} {
			w.deliver([][]byte{bytes.ReplaceAll(e, []byte(lie[0]), []byte(lie[1]))}, http.StatusBadRequest)
		}
		w.deliver([][]byte{ // of a developer's account: nothing of ours
			[]byte(strings.Replace(string(e), `"object":"event"`, `"object":"event","account":"acct_1"`, 1)),
		}, http.StatusOK)
		p.wants(0, rules.PaymentPending)
		// nothing of ours
		w.deliver([][]byte{bytes.ReplaceAll(e, []byte("checkout.session.completed"), []byte("customer.created"))},
			http.StatusOK)
		p.wants(0, rules.PaymentPending)
	})
}

// TestCrashes is F-66: after each lost request or response, the money is added one time.
func TestCrashes(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		form := url.Values{"token": {p.Get("/top-up").Found(t, tokenField)}, "amount": {"50"}}
		w.do("", "lose", "lose", "3") // Stripe has opened the session; we never learn of it
		p.Post("/top-up", form).Want(t, http.StatusBadGateway)
		to := p.Post("/top-up", form).To
		session := to[strings.LastIndexByte(to, '/')+1:]
		w.do(session, "pay")
		e := w.fresh()

		w.do("", "lose", "lose", "100") // Stripe does not answer
		w.deliver(e[1:], http.StatusServiceUnavailable)
		w.do("", "lose", "lose", "0")
		p.wants(0, rules.PaymentPending)
		broken, mended := `CREATE TRIGGER boom BEFORE INSERT ON stripe_events BEGIN SELECT RAISE(ABORT,
				'boom'); END`, `DROP TRIGGER boom`
		if w.d.Engine == db.Postgres {
			broken, mended = `ALTER TABLE stripe_events ADD CONSTRAINT boom CHECK (created_us < 0) NOT VALID`,
				`ALTER TABLE stripe_events DROP CONSTRAINT boom`
		}
		w.exec(broken) // the last statement before the commit fails
		w.deliver(e[1:], http.StatusInternalServerError)
		p.wants(0, rules.PaymentPending)
		w.exec(mended)
		w.deliver(e, http.StatusOK)
		p.wants(50*dollars, rules.PaymentSettled)
	})
}

// TestLostAnswer: the answer that named the session never reached our disk, and the
// user paid all the same.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		session := p.begin("50")
		w.exec(`UPDATE checkouts SET session_id = NULL, url = NULL`)
		w.do(session, "pay")
		w.deliver(w.fresh(), http.StatusOK)
		p.wants(50*dollars, rules.PaymentSettled)
	})
}

// TestLostEvents: without an event, the payment is fetched after an hour.
func TestLostEvents(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p, q := w.person(accounts.NewAccount{}), w.person(accounts.NewAccount{})
		paid, left := p.begin("50"), q.begin("50")
		w.do(paid, "pay")
		w.once()
		p.wants(0, rules.PaymentPending)
		w.later(time.Hour + time.Minute)
		w.once()
		p.wants(50*dollars, rules.PaymentSettled)
		q.wants(0, rules.PaymentPending)
		w.do(left, "expire")
		w.later(time.Hour + time.Minute)
		w.once()
		q.wants(0, rules.PaymentFailed)
	})
}

// TestFormSentAgainLater sends a form again that failed an hour ago, when the job had given its checkout up: the
// payment is followed all the same.
func TestFormSentAgainLater(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		form := url.Values{"token": {p.Get("/top-up").Found(t, tokenField)}, "amount": {"50"}}
		w.do("", "down", "down", "9")
		if a := p.Post("/top-up", form); a.Status < 500 {
			t.Errorf("without Stripe: %d", a.Status)
		}
		w.do("", "down", "down", "0")
		w.later(61 * time.Minute)
		w.once()
		p.Browser.SignIn(p.Email)
		a := p.Post("/top-up", form)
		if a.Status != http.StatusSeeOther {
			t.Fatalf("the form again: %d\n%s", a.Status, a.Body)
		}
		w.do(a.To[strings.LastIndexByte(a.To, '/')+1:], "pay")
		w.later(61 * time.Minute)
		w.once() // without its event
		p.wants(50*dollars, rules.PaymentSettled)
	})
}

// TestClearance: money that is paid can be used when it is cleared, and not if it
// went back before.
func TestClearance(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.store.Config.Clearance = 72 * time.Hour
		p, q, r := w.person(accounts.NewAccount{}), w.person(accounts.NewAccount{}), w.person(accounts.NewAccount{})
		back, disputed := q.begin("50"), r.begin("50")
		for _, session := range []string{p.begin("50"), back, disputed} {
			w.do(session, "pay")
		}
		w.do(disputed, "dispute")
		w.deliver(w.fresh(), http.StatusOK)
		for _, who := range []*person{p, q, r} {
			who.wants(0, rules.PaymentPending)
		}
		p.Get("/top-ups/"+p.payment().ID).Want(t, http.StatusOK, "Clearing.")
		p.Get("/top-up").Want(t, http.StatusOK, "Available 3 days after you pay.")
		w.do(back, "refund")
		w.deliver(w.fresh(), http.StatusOK)
		q.wants(0, rules.PaymentFailed)
		w.later(71 * time.Hour)
		w.once()
		p.wants(0, rules.PaymentPending)
		w.later(2 * time.Hour)
		w.once()
		p.wants(50*dollars, rules.PaymentSettled)
		r.wants(0, rules.PaymentPending)
		w.do(disputed, "won")
		w.deliver(w.fresh(), http.StatusOK)
		r.wants(50*dollars, rules.PaymentSettled)
	})
}

// TestAsynchronous: a bank debit succeeds or bounces days later.
func TestAsynchronous(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p, q := w.person(accounts.NewAccount{}), w.person(accounts.NewAccount{})
		clears, bounces := p.begin("50"), q.begin("50")
		w.do(clears, "later")
		w.do(bounces, "later")
		w.deliver(w.fresh(), http.StatusOK)
		p.wants(0, rules.PaymentPending)
		w.do(clears, "clear")
		w.do(bounces, "bounce")
		w.deliver(w.fresh(), http.StatusOK)
		p.wants(50*dollars, rules.PaymentSettled)
		q.wants(0, rules.PaymentFailed)
	})
}

// TestTakenBack is F-67: a payment is reversed after its money was allocated.
func TestTakenBack(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		session := p.begin("50")
		w.do(session, "pay")
		w.deliver(w.fresh(), http.StatusOK)
		lent := p.allocate(40 * dollars)
		w.do(session, "dispute")
		w.deliver(w.fresh(), http.StatusOK)
		p.wants(10*dollars, rules.PaymentSettled)
		if got := w.status(lent); got != rules.Frozen {
			t.Error("disputed:", got)
		}
		if _, err := w.ledger.Do(t.Context(), rules.Resume{ConnectionID: lent}); err == nil {
			t.Error("resumed in an open dispute")
		}
		w.do(session, "lost")
		w.deliver(w.fresh(), http.StatusOK)
		p.wants(-40*dollars, rules.PaymentSettled)
		if got := w.status(lent); got != rules.Frozen {
			t.Error("lost:", got)
		}
		if _, err := w.ledger.Do(t.Context(), rules.Resume{ConnectionID: lent}); err == nil {
			t.Error("resumed below zero")
		}
		p.Get("/top-up").Want(t, http.StatusOK, "Below zero", "−$40.00")
		if c := p.allocate(5 * dollars); w.status(c) != rules.Active { // it gets nothing, and takes nothing
			t.Error("connect below zero")
		}
		w.do(p.begin("100"), "pay")
		w.deliver(w.fresh(), http.StatusOK)
		p.wants(60*dollars, rules.PaymentSettled)
		if _, err := w.ledger.Do(t.Context(), rules.Resume{ConnectionID: lent}); err != nil {
			t.Error(err)
		}
	})
}

func (w *world) once() {
	w.t.Helper()
	if err := w.store.RunDue(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) exec(statement string) {
	w.t.Helper()
	if _, err := w.d.ExecContext(w.t.Context(), statement); err != nil {
		w.t.Fatal(err)
	}
}
