package topups_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/people/accounts"
)

// failedReturn pays $10, of which $4 go back to a card that does not accept them, and returns the session.
func (p *person) failedReturn() (session string) {
	p.t.Helper()
	session = p.topUp("10")
	p.do("", "refunds", "status", "pending")
	p.toCard("4")
	p.do("", "refunds", "status", "failed")
	p.deliver(p.fresh(), 200)
	p.wants(10*money.Dollar, rules.PaymentSettled)
	p.do("", "refunds", "status", "succeeded")
	return session
}

// TestRefusedReturnIsOfItsPayment takes all of a payment that is gone at Stripe, also what a card had not accepted
// before: it came back to the payment, and not as a gift.
func TestRefusedReturnIsOfItsPayment(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(p *person, session string){
		"a lost dispute": func(p *person, session string) {
			p.do(session, "dispute")
			p.do(session, "lost")
		},
		"a refund in Stripe's dashboard": func(p *person, session string) { p.do(session, "refund", "cents", "1000") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(w *world) {
				p := w.person(accounts.NewAccount{})
				session := p.failedReturn()
				if got := p.reversed(); got[0] != 0 {
					t.Errorf("reversed %v", got)
				}
				p.Get(refundPage).Want(t, 200, "Nothing to return.") // the card would not accept it again
				p.Get("/top-ups/"+p.payment().ID).Want(t, 200, "Refund came back")
				leave(p, session)
				w.deliver(w.fresh(), 200)
				p.wants(0, rules.PaymentSettled)
				if got := p.reversed(); got[0] != 10*money.Dollar {
					t.Errorf("reversed %v", got)
				}
			})
		})
	}
}

// TestRefundOfADashboardFails gives back what somebody else refunded and the bank did not carry out, also of a payment
// that had failed by it before it was credited.
func TestRefundOfADashboardFails(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		session := p.topUp("10")
		w.do(session, "refund", "cents", "300")
		w.deliver(w.fresh(), 200)
		p.wants(7*money.Dollar, rules.PaymentSettled)
		w.do("", "refunds", "status", "failed", "all", "1")
		w.deliver(w.fresh(), 200)
		p.wants(10*money.Dollar, rules.PaymentSettled)
	})
	each(t, func(w *world) {
		w.store.Config.Clearance = time.Hour
		p := w.person(accounts.NewAccount{})
		session := p.topUp("10")
		w.do(session, "refund")
		w.deliver(w.fresh(), 200)
		p.wants(0, rules.PaymentFailed)
		w.do("", "refunds", "status", "failed", "all", "1")
		w.deliver(w.fresh(), 200)
		p.wants(0, rules.PaymentPending)
		w.later(2 * time.Hour)
		if err := w.store.RunDue(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.wants(10*money.Dollar, rules.PaymentSettled)
	})
}

// TestStaleAnswerIsDropped holds an answer of Stripe's until a later question was answered and applied.
func TestStaleAnswerIsDropped(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		session := p.topUp("10")
		w.do(session, "refund", "cents", "300")
		h := w.hold("GET", "/v1/refunds", true)
		late, done := w.fresh(), make(chan struct{})
		go func() {
			defer close(done)
			w.deliver(late, 200)
		}()
		<-h.here
		w.do("", "refunds", "status", "failed", "all", "1")
		w.deliver(w.fresh(), 200)
		p.wants(10*money.Dollar, rules.PaymentSettled)
		close(h.goOn)
		<-done
		p.wants(10*money.Dollar, rules.PaymentSettled)
	})
}

// TestCrossingAnswers has the node that asked first be answered last, and apply its answer first. The older answer to
// the later question does not replace it.
func TestCrossingAnswers(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		session := p.topUp("10")
		w.do(session, "refund", "cents", "300")
		events := w.fresh()
		begin := func(event []byte, isAnswer bool) (*held, chan struct{}) {
			h, done := w.hold("GET", "/v1/refunds", isAnswer), make(chan struct{})
			go func() {
				defer close(done)
				w.deliver([][]byte{event}, 200)
			}()
			<-h.here
			return h, done
		}
		first, firstDone := begin(events[0], false)
		second, secondDone := begin(events[len(events)-1], true)
		w.do("", "refunds", "status", "failed", "all", "1") // of which no event comes
		w.noEvents()
		close(first.goOn)
		<-firstDone
		p.wants(10*money.Dollar, rules.PaymentSettled)
		close(second.goOn)
		<-secondDone
		p.wants(10*money.Dollar, rules.PaymentSettled)
	})
}

