package topups_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/backup"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/mail"
	"github.com/purserhq/purser/internal/people/topups"
	"github.com/purserhq/purser/internal/testkit/apitest"
)

const day = 24 * time.Hour

// reconcile runs the daily job.
func (w *world) reconcile() {
	w.t.Helper()
	for range 3 { // it may begin again
		if err := w.store.Reconcile(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
	if waits, err := topups.MoneyWaits(w.t.Context(), w.d); err != nil || waits {
		w.t.Errorf("money still waits: %t, %v", waits, err)
	}
}

// noEvents forgets what Stripe would tell.
func (w *world) noEvents() { w.told = len(w.stripe.Events()) }

// begun begins a reconciliation and returns its id.
func (w *world) begun(since time.Time, restored bool) (id string) {
	w.t.Helper()
	err := w.d.InTx(w.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		r, err := w.store.BeginReconciliation(ctx, tx, since, restored)
		id = r.ID
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

// reconciliation is one as it is now.
func (w *world) reconciliation(id string) topups.Reconciliation {
	w.t.Helper()
	r, err := w.store.GetReconciliation(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// TestEventsThatNeverCome books a refund of Stripe's dashboard, a dispute, its loss, and a refund that fails 40 days
// after it succeeded, without any event.
func TestEventsThatNeverCome(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.between(func(http.ResponseWriter, *http.Request) bool { return false })
		p, q := w.person(accounts.NewAccount{}), w.person(accounts.NewAccount{})
		refunded, disputed := p.topUp("25"), q.topUp("10")
		c := q.allocate(10 * money.Dollar)
		w.reconcile()
		w.do(refunded, "refund", "cents", "1000")
		w.do(disputed, "dispute")
		w.noEvents()
		w.later(25 * time.Hour)
		w.reconcile()
		p.wants(15*money.Dollar, rules.PaymentSettled)
		if s := w.status(c); s != "frozen" {
			t.Errorf("the connection of a disputed payment is %s", s)
		}
		w.wantAlarm("reconciliation_booked")
		w.later(10 * day) // the dispute is asked for by its payment: lists go by creation
		w.do(disputed, "lost")
		w.noEvents()
		w.reconcile()
		q.wants(-10*money.Dollar, rules.PaymentSettled)
		w.later(30 * day)
		w.do("", "refunds", "status", "failed", "all", "1")
		w.noEvents()
		w.reconcile()
		p.wants(25*money.Dollar, rules.PaymentSettled)
		events, records := len(w.stripe.Events()), len(p.payment().Records)
		w.later(25 * time.Hour)
		w.reconcile() // it changes nothing more
		p.wants(25*money.Dollar, rules.PaymentSettled)
		if len(w.stripe.Events()) != events || len(p.payment().Records) != records {
			t.Error("the second reconciliation did something")
		}
	})
}

// TestPaymentWithoutItsEvent is an alarm, because only the hourly question has found it.
func TestPaymentWithoutItsEvent(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.between(func(http.ResponseWriter, *http.Request) bool { return false })
		p := w.person(accounts.NewAccount{})
		w.do(p.begin("25"), "pay")
		w.later(2 * time.Hour)
		w.once()
		p.wants(25*money.Dollar, rules.PaymentSettled)
		w.wantAlarm("payment_polled")
	})
}

// TestWrongSignatures raises an alarm after an hour of events that are all signed otherwise.
func TestWrongSignatures(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.between(func(http.ResponseWriter, *http.Request) bool { return false })
		p := w.person(accounts.NewAccount{})
		session := p.topUp("25")
		w.later(time.Hour)
		w.do(session, "dispute")
		e := w.fresh()[0]
		if got := w.tell(e, "t=1,v1=00"); got != 400 {
			t.Errorf("a wrong signature: %d", got)
		}
		w.reconcile()
		w.later(61 * time.Minute)
		if got := w.tell(e, "t=1,v1=00"); got != 400 {
			t.Errorf("a wrong signature: %d", got)
		}
		w.reconcile()
		w.wantAlarm("webhook_signatures")
	})
}

