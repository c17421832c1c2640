package stripe

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Cards are the behaviors of a saved card in a payment without its owner.
var Cards = []string{"works", "declined", "poor", "authenticate", "expired"}

// quietCards are behaviors of which no bank is asked: Stripe does not get so far ("unasked"), wants the owner to
// confirm the payment first ("confirm"), or takes its time ("processing").
var quietCards = map[string]string{
	"unasked":    "requires_confirmation",
	"confirm":    "requires_action",
	"processing": "processing",
}

// cardChoices are those of the Checkout page.
var cardChoices = []struct{ ID, Text string }{
	{"works", "Visa ending in 4242, which works"},
	{"declined", "Visa ending in 0341, which is declined later"},
	{"authenticate", "Visa ending in 3184, which asks for its holder each time"},
}

// savedCard is one that a customer left.
type savedCard struct {
	customer    any // nil: it was forgotten
	behaves     string
	fingerprint string // the same for the same card in all accounts of the shop
}

// last4 are of Stripe's own test cards.
var last4 = map[string]string{
	"works":        "4242",
	"declined":     "0341",
	"authenticate": "3184",
	"poor":         "9995",
	"expired":      "0069",
}

func (c *savedCard) object(id string) object {
	return object{
		"id": id, "object": "payment_method", "type": "card", "livemode": false, "customer": c.customer,
		"card": object{
			"brand":     "visa",
			"last4":     last4[c.behaves],
			"exp_month": 4,
			"exp_year":  2030,
			"funding":   "credit",

			"fingerprint": c.fingerprint,
		},
	}
}

// saveCard saves a card for a customer.
func (s *Server) saveCard(customer any, behaves, fingerprint string) string {
	if !slices.Contains(Cards, behaves) {
		behaves = "works"
	}
	id := newID("pm_")
	s.cards[id] = &savedCard{customer, behaves, fingerprint}
	return id
}

// setCardBehavior changes how a card behaves.
func (s *Server) setCardBehavior(id, how string) error {
	c, ok := s.cards[id]
	if !ok || !slices.Contains(Cards, how) && quietCards[how] == "" {
		return fmt.Errorf("no card %q that could be %q", id, how)
	}
	c.behaves = how
	return nil
}

// SavedCards returns the cards that are still kept.
func (s *Server) SavedCards() (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, c := range s.cards {
		if c.customer != nil {
			list = append(list, id)
		}
	}
	return list
}

// Charged returns how many cents automatic payments took whose metadata has this
// account, and how many these are.
func (s *Server) Charged(accountID string) (cents int64, payments int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.intents {
		if m, ok := i["metadata"].(object); ok && m["account_id"] == accountID && i["off_session"] == true &&
			i["status"] == "succeeded" {
			amount, _ := i["amount"].(int64)
			cents, payments = cents+amount, payments+1
		}
	}
	return cents, payments
}

func (s *Server) createCustomer(r *http.Request) (object, *apiError) {
	id := newID("cus_")
	s.customers[id] = true
	return object{"id": id, "object": "customer", "livemode": false, "metadata": readMetadata(r.PostForm)}, nil
}

func (s *Server) deleteCustomer(r *http.Request) (object, *apiError) {
	id := r.PathValue("id")
	if !s.customers[id] {
		missing := missingParam("customer", id)
		missing.param = "id" // the path names it
		return nil, missing
	}
	s.forgetCustomer(id)
	return object{"id": id, "object": "customer", "deleted": true}, nil
}

// forgetCustomer deletes a customer, whose cards are detached.
func (s *Server) forgetCustomer(id string) {
	delete(s.customers, id)
	for _, c := range s.cards {
		if c.customer == id {
			c.customer = nil
		}
	}
}

// HasCustomer reports whether a customer is still kept.
func (s *Server) HasCustomer(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.customers[id]
}

// createIntent charges a saved card. What the card does is answered as Stripe does:
// a declined one is an error, with the payment in it.
func (s *Server) createIntent(r *http.Request) (object, *apiError) {
	f := r.PostForm
	cents, err := strconv.ParseInt(f.Get("amount"), 10, 64)
	card := s.cards[f.Get("payment_method")]
	switch {
	case err != nil || cents < 50 || f.Get("currency") == "":
		return nil, badRequest("Amount must convert to at least 50 cents.")
	case f.Get("confirm") != "true" || f.Get("off_session") != "true":
		return nil, badRequest("The emulator knows automatic payments only.")
	case !s.customers[f.Get("customer")]:
		return nil, missingParam("customer", f.Get("customer"))
	case card == nil:
		return nil, missingParam("payment_method", f.Get("payment_method"))
	case card.customer == nil:
		return nil, badRequest("The provided PaymentMethod was previously used with a PaymentIntent without Customer " +
			"attachment, or was detached from a Customer. It may not be used again.")
	case card.customer != f.Get("customer"):
		return nil, badRequest("The PaymentMethod does not belong to the Customer.")
	}
	id := newID("pi_")
	intent := object{
		"id":              id,
		"object":          "payment_intent",
		"amount":          cents,
		"amount_received": 0,
		"currency":        f.Get("currency"),
		"livemode":        false,
		"created":         s.o.Now().Unix(),
		"off_session":     true,
		"status":          "requires_payment_method",
		"latest_charge":   nil,
		"customer":        f.Get("customer"),
		"payment_method":  f.Get("payment_method"),
		"fingerprint":     card.fingerprint,
		"metadata":        readMetadata(f),
	}
	s.addIntent(intent)
	if status := quietCards[card.behaves]; status != "" {
		intent["status"] = status
	} else if card.behaves == "works" {
		s.markSucceeded(intent)
		s.appendEvent("payment_intent.succeeded", intent)
	} else {
		s.declineIntent(intent, card.behaves)
	}
	return s.intentAnswer(id)
}