// TestChargedAfterItEnded charges a card although the attempt has ended meanwhile: the money is credited.
func TestChargedAfterItEnded(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		p.saves("25", "works")
		p.wishes("30", "50", "100")
		h, done := w.hold("POST", "/v1/payment_intents", false), make(chan error, 1)
		go func() { done <- w.store.RunDue(t.Context()) }()
		<-h.here
		p.Post("/top-up/auto/off", url.Values{})
		w.later(6 * time.Minute) // past the claim
		if err := w.store.RunDue(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.wants(25*money.Dollar, rules.PaymentFailed)
		close(h.goOn)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		p.wants(75*money.Dollar, rules.PaymentSettled)
		w.deliver(w.fresh(), 200)
		p.wants(75*money.Dollar, rules.PaymentSettled)
	})
}

// TestReturnOfALostPayment ends a return that Stripe never makes, because the payment was disputed before Stripe was
// asked and the dispute is lost. The user is told so, and no bank is blamed.
func TestReturnOfALostPayment(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		session := p.topUp("10")
		w.do(session, "dispute") // its event comes late
		p.toCard("10")
		p.wants(0, rules.PaymentSettled)
		w.dueRefunds()
		p.wants(0, rules.PaymentSettled) // a dispute that is open may be won
		if n := p.mailsOf("We couldn’t return $10.00 to your card"); n != 0 {
			t.Errorf("%d mails", n)
		}
		w.do(session, "lost")
		w.dueRefunds()
		p.wants(0, rules.PaymentSettled)
		p.Get(refundPage).Lacks(t, "Pending")
		p.Get(refundPage).Want(t, 200, "Couldn’t be made. It is back in your balance").Lacks(t, "accepted by your card")
		if n := p.mailsOf("We couldn’t return $10.00 to your card"); n != 1 {
			t.Errorf("%d mails", n)
		}
		p.told(1, "We couldn’t return $10.00 to your card", "refunded or disputed in the meantime")
		if got := p.reversed(); got[0] != 10*money.Dollar {
			t.Errorf("reversed %v", got)
		}
	})
}

// TestReturnThatWaits asks Stripe ever less often about a return that waits for a dispute, which takes months.
func TestReturnThatWaits(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		asked := 0
		w.between(func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPost && r.URL.Path == "/v1/refunds" {
				asked++
			}
			return false
		})
		p := w.person(accounts.NewAccount{})
		w.do(p.topUp("10"), "dispute") // its event comes late
		p.toCard("10")
		for range 240 {
			w.dueRefunds()
		}
		if asked < 5 || asked > 30 {
			t.Errorf("Stripe was asked %d times in a day", asked)
		}
	})
}

// TestNoReturnThatADisputeNeeds keeps in the balance what the loss of an open dispute would take.
func TestNoReturnThatADisputeNeeds(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		disputed := p.topUp("10")
		p.topUp("10")
		p.allocate(7 * money.Dollar)
		w.do(disputed, "dispute", "cents", "900")
		w.deliver(w.fresh(), 200)
		p.Get(refundPage).Want(t, 200, `value="4.00"`)
		p.Post(refundPage, p.refundForm("5")).Want(t, 422, "You can return up to $4.00 now.")
		p.toCard("4")
		w.do(disputed, "lost")
		w.deliver(w.fresh(), 200)
		p.wants(0, rules.PaymentSettled)
	})
}

// TestReturnThatADisputeNeedsNow asks for a return that Stripe delays, and disputes another payment meanwhile: nothing
// is returned that the loss of the dispute would take. When it is won, the same payment can be returned.
func TestReturnThatADisputeNeedsNow(t *testing.T) {
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
		disputed := p.topUp("10")
		p.topUp("10")
		p.allocate(10 * money.Dollar)
		p.toCard("10")
		p.wants(0, rules.PaymentSettled)
		w.do(disputed, "dispute")
		w.deliver(w.fresh(), 200)
		isBusy = false
		w.later(61 * time.Minute)
		w.dueRefunds()
		p.wants(10*money.Dollar, rules.PaymentSettled)
		if p.mailsOf("We couldn’t return $10.00 to your card") != 1 {
			t.Errorf("%+v", p.mails())
		}
		if w.isRaised("refund_refused") {
			t.Error("an alarm about a refusal that nobody made")
		}
		w.do(disputed, "won")
		w.deliver(w.fresh(), 200)
		p.Get(refundPage).Want(t, 200, `value="10.00"`)
		p.toCard("10")
		p.wants(0, rules.PaymentSettled)
	})
}

// TestReturnMadeTwice takes from the balance what Stripe has returned a second time for one return.
func TestReturnMadeTwice(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		p.topUp("10")
		p.toCard("4")
		at := w.stripe.Payments()[0]
		form := url.Values{"payment_intent": {at.Intent}, "amount": {"400"}}
		form.Set("metadata[refund_id]", at.Refunds[0].Name)
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/refunds", strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Authorization", "Bearer sk_test_key")
		w.stripe.ServeHTTP(httptest.NewRecorder(), r)
		w.deliver(w.fresh(), 200)
		p.wants(2*money.Dollar, rules.PaymentSettled)
	})
}