// TestManyPages compares long lists by pages: it goes on where Stripe went away, and compares nothing twice.
func TestManyPages(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		var fail bool
		pages := 0
		w.between(func(rw http.ResponseWriter, r *http.Request) bool {
			isList := r.URL.Path == "/v1/refunds" && r.URL.Query().Get("payment_intent") == ""
			if isList && r.URL.Query().Get("limit") != "100" {
				t.Errorf("a list without bound: %s", r.URL)
			}
			if isList {
				pages++
			}
			if isList && fail && r.URL.Query().Get("starting_after") != "" {
				refuse(rw, http.StatusBadRequest)
				return true
			}
			return false
		})
		p := w.person(accounts.NewAccount{})
		session := p.topUp("25")
		for range 230 {
			w.do(session, "refund", "cents", "1")
		}
		w.noEvents()
		first := w.begun(w.now().Add(-day), false)
		w.reconcile()
		p.wants(22*money.Dollar+70*money.Cent, rules.PaymentSettled)
		if r := w.reconciliation(first); pages != 3 || r.EndedUS == 0 || r.Compared != 231 || r.Booked != 1 {
			t.Errorf("%d pages, %+v", pages, r)
		}
		fail = true
		second := w.begun(w.now().Add(-day), false)
		for range 2 {
			if err := w.store.Reconcile(t.Context()); err == nil {
				t.Error("no error while stripe is away")
			}
			w.later(2 * time.Minute)
		}
		if r := w.reconciliation(second); r.EndedUS != 0 || r.Stage != "refunds" || r.Compared != 102 || r.Error == "" {
			t.Errorf("while stripe is away: %+v", r)
		}
		fail = false
		w.reconcile()
		if r := w.reconciliation(second); r.EndedUS == 0 || r.Compared != 232 || r.Booked != 0 {
			t.Errorf("after stripe was away: %+v", r)
		}
	})
}

// TestReconciliationIsKilled ends a node between the list and the booking. Another goes on, and books once.
func TestReconciliationIsKilled(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ctx, kill := context.WithCancel(t.Context())
		var listed bool
		w.between(func(_ http.ResponseWriter, r *http.Request) bool {
			isList := r.URL.Path == "/v1/refunds" && r.URL.Query().Get("payment_intent") == ""
			if listed = listed || isList; listed && strings.HasPrefix(r.URL.Path, "/v1/checkout/sessions/") {
				kill()
			}
			return false
		})
		p := w.person(accounts.NewAccount{})
		session := p.topUp("25")
		w.do(session, "refund", "cents", "1000")
		w.noEvents()
		if err := w.store.Reconcile(ctx); err == nil {
			t.Error("a killed reconciliation returned no error")
		}
		p.wants(25*money.Dollar, rules.PaymentSettled)
		w.later(10 * time.Minute)
		w.reconcile() // goes on with what it was killed at
		p.wants(15*money.Dollar, rules.PaymentSettled)
	})
}

// takeBackup takes a backup.
func (w *world) takeBackup() string {
	w.t.Helper()
	file := filepath.Join(w.t.TempDir(), "b.backup")
	if _, err := backup.Create(w.t.Context(), w.at, file, nil); err != nil {
		w.t.Fatal(err)
	}
	return file
}

