package topups_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/topups"
)

// TestInvoices pays top-ups of which Stripe makes an invoice: with the customer's tax id, and with tax, which is a part
// of what is paid and credited. The receipt leads to the invoice, for its owner alone.
func TestInvoices(t *testing.T) {
	t.Parallel()
	for setting, want := range map[topups.Invoices][]string{
		topups.PlainInvoices: {"Paid: <strong>$24.00</strong>", "Tax ID: DE123456789"},
		topups.TaxedInvoices: {"Paid: <strong>$24.00</strong>", "Tax ID: DE123456789", "Tax included: $4.00"},
	} {
		t.Run(string(setting), func(t *testing.T) {
			t.Parallel()
			each(t, func(w *world) {
				w.store.Config.Invoices = setting
				p := w.person(accounts.NewAccount{})
				session := p.begin("24")
				receipt := "/top-ups/" + p.payment().ID
				p.Get(receipt).Want(w.t, http.StatusOK).Lacks(w.t, "/invoice")
				p.Get(receipt+"/invoice").Want(w.t, http.StatusNotFound)
				w.do(session, "pay", "tax_id", "DE123456789")
				w.deliver(w.fresh(), http.StatusOK)
				p.wants(24*dollars, rules.PaymentSettled)
				p.Get(receipt).Want(w.t, http.StatusOK, `href="`+receipt+`/invoice"`)
				to := p.Get(receipt+"/invoice").Want(w.t, http.StatusSeeOther).To
				page := httptest.NewRecorder()
				w.stripe.ServeHTTP(page, httptest.NewRequest("GET", to[strings.Index(to, "/invoice/"):], nil))
				for _, text := range want {
					if !strings.Contains(page.Body.String(), text) {
						w.t.Errorf("%q is not in\n%s", text, page.Body)
					}
				}
				if setting == topups.PlainInvoices && strings.Contains(page.Body.String(), "Tax included") {
					w.t.Errorf("tax: %s", page.Body)
				}
				w.person(accounts.NewAccount{}).Get(receipt+"/invoice").Want(w.t, http.StatusNotFound)
				w.do("", "down", "down", "99") // its client asks again
				p.Get(receipt+"/invoice").Want(w.t, http.StatusServiceUnavailable, "can’t reach Stripe")
				w.do("", "down", "down", "0")
				saver := w.person(accounts.NewAccount{}) // whose customer Stripe knows
				saver.saves("25", "works")
				saver.wants(25*dollars, rules.PaymentSettled)
				saver.Get("/top-ups/"+saver.payment().ID+"/invoice").Want(w.t, http.StatusSeeOther)
			})
		})
	}
}

// TestNoInvoice: what was paid before invoices were on has none, and its receipt says so.
func TestNoInvoice(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		session := p.begin("24")
		receipt := "/top-ups/" + p.payment().ID
		w.do(session, "pay")
		w.deliver(w.fresh(), http.StatusOK)
		p.Get(receipt).Want(w.t, http.StatusOK).Lacks(w.t, "/invoice")
		p.Get(receipt+"/invoice").Want(w.t, http.StatusNotFound)
		w.store.Config.Invoices = topups.PlainInvoices
		p.Get(receipt+"/invoice").Want(w.t, http.StatusNotFound, "No invoice.", "Credited")
	})
}
