package stripe

import (
	"cmp"
	"fmt"
	"slices"
)

// A Payment is what Stripe has of one payment of which it took money, or tried to.
type Payment struct {
	Intent, TopUp, Account string // TopUp and Account are of its metadata
	Card                   string // the saved card that it charged or saved; "" = none
	Cents                  int64
	Status                 string
	Paid                   bool
	PaidUS                 int64 // when
	OffSession             bool  // without its payer
	Declined               bool  // a bank has declined it
	Refunds                []Refund
	Disputes               []Dispute
}

// A Refund is what Stripe has of one refund.
type Refund struct {
	ID, Name string // Name is refund_id of its metadata
	Cents    int64
	Status   string
}

// IsGone reports whether the money has left for the card, or may still arrive there.
func (r Refund) IsGone() bool { return r.Status == "pending" || r.Status == "succeeded" }

// A Dispute is what Stripe has of one dispute.
type Dispute struct {
	ID, Status string
	Cents      int64
}

// IsOpen reports whether the bank has not decided a dispute.
func (d Dispute) IsOpen() bool { return d.Status == "needs_response" || d.Status == "under_review" }

// RefundedCents are the cents that are refunded or on their way.
func (p Payment) RefundedCents() (sum int64) {
	for _, r := range p.Refunds {
		if r.IsGone() {
			sum += r.Cents
		}
	}
	return sum
}

// DisputedCents are the cents of disputes of a kind.
func (p Payment) DisputedCents(is func(Dispute) bool) (sum int64) {
	for _, d := range p.Disputes {
		if is(d) {
			sum += d.Cents
		}
	}
	return sum
}

// LostCents are the cents of lost disputes.
func (p Payment) LostCents() int64 {
	return p.DisputedCents(func(d Dispute) bool { return d.Status == "lost" })
}

// Payments returns the payments in the order of their top-ups.
func (s *Server) Payments() (list []Payment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, intent := range s.intents {
		metadata, _ := intent["metadata"].(object)
		p := Payment{Intent: id, Paid: intent["status"] == "succeeded"}
		p.Status, _ = intent["status"].(string)
		charge, _ := intent["latest_charge"].(object)
		p.Declined, p.OffSession = charge["status"] == "failed", intent["off_session"] == true
		if created, ok := charge["created"].(int64); ok && p.Paid {
			p.PaidUS = created * 1e6
		}
		p.TopUp, _ = metadata["topup_id"].(string)
		p.Account, _ = metadata["account_id"].(string)
		p.Card, _ = intent["payment_method"].(string)
		p.Cents, _ = intent["amount"].(int64)
		for _, r := range s.refunds {
			if r["payment_intent"] == id {
				metadata, _ := r["metadata"].(object)
				name, _ := metadata["refund_id"].(string)
				p.Refunds = append(p.Refunds, Refund{fmt.Sprint(r["id"]), name, r["amount"].(int64),
					fmt.Sprint(r["status"])})
			}
		}
		for _, d := range s.disputes {
			if d["payment_intent"] == id {
				p.Disputes = append(p.Disputes, Dispute{fmt.Sprint(d["id"]), fmt.Sprint(d["status"]),
					d["amount"].(int64)})
			}
		}
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b Payment) int {
		return cmp.Or(cmp.Compare(a.TopUp, b.TopUp), cmp.Compare(a.Intent, b.Intent))
	})
	return list
}

// endRefund changes the status of one refund, as the bank does: a pending one to any other, one that has succeeded to
// failed. What fails returns its amount to the charge.
func (s *Server) endRefund(id, status string) error {
	for _, r := range s.refunds {
		if r["id"] != id {
			continue
		}
		if was := r["status"]; was != "pending" && !(was == "succeeded" && status == "failed") {
			return fmt.Errorf("refund %s is %v", id, was)
		}
		r["status"] = status
		charge, ok := s.intents[r["payment_intent"].(string)]["latest_charge"].(object)
		if ok && (status == "failed" || status == "canceled") {
			refunded, _ := charge["amount_refunded"].(int64)
			charge["amount_refunded"], charge["refunded"] = refunded-r["amount"].(int64), false
		}
		s.appendEvent("refund.updated", r)
		return nil
	}
	return fmt.Errorf("no refund %q", id)
}

// endDispute changes the status of one dispute, such as to won, lost or warning_closed.
func (s *Server) endDispute(id, status string) error {
	for _, d := range s.disputes {
		if d["id"] == id {
			d["status"] = status
			s.appendEvent("charge.dispute.closed", d)
			return nil
		}
	}
	return fmt.Errorf("no dispute %q", id)
}

// Transferred returns the cents of the transfers that were not taken back.
func (s *Server) Transferred() (list []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.transfers {
		amount, _ := t["amount"].(int64)
		if reversed, _ := t["amount_reversed"].(int64); amount > reversed {
			list = append(list, amount-reversed)
		}
	}
	return list
}