// restore returns the world after the restore of a backup: another database, and the same Stripe.
func (w *world) restore(file string) *world {
	t := w.t
	t.Helper()
	n := &world{
		t: t, at: "sqlite:" + filepath.Join(t.TempDir(), "new.db"), stripe: w.stripe, ahead: w.ahead, told: w.told,
	}
	if _, r, err := backup.Restore(t.Context(), file, n.at, nil); err != nil {
		t.Fatal(r, err)
	}
	d, err := db.Open(t.Context(), n.at)
	if err != nil {
		t.Fatal(err)
	}
	d.RelaxLimits(12)
	n.d, n.ledger = d, store.NewWriter(d, n.now)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.ledger.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := errorsOf(<-done, d.Close()); err != nil {
			t.Error(err)
		}
	})
	n.people = accounts.NewStore(d, n.now)
	n.store = &topups.Store{
		DB:           d,
		Ledger:       n.ledger,
		Now:          n.now,
		Log:          slog.New(slog.DiscardHandler),
		DashboardURL: w.store.DashboardURL,
		Mails:        &mail.Store{DB: d, Now: n.now},
		Config:       w.store.Config,
	}
	if err := n.store.Configure(); err != nil {
		t.Fatal(err)
	}
	rt := web.NewRouter(slog.New(slog.DiscardHandler), web.Links{})
	rt.SetPageError(ui.RenderError)
	sessions := accounts.NewSessions(n.people, false)
	(&accounts.Handler{Store: n.people, Sessions: sessions}).Mount(rt)
	(&topups.Handler{Store: n.store, Accounts: n.people, Sessions: sessions}).Mount(rt)
	n.Server = httptest.NewServer(rt)
	t.Cleanup(n.Close)
	return n
}

func errorsOf(list ...error) error {
	for _, err := range list {
		if err != nil {
			return err
		}
	}
	return nil
}

// movedTo is the person in another world.
func (p *person) movedTo(n *world) *person {
	q := &person{world: n, Account: p.Account}
	q.Browser = apitest.NewBrowser(n.t, n.URL).SignIn(p.Email)
	return q
}

// TestReturnAfterARestore returns $25 to a card after the backup, and once more after the restore, before or after the
// books were compared with Stripe. The card gets it once.
func TestReturnAfterARestore(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"compared", "returned first", "no marker"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, db.SQLite)
			p := w.person(accounts.NewAccount{})
			p.topUp("25")
			file := w.takeBackup()
			p.toCard("25")
			w.dueRefunds()
			n := w.restore(file)
			q := p.movedTo(n)
			switch how {
			case "compared":
				n.reconcile()
				q.wants(0, rules.PaymentSettled)
				return
			case "no marker": // such as after a failover to a standby that was behind
				n.exec(`DELETE FROM settings WHERE name = 'restored'`)
			}
			q.toCard("25")
			q.Get(refundPage).Want(t, 200, map[string]string{"no marker": "$25.00"}[how])
			for range 3 {
				n.dueRefunds()
			}
			if waits, err := topups.MoneyWaits(t.Context(), n.d); err != nil || !waits {
				t.Errorf("money leaves: %v", err)
			}
			n.reconcile()
			n.dueRefunds()
			q.wants(0, rules.PaymentSettled)
			if got := q.reversed(); got[0] != 25*money.Dollar {
				t.Errorf("reversed %v", got)
			}
		})
	}
}

// TestReturnAfterAPartOfIt returns a part of a payment after the backup, and another part after the restore and the
// comparison: it waits for nothing, and nor does other money.
func TestReturnAfterAPartOfIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite)
	p := w.person(accounts.NewAccount{})
	p.topUp("25")
	file := w.takeBackup()
	p.toCard("10")
	n := w.restore(file)
	q := p.movedTo(n)
	n.reconcile()
	q.wants(15*money.Dollar, rules.PaymentSettled)
	q.toCard("5")
	n.dueRefunds()
	if waits, err := topups.MoneyWaits(t.Context(), n.d); err != nil || waits {
		t.Errorf("money waits: %v", err)
	}
	q.Get(refundPage).Want(t, 200, "Returned")
	q.wants(10*money.Dollar, rules.PaymentSettled)
}

