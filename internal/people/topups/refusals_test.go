package topups_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/estimates"
	"github.com/purserhq/purser/internal/models/metrics"
	"github.com/purserhq/purser/internal/people/accounts"
)

// between lets f answer requests to Stripe before the emulated one does. It makes the metrics whose alarms are read.
func (w *world) between(f func(http.ResponseWriter, *http.Request) bool) {
	w.t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if !f(rw, r) {
			w.stripe.ServeHTTP(rw, r)
		}
	}))
	w.t.Cleanup(s.Close)
	prices, err := catalog.Open("", slog.New(slog.DiscardHandler))
	if err != nil {
		w.t.Fatal(err)
	}
	drift, err := estimates.Load(w.t.Context(), w.d, w.now, slog.New(slog.DiscardHandler))
	if err != nil {
		w.t.Fatal(err)
	}
	w.store.Metrics = metrics.New(prices, drift)
	w.store.Config.BaseURL = s.URL
	if err := w.store.Configure(); err != nil {
		w.t.Fatal(err)
	}
}

// refuse answers as Stripe refuses a request.
func refuse(rw http.ResponseWriter, status int) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	_, _ = fmt.Fprintf(rw, `{"error": {"type": "invalid_request_error", "message": "refused with %d"}}`, status)
}

// wantAlarm checks that an alarm was raised.
func (w *world) wantAlarm(name string) {
	w.t.Helper()
	if !w.isRaised(name) {
		w.t.Errorf("no alarm %q", name)
	}
}

func (w *world) isRaised(name string) bool {
	rec := httptest.NewRecorder()
	w.store.Metrics.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return strings.Contains(rec.Body.String(), `purser_alarms_total{alarm="`+name+`",subject="stripe"}`)
}

// An interference refuses or loses requests to Stripe.
type interference struct {
	lost           string // the path whose POST is carried out, and its answer lost
	status         int    // the answer to what is refused
	refused        string // the path that is refused
	method         string // of what is refused
	asked, changed int    // requests that were refused, and POSTs to the lost path
}

func (i *interference) handle(w *world) func(http.ResponseWriter, *http.Request) bool {
	return func(rw http.ResponseWriter, r *http.Request) bool {
		switch {
		case i.status != 0 && r.Method == i.method && strings.HasPrefix(r.URL.Path, i.refused):
			i.asked++
			refuse(rw, i.status)
			return true
		case i.lost != "" && r.Method == http.MethodPost && r.URL.Path == i.lost:
			i.changed++
			w.stripe.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		return false
	}
}

// lookUpStatuses are answers that refuse a look-up.
var lookUpStatuses = []int{400, 401, 403, 404, 429}

// TestRefusedLookUpEndsNoRefund loses Stripe's answer to a refund, and then refuses to say whether there is one. The
// refund stays open, and nothing is given back: it was made.
func TestRefusedLookUpEndsNoRefund(t *testing.T) {
	t.Parallel()
	for name, byUser := range map[string]bool{"by its user": true, "by an operator": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(w *world) {
				p := w.person(accounts.NewAccount{})
				p.topUp("25")
				i := &interference{lost: "/v1/refunds"}
				w.between(i.handle(w))
				left := money.MC(0)
				if byUser {
					p.toCard("25")
				} else {
					left = 25 * money.Dollar // until Stripe confirms it
					p.suspend()
					p.refused(apierr.Unavailable, "cannot be reached")
				}
				i.lost, i.refused, i.method = "", "/v1/refunds", http.MethodGet
				for _, i.status = range lookUpStatuses {
					before := i.asked
					w.dueRefunds()
					if p.wants(left, rules.PaymentSettled); i.asked == before {
						t.Errorf("%d: not asked again", i.status)
					}
				}
				w.wantAlarm("refund_waits")
				w.wantAlarm("the key is refused")
				w.wantAlarm("a look-up is refused")
				i.status = 0
				w.do("", "forget")
				w.dueRefunds()
				p.wants(0, rules.PaymentSettled)
				if byUser && p.mailsOf("We returned $25.00 to your card") != 1 {
					t.Errorf("%+v", p.mails())
				}
			})
		})
	}
}

// TestOurFaultEndsNoRefund refuses the creation of a refund for a fault of ours. The refund is made once it is mended.
func TestOurFaultEndsNoRefund(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		p.topUp("25")
		i := &interference{refused: "/v1/refunds", method: http.MethodPost, status: 403}
		w.between(i.handle(w))
		p.toCard("25")
		i.status = 401
		w.dueRefunds()
		p.wants(0, rules.PaymentSettled)
		w.wantAlarm("refund_waits")
		i.status = 0
		w.dueRefunds()
		p.wants(0, rules.PaymentSettled)
		if n := p.mailsOf("We returned $25.00 to your card"); n != 1 || len(p.mails()) != 1 {
			t.Errorf("%+v", p.mails())
		}
	})
}

// TestRefusedLookUpEndsNoCharge loses Stripe's answer to an automatic charge, and then refuses to say whether there is
// one. The payment stays pending until Stripe says it.
func TestRefusedLookUpEndsNoCharge(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		p.saves("25", "works")
		p.wishes("30", "50", "100")
		i := &interference{lost: "/v1/payment_intents"}
		w.between(i.handle(w))
		w.once()
		p.charged(50_00, 1)
		p.Post("/top-up/auto/off", url.Values{}).Leads(t, "/top-up/auto?done=off") // the charge is not repeated
		i.lost, i.refused, i.method = "", "/v1/payment_intents", http.MethodGet
		for _, i.status = range lookUpStatuses {
			w.later(25 * time.Hour)
			w.once()
			p.wants(25*money.Dollar, rules.PaymentPending)
		}
		i.status = 0
		w.later(25 * time.Hour)
		w.once()
		p.wants(75*money.Dollar, rules.PaymentSettled)
	})
}

// TestRefusedExpiryEndsNoCheckout does not take our own fault for the end of a checkout.
func TestRefusedExpiryEndsNoCheckout(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		p.begin("25")
		i := &interference{refused: "/v1/checkout/sessions/", method: http.MethodPost}
		w.between(i.handle(w))
		for _, i.status = range []int{401, 403, 409, 429} {
			err := w.store.ExpireUnpaid(t.Context(), p.ID)
			if e, ok := errors.AsType[*apierr.Error](err); !ok || e.Code != apierr.Unavailable {
				t.Errorf("%d: %v", i.status, err)
			}
		}
		i.status = 0
		if err := w.store.ExpireUnpaid(t.Context(), p.ID); err != nil {
			t.Error(err)
		}
		p.wants(0, rules.PaymentFailed)
	})
}

// TestRefusedRemovalIsRepeated deletes a removed card at Stripe although Stripe first refuses it for a fault of ours.
func TestRefusedRemovalIsRepeated(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		p.saves("25", "works")
		i := &interference{refused: "/v1/payment_methods/", method: http.MethodPost}
		w.between(i.handle(w))
		p.Post("/top-up/auto/card/remove", url.Values{}).Leads(t, "/top-up/auto?done=removed")
		for _, i.status = range []int{401, 403, 429} {
			w.later(6 * time.Minute)
			w.once()
		}
		if n := len(w.stripe.SavedCards()); n != 1 {
			t.Fatalf("%d saved cards", n)
		}
		i.status = 0
		w.later(6 * time.Minute)
		w.once()
		if n := len(w.stripe.SavedCards()); n != 0 {
			t.Errorf("%d saved cards", n)
		}
		w.wantAlarm("the key is refused")
	})
}