// TestRefusedReturnIsMade has Stripe carry out a return whose first request was on its way while the second was
// refused: the user, who had the money back, is told, and it is taken again. It may still fail later.
func TestRefusedReturnIsMade(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.between(func(rw http.ResponseWriter, r *http.Request) bool {
			w.serveStripe(rw, r)
			return true
		})
		p := w.person(accounts.NewAccount{})
		p.topUp("10")
		h, done, form := w.hold("POST", "/v1/refunds", false), make(chan struct{}), p.refundForm("4")
		go func() {
			defer close(done)
			p.Post(refundPage, form)
		}()
		<-h.here
		w.do("", "answer", "method", "POST", "path", "/v1/refunds", "status", "400",
			"code", "charge_already_refunded", "times", "1")
		w.dueRefunds()
		p.wants(10*money.Dollar, rules.PaymentSettled)
		p.Get(refundPage).Want(t, 200, "It is back in your balance")
		close(h.goOn)
		<-done
		for range 2 { // events come twice
			w.deliver(w.stripe.Events(), 200)
		}
		p.wants(6*money.Dollar, rules.PaymentSettled)
		p.Get(refundPage).Want(t, 200, "Returned").Lacks(t, "It is back in your balance")
		if p.mailsOf("We did return $4.00 to your card") != 1 {
			t.Errorf("%+v", p.mails())
		}
		w.wantAlarm("refund_reopened")
		w.do("", "refunds", "status", "failed", "all", "1")
		w.deliver(w.fresh(), 200)
		p.wants(10*money.Dollar, rules.PaymentSettled)
	})
}

// TestPendingReturnAfterAll has Stripe begin a return that was refused here: it is on its way until the bank has it.
func TestPendingReturnAfterAll(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		p.topUp("10")
		w.do("", "answer", "method", "POST", "path", "/v1/refunds", "status", "400", "code", "charge_already_refunded")
		p.toCard("4")
		p.wants(10*money.Dollar, rules.PaymentSettled)
		w.do("", "refunds", "status", "pending")
		w.makeReturn(p, "400")
		w.deliver(w.fresh(), 200)
		p.wants(6*money.Dollar, rules.PaymentSettled)
		p.Get(refundPage).Want(t, 200, "Pending").Lacks(t, "It is back in your balance")
		if p.mailsOf("$4.00 is on its way to your card after all") != 1 ||
			p.mailsOf("We did return $4.00 to your card") != 0 {
			t.Errorf("%+v", p.mails())
		}
		w.do("", "refunds", "status", "succeeded")
		w.dueRefunds() // also without its event
		p.wants(6*money.Dollar, rules.PaymentSettled)
		p.Get(refundPage).Want(t, 200, "Returned").Lacks(t, "Pending")
		if p.mailsOf("We returned $4.00 to your card") != 1 {
			t.Errorf("%+v", p.mails())
		}
	})
}

// makeReturn has Stripe make the newest return that a person has asked for, whose request was on its way.
func (w *world) makeReturn(p *person, cents string) {
	w.t.Helper()
	var refundID, paymentID string
	err := w.d.QueryRowContext(w.t.Context(), `SELECT id, payment_id FROM refunds WHERE account_id = $1
		ORDER BY id DESC LIMIT 1`, p.ID).Scan(&refundID, &paymentID)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, at := range w.stripe.Payments() {
		if at.TopUp == paymentID {
			form := url.Values{"payment_intent": {at.Intent}, "amount": {cents}}
			form.Set("metadata[refund_id]", refundID)
			w.post("/v1/refunds", form.Encode())
		}
	}
}

// TestCardRefusesAfterTheTerms ends a return because less was left of its payment. Stripe makes it nevertheless, and
// the bank does not accept it, at once or later: the card is asked for nothing more.
func TestCardRefusesAfterTheTerms(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"pending", "failed"} {
		t.Run(first, func(t *testing.T) {
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
				session := p.topUp("10")
				p.toCard("10")
				w.do(session, "refund", "cents", "400")
				isBusy = false
				w.later(61 * time.Minute)
				w.dueRefunds()
				p.wants(6*money.Dollar, rules.PaymentSettled)
				w.do("", "refunds", "status", "failed", "all", "1")
				w.deliver(w.fresh(), 200)
				p.wants(10*money.Dollar, rules.PaymentSettled)
				p.Get(refundPage).Want(t, 200, `value="10.00"`) // the card was not asked
				w.do("", "refunds", "status", first, "new", "1")
				w.makeReturn(p, "1000")
				w.deliver(w.fresh(), 200)
				w.do("", "refunds", "status", "failed")
				w.deliver(w.fresh(), 200)
				p.wants(10*money.Dollar, rules.PaymentSettled)
				p.Get(refundPage).Want(t, 200, "Nothing to return.")
			})
		})
	}
}
