package topups_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
)

// suspend suspends the person, as an operator does before a refund.
func (p *person) suspend() {
	p.t.Helper()
	if err := p.d.InTx(p.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		return p.people.Suspend(ctx, tx, p.ID, "closing")
	}); err != nil {
		p.t.Fatal(err)
	}
}

// topUp pays a top-up and returns its session.
func (p *person) topUp(amount string) (session string) {
	p.t.Helper()
	session = p.begin(amount)
	p.do(session, "pay")
	p.deliver(p.fresh(), 200)
	return session
}

// refunds is a refund that is expected to end well.
func (p *person) refunds(want money.MC) {
	p.t.Helper()
	got, err := p.store.RefundRest(p.t.Context(), p.ID)
	if err != nil || got != want {
		p.t.Errorf("refunded %s, %v; want %s", got.Display(), err, want.Display())
	}
}

// refused is a refund that is expected to end with an error.
func (p *person) refused(code apierr.Code, says string) {
	p.t.Helper()
	_, err := p.store.RefundRest(p.t.Context(), p.ID)
	if e, ok := errors.AsType[*apierr.Error](err); !ok || e.Code != code || !strings.Contains(e.Message, says) {
		p.t.Errorf("refund: %v; want %s, %q", err, code.Name, says)
	}
}

func (p *person) reversed() (list []money.MC) {
	p.t.Helper()
	payments, err := store.PaymentsOfAccount(p.t.Context(), p.d, p.ID, 10)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, payment := range payments {
		list = append(list, payment.ReversedMC)
	}
	return list
}

// What is left goes back to the newest payments, once, however often it is asked for and told.
func TestRestIsRefunded(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		p.topUp("10")
		p.topUp("25")
		conn := p.allocate(3*money.Dollar + money.Cent/2)
		p.refused(apierr.InvalidRequest, "only a suspended account")
		p.suspend()
		p.refunds(31*money.Dollar + 99*money.Cent)
		if got := p.reversed(); got[0] != 25*money.Dollar || got[1] != 6*money.Dollar+99*money.Cent {
			t.Errorf("reversed %v", got)
		}
		p.wants(money.Cent/2, rules.PaymentSettled)
		p.refunds(0)
		w.deliver(w.fresh(), 200)
		p.wants(money.Cent/2, rules.PaymentSettled)

		// Money that returns later goes back later, to what is left of the older payment.
		if _, err := w.ledger.Do(t.Context(), rules.Revoke{ConnectionID: conn}); err != nil {
			t.Fatal(err)
		}
		p.refunds(3*money.Dollar + money.Cent)
		p.wants(0, rules.PaymentSettled)
		if got := p.reversed(); got[1] != 10*money.Dollar {
			t.Errorf("reversed %v", got)
		}
	})
}

// A refund of which the answer was lost is found again at Stripe, and not made twice; one that
// Stripe could not be asked for is finished by the job.
func TestRefundIsFinished(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		p.topUp("10")
		p.suspend()
		w.do("", "down", "down", "9")
		p.refused(apierr.Unavailable, "cannot be reached")
		w.do("", "down", "down", "0")
		p.wants(10*money.Dollar, rules.PaymentSettled)
		w.later(6 * time.Minute)
		if err := w.store.RunDue(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.wants(0, rules.PaymentSettled)

		// As after a crash between Stripe's answer and the record of it, a day later.
		if _, err := w.d.ExecContext(t.Context(), `UPDATE refunds SET state = 'open'`); err != nil {
			t.Fatal(err)
		}
		w.do("", "forget")
		p.refunds(10 * money.Dollar)
		p.wants(0, rules.PaymentSettled)
		w.deliver(w.fresh(), 200)
		p.wants(0, rules.PaymentSettled)
	})
}

// Operators who close an account at once refund it once.
func TestRefundRace(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		p.topUp("10")
		p.topUp("20")
		p.suspend()
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				_, err := w.store.RefundRest(t.Context(), p.ID)
				if e, ok := errors.AsType[*apierr.Error](err); err != nil && (!ok || e.Code != apierr.Unavailable) {
					t.Error(err) // 503: another one asks Stripe at this moment
				}
			})
		}
		all.Wait()
		if _, err := w.store.RefundRest(t.Context(), p.ID); err != nil {
			t.Error(err)
		}
		p.wants(0, rules.PaymentSettled)
	})
}

// Stripe refuses some refunds, finally; disputed payments are left alone, until the dispute is won.
func TestRefundIsRefused(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		p.topUp("10")
		disputed := p.topUp("20")
		w.do(disputed, "dispute")
		w.deliver(w.fresh(), 200)
		p.suspend()
		p.refunds(10 * money.Dollar)
		p.wants(20*money.Dollar, rules.PaymentSettled)
		p.refunds(0)
		w.do(disputed, "won") // it is over
		w.deliver(w.fresh(), 200)
		p.refunds(20 * money.Dollar)
		p.wants(0, rules.PaymentSettled)

		other := w.person(accounts.NewAccount{})
		session := other.topUp("10")
		other.suspend()
		w.do(session, "refund", "cents", "600") // in Stripe's dashboard, of which we have not heard
		other.refused(apierr.InvalidRequest, "is not refunded: less than the refund is left")
		w.deliver(w.fresh(), 200)
		other.refunds(4 * money.Dollar)
		other.wants(0, rules.PaymentSettled)
	})
}

// A checkout that was left open is ended; one that was paid meanwhile is credited.
func TestUnpaidCheckoutsEnd(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		session := p.begin("10")
		if err := w.store.ExpireUnpaid(t.Context(), p.ID); err != nil {
			t.Fatal(err)
		}
		p.wants(0, rules.PaymentFailed)
		if err := w.stripe.Steer(session, "pay", url.Values{}); err == nil {
			t.Error("an ended checkout was paid")
		}
		w.deliver(w.fresh(), 200)
		paid := p.begin("20")
		w.do(paid, "pay")
		if err := w.store.ExpireUnpaid(t.Context(), p.ID); err != nil {
			t.Fatal(err)
		}
		p.wants(20*money.Dollar, rules.PaymentSettled)
		late := p.begin("5")
		w.do(late, "later")
		if err := w.store.ExpireUnpaid(t.Context(), p.ID); err != nil {
			t.Fatal(err)
		}
		p.wants(20*money.Dollar, rules.PaymentPending)
	})
}

// TestOperatorsRefundOfWhatIsGone plans a refund while Stripe is busy, and another payment is refunded in Stripe's
// dashboard meanwhile: the balance has nothing left, so the planned refund is not made.
func TestOperatorsRefundOfWhatIsGone(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		isBusy := true
		w.between(func(rw http.ResponseWriter, r *http.Request) bool {
			if isBusy && r.Method == http.MethodPost && r.URL.Path == "/v1/refunds" {
				refuse(rw, http.StatusTooManyRequests)
				return true
			}
			return false
		})
		p := w.person(accounts.NewAccount{})
		first := p.topUp("20")
		p.topUp("20")
		p.allocate(20 * money.Dollar)
		p.suspend()
		p.refused(apierr.Unavailable, "cannot be reached")
		w.do(first, "refund", "cents", "2000")
		w.deliver(w.fresh(), 200)
		p.wants(0, rules.PaymentSettled)
		isBusy = false
		w.later(61 * time.Minute)
		p.refused(apierr.InvalidRequest, "the balance has less than the refund")
		p.wants(0, rules.PaymentSettled)
		w.verify()
	})
}