// TestChargesAfterARestore charges nobody before the books were compared with Stripe: the month is full, as Stripe
// knows. Automatic top-up is off then, and its user is told.
func TestChargesAfterARestore(t *testing.T) {
	t.Parallel()
	for _, marker := range []bool{true, false} {
		t.Run(strconv.FormatBool(marker), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, db.SQLite)
			p := w.person(accounts.NewAccount{})
			p.saves("25", "works")
			p.wishes("30", "50", "50")
			file := w.takeBackup()
			w.once()
			p.charged(5000, 1)
			byHand := p.begin("10")
			w.do(byHand, "pay")
			n := w.restore(file)
			q := p.movedTo(n)
			if !marker {
				n.exec(`DELETE FROM settings WHERE name = 'restored'`)
			}
			for range 3 {
				n.once()
				n.later(10 * time.Minute)
			}
			q.charged(5000, 1)
			n.reconcile()
			for range 3 {
				n.once()
				n.later(10 * time.Minute)
			}
			q.charged(5000, 1)
			newest := map[bool]rules.PaymentStatus{true: rules.PaymentSettled, false: rules.PaymentFailed}[marker]
			q.wants(85*money.Dollar, newest) // an attempt that began before Stripe was asked has ended
			if marker {
				q.auto("We restored our systems from a backup.")
				q.told(2, "Automatic top-up is off: please turn it on again", "restored our systems from a backup")
			}
		})
	}
}

// TestFoundChargesClear finds two automatic charges of one account after a restore, which wait side by side for their
// clearance.
func TestFoundChargesClear(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite)
	p := w.person(accounts.NewAccount{})
	p.saves("25", "works")
	p.wishes("30", "50", "500")
	file := w.takeBackup()
	w.once()
	p.allocate(60 * money.Dollar)
	w.later(time.Minute)
	w.once()
	p.charged(10000, 2)
	n := w.restore(file)
	n.store.Config.Clearance = 72 * time.Hour
	q := p.movedTo(n)
	n.reconcile()
	q.wants(25*money.Dollar, rules.PaymentPending)
	n.later(73 * time.Hour)
	n.once()
	q.wants(125*money.Dollar, rules.PaymentSettled)
}

// TestEventOfALostTopUp credits a top-up that was opened after the backup when its event is sent again.
func TestEventOfALostTopUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite)
	p := w.person(accounts.NewAccount{})
	file := w.takeBackup()
	p.topUp("25")
	n := w.restore(file)
	n.told = 0
	n.deliver(n.fresh(), 200)
	p.movedTo(n).wants(25*money.Dollar, rules.PaymentSettled)
	n.reconcile()
	p.movedTo(n).wants(25*money.Dollar, rules.PaymentSettled)
}

// TestStrangersPaymentIsNotBooked leaves a payment of an account that is not there, and compares the rest.
func TestStrangersPaymentIsNotBooked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite)
	file := w.takeBackup()
	w.person(accounts.NewAccount{}).topUp("25")
	n := w.restore(file)
	id := n.begun(time.Time{}, false)
	n.reconcile()
	if r := n.reconciliation(id); r.EndedUS == 0 || r.Unbooked != 1 || r.Booked != 0 {
		t.Errorf("%+v", r)
	}
	n.verify()
}

// TestStripeIsRemoved raises an alarm about a refund that waits for a Stripe that is not configured any more.
func TestStripeIsRemoved(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.between(func(http.ResponseWriter, *http.Request) bool { return false })
		p := w.person(accounts.NewAccount{})
		p.topUp("25")
		w.do("", "down", "down", "9")
		p.Post(refundPage, p.refundForm("4")).Leads(t, refundPage+"?done=1")
		w.do("", "down", "down", "0")
		without := &topups.Store{DB: w.d, Ledger: w.ledger, Now: w.now, Log: w.store.Log, Mails: w.store.Mails,
			Metrics: w.store.Metrics}
		if err := without.Reconcile(t.Context()); err != nil {
			t.Error(err)
		}
		w.wantAlarm("stripe_missing")
	})
}