// addIntent adds an intent to those that there are.
func (s *Server) addIntent(intent object) {
	id := intent["id"].(string)
	s.intents[id], s.intentIDs = intent, append(s.intentIDs, id)
}

// declineIntent declines an intent with the bank's reason.
func (s *Server) declineIntent(intent object, behaves string) {
	code, reason := "card_declined", "generic_decline"
	switch behaves {
	case "poor":
		reason = "insufficient_funds"
	case "authenticate":
		code, reason = "authentication_required", "authentication_required"
	case "expired":
		code, reason = "expired_card", "expired_card"
	}
	intent["last_payment_error"] = object{
		"type":         "card_error",
		"code":         code,
		"decline_code": reason,
		"message":      "Your card was declined.",
	}
	charge := object{
		"id":              newID("ch_"),
		"object":          "charge",
		"amount":          intent["amount"],
		"amount_refunded": int64(0),
		"currency":        intent["currency"],
		"livemode":        false,
		"paid":            false,
		"status":          "failed",
		"disputed":        false,
		"failure_code":    code,
		"outcome":         object{"reason": reason, "type": "issuer_declined"},
		"payment_intent":  intent["id"],
		"metadata":        object{},
		"created":         s.o.Now().Unix(),
	}
	intent["latest_charge"], s.charges = charge, append(s.charges, charge)
	s.appendEvent("payment_intent.payment_failed", intent)
}

// intentAnswer is the answer to the request that made an intent.
func (s *Server) intentAnswer(id string) (object, *apiError) {
	intent := s.expandIntent(id, false, false)
	if e, ok := intent["last_payment_error"].(object); ok {
		return nil, &apiError{
			status:   http.StatusPaymentRequired,
			kind:     "card_error",
			code:     fmt.Sprint(e["code"]),
			message:  "Your card was declined.",
			intent:   intent,
			isStored: true,
		}
	}
	return intent, nil
}

func (s *Server) retrieveIntent(r *http.Request) (object, *apiError) {
	id := r.PathValue("id")
	if s.intents[id] == nil {
		return nil, notFound("payment_intent")
	}
	expand := expandedParts(r)
	return s.expandIntent(id, slices.Contains(expand, "latest_charge"), slices.Contains(expand, "payment_method")), nil
}

func (s *Server) cancelIntent(r *http.Request) (object, *apiError) {
	id := r.PathValue("id")
	intent := s.intents[id]
	if intent == nil {
		return nil, notFound("payment_intent")
	}
	if status, _ := intent["status"].(string); !strings.HasPrefix(status, "requires_") {
		return nil, &apiError{
			status:  http.StatusBadRequest,
			kind:    "invalid_request_error",
			code:    "payment_intent_unexpected_state",
			message: "You cannot cancel this PaymentIntent because it has a status of " + status + ".",
		}
	}
	intent["status"], intent["last_payment_error"] = "canceled", nil // the charge has the reason
	if reason := r.PostForm.Get("cancellation_reason"); reason != "" {
		intent["cancellation_reason"] = reason
	}
	s.appendEvent("payment_intent.canceled", intent)
	return s.expandIntent(id, false, false), nil
}

func (s *Server) detachMethod(r *http.Request) (object, *apiError) {
	id := r.PathValue("id")
	c := s.cards[id]
	switch {
	case c == nil:
		return nil, notFound("PaymentMethod: '" + id + "'")
	case c.customer == nil:
		return nil, badRequest("The payment method you provided is not attached to a customer so detachment is " +
			"impossible.")
	}
	c.customer = nil
	return c.object(id), nil
}

// retrieveMethod serves GET /v1/payment_methods/{id}.
func (s *Server) retrieveMethod(r *http.Request) (object, *apiError) {
	id := r.PathValue("id")
	if s.cards[id] == nil {
		return nil, notFound("PaymentMethod: '" + id + "'")
	}
	return s.cards[id].object(id), nil
}

// doIntent makes something happen to an automatic payment.
func (s *Server) doIntent(id, do string, with url.Values) error {
	intent := s.intents[id]
	if intent == nil {
		return fmt.Errorf("no session or payment %q", id)
	}
	if do == "tamper" {
		tamperWith(intent, with)
		return nil
	}
	charge, ok := intent["latest_charge"].(object)
	if !ok || charge["paid"] != true {
		return fmt.Errorf("payment %s has no charge", id)
	}
	return s.reverseCharge(intent, charge, do, with)
}
