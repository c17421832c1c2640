package payouts_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/store"
)

// A pausedNode is a second node that waits right before Stripe gets its first request for a transfer.
type pausedNode struct {
	w    *world
	goOn chan http.HandlerFunc // what answers that request; nil = Stripe
	done chan error
}

// pauses runs the job on a second node until it asks for a transfer.
func (w *world) pauses() pausedNode {
	w.t.Helper()
	n := pausedNode{w, make(chan http.HandlerFunc), make(chan error, 1)}
	here := make(chan bool, 1)
	isFirst := true
	other := w.another(func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost || r.URL.Path != "/v1/transfers" || !isFirst {
			return false
		}
		isFirst = false
		here <- true
		answer := <-n.goOn
		if answer != nil {
			answer(rw, r)
		}
		return answer != nil
	})
	ctx := w.t.Context()
	go func() { n.done <- other.Run(ctx) }()
	select {
	case <-here:
	case err := <-n.done:
		w.t.Fatal("no transfer was asked for", err)
	}
	return n
}

// resumes lets the node go on, and waits for its end.
func (n pausedNode) resumes(answer http.HandlerFunc) {
	n.w.t.Helper()
	n.goOn <- answer
	if err := <-n.done; err != nil {
		n.w.t.Error(err)
	}
}

// ready lets an app earn $10 that can be paid.
func (w *world) ready() {
	w.t.Helper()
	w.topUp()
	w.call("k1", 10)
	w.onboard()
	w.pass(3 * day)
}

// beginsWaiting lets an app earn $10, and begins their payout, which waits because our balance at Stripe is too small.
func (w *world) beginsWaiting() {
	w.t.Helper()
	w.ready()
	w.steer("", "transfers", "status", "balance")
	w.run()
	w.wants(nil, "begun")
}

// TestFoundWhileAnotherNodeAsks finds a transfer of a margin while another node asks Stripe for the transfer of a
// payout of it. The payout is not given back under the hands of that node, since Stripe makes its transfer.
func TestFoundWhileAnotherNodeAsks(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.ready()
		other := w.pauses()
		w.transferLost("po_lost", 1000)
		w.reconcile()
		w.run()
		w.wants([]int64{1000}, "paid", "begun")
		other.resumes(nil)
		w.wants([]int64{1000, 1000}, "paid", "paid")
	})
}

// TestTransferOfANodeThatPaused has a node pause right before its request for a transfer until its claim has ended and
// another node has given the payout back. The node then records the transfer.
func TestTransferOfANodeThatPaused(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.ready()
		other := w.pauses()
		w.transferLost("po_lost", 1000)
		w.reconcile()
		w.pass(6 * time.Minute)
		w.run()
		w.wants([]int64{1000}, "paid", "failed")
		if n := w.mailsTo("We couldn’t pay you $10.00"); n != 0 {
			t.Errorf("%d emails about a margin that was paid", n)
		}
		other.resumes(nil)
		w.wants([]int64{1000, 1000}, "paid", "paid")
	})
}

// TestRefusalOfALostClaim has a node get the refusal of a transfer after its claim has ended and another node has paid
// the payout. It stays paid.
func TestRefusalOfALostClaim(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.ready()
		other := w.pauses()
		w.pass(6 * time.Minute)
		w.run()
		w.wants([]int64{1000}, "paid")
		other.resumes(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "application/json")
			rw.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprint(rw, `{"error": {"type": "invalid_request_error", "message": "no",
				"code": "insufficient_capabilities_for_transfer"}}`)
		})
		w.wants([]int64{1000}, "paid")
	})
}

// TestTransferOfAnEndedPayout makes a transfer appear at Stripe for a payout that has failed. The next run books it, an
// hour later at most.
func TestTransferOfAnEndedPayout(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.ready()
		w.steer("", "transfers", "status", "refuse")
		w.run()
		w.wants(nil, "failed")
		list, err := store.PayoutsOfDeveloper(t.Context(), w.DB, w.dev.ID, 1)
		if err != nil {
			t.Fatal(err)
		}
		w.pass(w.Pause())
		w.steer("", "transfers", "status", "")
		w.transferLost(list[0].ID, 1000)
		w.run()
		w.wants([]int64{1000}, "paid")
	})
}

// TestTransferMadeTwice has a node pause right before its request for a transfer until another node has paid the payout
// and Stripe has forgotten the key. The second transfer is a payout of its own, which the app owes, and which is paid
// with what it earns next. Only the reversal of its own transfer gives a payout back.
func TestTransferMadeTwice(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"by the node", "by the next run", "by a comparison"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			each(t, func(w *world) {
				w.ready()
				other := w.pauses()
				w.pass(25 * time.Hour)
				w.run()
				w.wants([]int64{1000}, "paid")
				w.steer("", "forget")
				if how == "by the node" {
					other.resumes(nil)
				} else {
					other.resumes(func(rw http.ResponseWriter, r *http.Request) { // its answer is lost
						w.stripe.ServeHTTP(discard{http.Header{}}, r)
						rw.WriteHeader(http.StatusBadGateway)
					})
					if how == "by a comparison" {
						w.reconcile()
					} else {
						w.pass(time.Hour)
						w.run()
					}
				}
				for range 2 {
					w.wants([]int64{1000, 1000}, "paid", "paid")
					w.reconcile()
					w.pass(time.Hour)
					w.run()
				}
				if m := w.margin(); m.Balance() != -10*money.Dollar {
					t.Errorf("%+v", m)
				}
				w.verify()
				list := w.stripe.Transfers()
				var second struct{ ID string }
				if err := json.Unmarshal(list[1], &second); err != nil {
					t.Fatal(err)
				}
				w.steer("", "transfers", "status", "reversed", "id", second.ID)
				w.run()
				if m := w.margin(); m.Balance() != 0 {
					t.Errorf("%+v", m)
				}
				w.wants([]int64{1000, 1000}, "failed", "paid")
				w.verify()
			})
		})
	}
}
