package topups_test

import (
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/testkit/apitest"
)

const refundPage = "/top-up/refund"

// refundForm is the form of the page, filled in.
func (p *person) refundForm(amount string) url.Values {
	p.t.Helper()
	return url.Values{
		"token":   {p.Get(refundPage).Found(p.t, tokenField)},
		"amount":  {amount},
		"present": {apitest.Password},
	}
}

// toCard returns an amount to the card by the page.
func (p *person) toCard(amount string) {
	p.t.Helper()
	p.Post(refundPage, p.refundForm(amount)).Leads(p.t, refundPage+"?done=1")
}

// dueRefunds runs the job when refunds are asked for again.
func (w *world) dueRefunds() {
	w.t.Helper()
	w.later(6 * time.Minute)
	if err := w.store.RunDue(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// mailsOf counts the mails with a subject.
func (p *person) mailsOf(subject string) (n int) {
	p.t.Helper()
	for _, m := range p.mails() {
		if m.Subject == subject {
			n++
		}
	}
	return n
}

// TestMoneyBackToTheCard returns unspent money to the newest top-up first, once however often the form is sent, and
// never more than is available and than the top-ups can take.
func TestMoneyBackToTheCard(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		p.Get(refundPage).Want(t, 200, "Nothing to return.")
		p.topUp("10")
		p.topUp("25")
		p.allocate(3 * money.Dollar)
		p.Get(refundPage).Want(t, 200, "$32.00", `value="32.00"`)
		for amount, says := range map[string]string{
			"32.01": "You can return up to $32.00 now.",
			"0":     "such as 25 or 12.50",
			"-1":    "such as 25",
			"1.005": "such as 25",
		} {
			p.Post(refundPage, p.refundForm(amount)).Want(t, 422, says)
		}
		wrong := p.refundForm("30")
		wrong.Set("present", "wrong")
		p.Post(refundPage, wrong).Want(t, 401, "Incorrect password.")
		p.wants(32*money.Dollar, rules.PaymentSettled)

		form := p.refundForm("10")
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { p.Post(refundPage, form) })
		}
		wg.Wait()
		p.Post(refundPage, form).Leads(t, refundPage+"?done=1")
		p.wants(22*money.Dollar, rules.PaymentSettled)
		p.toCard("20")
		p.wants(2*money.Dollar, rules.PaymentSettled)
		if got := p.reversed(); got[0] != 25*money.Dollar || got[1] != 5*money.Dollar {
			t.Errorf("reversed %v", got)
		}
		p.Get(refundPage).Want(t, 200, "Your refunds", "$10.00", "$15.00", "$5.00", "Returned", `value="2.00"`)
		p.Get("/top-ups/"+p.payment().ID).Want(t, 200, "Returned to your card")
		if n := p.mailsOf("We returned $10.00 to your card"); n != 1 {
			t.Errorf("%d mails", n)
		}
		// What Stripe tells of it changes nothing more.
		w.deliver(w.fresh(), 200)
		w.dueRefunds()
		p.wants(2*money.Dollar, rules.PaymentSettled)
	})
}

// TestRefundLeavesTheBalanceFirst asks a Stripe that cannot be reached: the money has left the balance, the refund is
// pending, and the job finishes it, once, also if an answer of Stripe was lost.
func TestRefundLeavesTheBalanceFirst(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		session := p.topUp("10")
		w.do("", "down", "down", "9")
		p.toCard("4")
		w.do("", "down", "down", "0")
		p.wants(6*money.Dollar, rules.PaymentSettled)
		p.Get(refundPage).Want(t, 200, "Pending", "Nothing to return.") // one at a time of a top-up
		w.do("", "lose", "lose", "2")                                   // of the list, or of the refund itself
		w.dueRefunds()
		w.do("", "lose", "lose", "0")
		w.do("", "forget")
		w.dueRefunds()
		p.Get(refundPage).Want(t, 200, "Returned", `value="6.00"`).Lacks(t, "Pending")
		w.deliver(w.fresh(), 200)
		p.wants(6*money.Dollar, rules.PaymentSettled)
		// A refund in Stripe's dashboard is taken from the balance besides.
		w.do(session, "refund", "cents", "100")
		w.deliver(w.fresh(), 200)
		p.wants(5*money.Dollar, rules.PaymentSettled)
	})
}

// TestRefundThatFails gives the money back, once: when a refund fails after it was pending, and when it fails after it
// had succeeded.
func TestRefundThatFails(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		p.topUp("10")
		p.topUp("10")
		w.do("", "refunds", "status", "pending")
		p.toCard("4")
		p.wants(16*money.Dollar, rules.PaymentSettled)
		p.Get(refundPage).Want(t, 200, "Pending")
		w.dueRefunds()
		p.wants(16*money.Dollar, rules.PaymentSettled)
		w.do("", "refunds", "status", "failed")
		w.deliver(w.fresh(), 200)
		p.wants(20*money.Dollar, rules.PaymentSettled)
		w.dueRefunds()
		p.wants(20*money.Dollar, rules.PaymentSettled)
		p.Get(refundPage).Want(t, 200, "Couldn’t be made. It is back in your balance")
		if n := p.mailsOf("We couldn’t return $4.00 to your card"); n != 1 {
			t.Errorf("%d mails", n)
		}

		w.do("", "refunds", "status", "succeeded")
		p.toCard("6")
		p.wants(14*money.Dollar, rules.PaymentSettled)
		w.do("", "refunds", "status", "failed", "all", "1")
		for range 2 {
			w.deliver(w.fresh(), 200)
			w.do("", "anew")
		}
		p.wants(20*money.Dollar, rules.PaymentSettled)
	})
}

// TestNoRefundWithAutomaticTopUp says why not: the card would be charged again.
func TestNoRefundWithAutomaticTopUp(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		p.saves("25", "works")
		p.wishes("5", "10", "100")
		p.Post(refundPage, p.refundForm("4")).Want(t, 422, "Turn off automatic top-up first.")
		p.wants(25*money.Dollar, rules.PaymentSettled)
	})
}
