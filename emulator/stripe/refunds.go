package stripe

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// createRefund serves POST /v1/refunds: it refunds a part of the charge of an intent. As Stripe does, it refuses more
// than is left of the charge, and a charge with a dispute that was not won. An inquiry, whose status begins with
// warning_, takes no money, and the charge can be refunded.
func (s *Server) createRefund(r *http.Request) (object, *apiError) {
	f := r.PostForm
	intent := s.intents[f.Get("payment_intent")]
	if intent == nil {
		return nil, notFound("payment_intent")
	}
	charge, ok := intent["latest_charge"].(object)
	if !ok {
		return nil, badRequest("This PaymentIntent does not have a successful charge to refund.")
	}
	amount, _ := charge["amount"].(int64)
	refunded, _ := charge["amount_refunded"].(int64)
	cents := amount - refunded
	if text := f.Get("amount"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, badRequest("Invalid integer: " + text)
		}
		cents = n
	}
	switch {
	case s.isContested(intent):
		failed := badRequest("The charge has been charged back; cannot issue a refund.")
		failed.code, failed.isStored = "charge_disputed", true
		return nil, failed
	case cents <= 0 || cents > amount-refunded:
		return nil, badRequest("Refund amount is greater than unrefunded amount on charge.")
	}
	return s.addRefund(intent, charge, cents, readMetadata(f)), nil
}

// addRefund refunds a part of a charge. A refund that fails at once takes nothing from it.
func (s *Server) addRefund(intent, charge object, cents int64, metadata object) object {
	refund := object{
		"id":             newID("re_"),
		"object":         "refund",
		"amount":         cents,
		"currency":       charge["currency"],
		"charge":         charge["id"],
		"payment_intent": intent["id"],
		"metadata":       metadata,
		"status":         cmp.Or(s.refundStatus, "succeeded"),
		"created":        s.o.Now().Unix(),
	}
	s.setPendingReason(refund)
	s.refunds = append(s.refunds, refund)
	if refund["status"] == "failed" {
		s.appendEvent("refund.failed", refund)
		return refund
	}
	refunded, _ := charge["amount_refunded"].(int64)
	amount, _ := charge["amount"].(int64)
	charge["amount_refunded"], charge["refunded"] = refunded+cents, refunded+cents == amount
	s.appendEvent("charge.refunded", charge)
	return refund
}

// setRefundStatus gives this status to refunds, pending ones and those to come. One that fails returns its amount to
// the charge, as at Stripe.
func (s *Server) setRefundStatus(w steering) error {
	s.refundStatus, s.pendingReason = w.with.Get("status"), w.with.Get("reason")
	if w.with.Get("new") != "" {
		return nil
	}
	for _, refund := range s.refunds {
		if refund["status"] != "pending" && w.with.Get("all") == "" {
			continue
		}
		was := refund["status"]
		refund["status"] = s.refundStatus
		s.setPendingReason(refund)
		charge, ok := s.intents[refund["payment_intent"].(string)]["latest_charge"].(object)
		if ok && s.refundStatus == "failed" && was != "failed" {
			refunded, _ := charge["amount_refunded"].(int64)
			charge["amount_refunded"], charge["refunded"] = refunded-refund["amount"].(int64), false
		}
		s.appendEvent("refund.updated", refund)
	}
	return nil
}

// setPendingReason says why a refund is pending.
func (s *Server) setPendingReason(refund object) {
	if delete(refund, "pending_reason"); refund["status"] == "pending" {
		refund["pending_reason"] = cmp.Or(s.pendingReason, "processing")
	}
}

// expireSession serves POST /v1/checkout/sessions/{id}/expire.
func (s *Server) expireSession(r *http.Request) (object, *apiError) {
	session, ok := s.sessions[r.PathValue("id")]
	if !ok {
		return nil, notFound("checkout.session")
	}
	if session["status"] != "open" {
		return nil, badRequest("Only Checkout Sessions with a status in [\"open\"] can be expired.")
	}
	s.completeSession(session, "expire", "")
	return session, nil
}

// isContested reports whether a payment has a dispute that is open or lost.
func (s *Server) isContested(intent object) bool {
	return slices.ContainsFunc(s.disputes, func(d object) bool {
		status, _ := d["status"].(string)
		return d["payment_intent"] == intent["id"] && status != "won" && !strings.HasPrefix(status, "warning_")
	})
}
