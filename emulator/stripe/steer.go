package stripe

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// postSteering serves POST /steer.
func (s *Server) postSteering(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	} else if err := s.Steer(r.PostForm.Get("session"), r.PostForm.Get("do"), r.PostForm); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

// A steering is a request to POST /steer.
type steering struct {
	id   string // of a session
	word string
	with url.Values
}

// serverWords are the words that act on the server as a whole.
var serverWords = map[string]func(*Server, steering) error{
	"lose": func(s *Server, w steering) error {
		s.lostMethod = w.with.Get("method")
		return setCount(&s.lostAnswers, w)
	},
	"down":        func(s *Server, w steering) error { return setCount(&s.lostRequests, w) },
	"refunds":     (*Server).setRefundStatus,
	"transfers":   (*Server).steerTransfers,
	"answer":      (*Server).planAnswer,
	"vanish":      (*Server).vanish,
	"permissions": (*Server).restrictKey,
	"forget":      func(s *Server, _ steering) error { clear(s.answers); return nil },
	"resend":      (*Server).resendAll,
	"anew":        (*Server).resendAll,
	"reverse":     (*Server).resendAll,
}

// sessionWords are the words that act on one Checkout session.
var sessionWords = map[string]func(*Server, object, steering) error{
	"pay":     (*Server).endCheckout,
	"later":   (*Server).endCheckout,
	"expire":  (*Server).endCheckout,
	"clear":   (*Server).endProcessing,
	"bounce":  (*Server).endProcessing,
	"tamper":  func(_ *Server, session object, w steering) error { tamperWith(session, w.with); return nil },
	"refund":  (*Server).reverseSession,
	"dispute": (*Server).reverseSession,
	"won":     (*Server).reverseSession,
	"lost":    (*Server).reverseSession,
}

// Steer applies a word of POST /steer to a session, an automatic payment or a card. The
// comment of Server lists the words.
func (s *Server) Steer(id, word string, with url.Values) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := steering{id, word, with}
	if do := serverWords[word]; do != nil {
		return do(s, w)
	}
	session, ok := s.sessions[id]
	if strings.HasPrefix(id, "acct_") {
		return s.onboard(id, word)
	} else if strings.HasPrefix(id, "re_") {
		return s.endRefund(id, word)
	} else if strings.HasPrefix(id, "du_") {
		return s.endDispute(id, word)
	} else if !ok && strings.HasPrefix(id, "pm_") {
		return s.setCardBehavior(id, with.Get("card"))
	} else if !ok {
		return s.doIntent(id, word, with)
	}
	if do := sessionWords[word]; do != nil {
		return do(s, session, w)
	}
	return fmt.Errorf("cannot %q", word)
}

// A plannedAnswer is an error that is answered to requests of a method below a path.
type plannedAnswer struct {
	method, path string
	times        int
	answer       apiError
}

// planAnswer plans an error.
func (s *Server) planAnswer(w steering) error {
	if w.with.Get("status") == "" {
		s.planned = nil
		return nil
	}
	status, err := strconv.Atoi(w.with.Get("status"))
	if err != nil {
		return err
	}
	times := 1
	if v := w.with.Get("times"); v != "" {
		if times, err = strconv.Atoi(v); err != nil {
			return err
		}
	}
	s.planned = append(s.planned, &plannedAnswer{
		method: w.with.Get("method"),
		path:   w.with.Get("path"),
		times:  times,
		answer: apiError{
			status:     status,
			kind:       cmp.Or(w.with.Get("type"), "invalid_request_error"),
			code:       w.with.Get("code"),
			param:      w.with.Get("param"),
			message:    cmp.Or(w.with.Get("message"), "planned"),
			carriedOut: w.with.Get("after") != "",
			isStored:   w.with.Get("stored") != "",
		},
	})
	return nil
}

// takePlanned returns the error that is planned for a request, or nil.
func (s *Server) takePlanned(r *http.Request) *apiError {
	for _, p := range s.planned {
		if p.times > 0 && (p.method == "" || p.method == r.Method) && strings.HasPrefix(r.URL.Path, p.path) {
			p.times--
			answer := p.answer
			return &answer
		}
	}
	return nil
}

// vanish deletes a customer, a card or a connected account, as somebody may in Stripe's dashboard.
func (s *Server) vanish(w steering) error {
	switch {
	case s.customers[w.id]:
		s.forgetCustomer(w.id)
	case s.cards[w.id] != nil:
		delete(s.cards, w.id)
	case s.connected[w.id] != nil:
		delete(s.connected, w.id)
	default:
		return fmt.Errorf("there is no %q", w.id)
	}
	return nil
}

// setCount sets a counter to the number that stands under the steering's own word.
func setCount(counter *int, w steering) error {
	n, err := strconv.Atoi(w.with.Get(w.word))
	*counter = n
	return err
}

func (s *Server) resendAll(w steering) error {
	s.resendEvents(w.word)
	return nil
}

// endCheckout ends an open session.
func (s *Server) endCheckout(session object, w steering) error {
	if session["status"] != "open" {
		return fmt.Errorf("session %s is %v", w.id, session["status"])
	}
	if v := w.with.Get("tax_id"); v != "" && isEnabled(session, "tax_id_collection") {
		session["tax_id"] = v
	}
	if v := w.with.Get("fingerprint"); v != "" {
		session["fingerprint"] = v
	}
	s.completeSession(session, w.word, w.with.Get("card"))
	return nil
}

// endProcessing ends the asynchronous payment of a session.
func (s *Server) endProcessing(session object, w steering) error {
	intent := s.intentOf(session)
	if intent == nil || intent["status"] != "processing" {
		return fmt.Errorf("session %s waits for nothing", w.id)
	}
	s.clearPayment(session, intent, w.word == "clear")
	return nil
}

// reverseSession reverses the charge of a session.
func (s *Server) reverseSession(session object, w steering) error {
	intent := s.intentOf(session)
	charge, ok := intent["latest_charge"].(object)
	if !ok {
		return fmt.Errorf("session %s has no charge", w.id)
	}
	return s.reverseCharge(intent, charge, w.word, w.with)
}

// intentOf returns the payment intent of a session, or nil.
func (s *Server) intentOf(session object) object {
	return s.intents[fmt.Sprint(session["payment_intent"])]
}

// completeSession ends the Checkout page: paid ("pay"), to be paid by an asynchronous method
// ("later"), or expired ("expire"). A session that saves a card saves one that behaves as card.
func (s *Server) completeSession(session object, do, card string) {
	if do == "expire" {
		session["status"], session["url"] = "expired", nil
		s.appendEvent("checkout.session.expired", session)
		return
	}
	id := newID("pi_")
	intent := object{
		"id":              id,
		"object":          "payment_intent",
		"amount":          session["amount_total"],
		"amount_received": 0,
		"currency":        session["currency"],
		"livemode":        false,
		"created":         s.o.Now().Unix(),
		"status":          "processing",
		"latest_charge":   nil,
		"metadata":        session["metadata"],
		"fingerprint":     fingerprintOf(session),
	}
	if session["setup_future_usage"] == "off_session" {
		intent["customer"] = session["customer"]
		intent["payment_method"] = s.saveCard(session["customer"], card, fingerprintOf(session))
	}
	s.addIntent(intent)
	session["status"], session["payment_intent"], session["url"] = "complete", id, nil
	if do == "pay" {
		s.chargeSession(session, intent)
		s.appendEvent("payment_intent.succeeded", intent)
	} else {
		s.appendEvent("payment_intent.processing", intent)
	}
	s.appendEvent("checkout.session.completed", session)
}

// fingerprintOf returns the fingerprint of the card that pays a session: as the word said, or each account of the shop
// has a card of its own.
func fingerprintOf(session object) string {
	if v, ok := session["fingerprint"].(string); ok {
		return v
	}
	m, _ := session["metadata"].(object)
	return fmt.Sprint("of ", m["account_id"])
}

// chargeSession marks a session and its intent as paid.
func (s *Server) chargeSession(session, intent object) {
	session["payment_status"] = "paid"
	s.issueInvoice(session)
	s.markSucceeded(intent)
}

// markSucceeded marks an intent as paid, with a charge.
func (s *Server) markSucceeded(intent object) {
	intent["status"], intent["amount_received"] = "succeeded", intent["amount"]
	charge := object{
		"id":              newID("ch_"),
		"object":          "charge",
		"amount":          intent["amount"],
		"amount_refunded": int64(0),
		"currency":        intent["currency"],
		"livemode":        false,
		"refunded":        false,
		"disputed":        false,
		"paid":            true,
		"status":          "succeeded",
		"payment_intent":  intent["id"],
		"metadata":        object{},
		"created":         s.o.Now().Unix(),
		"payment_method_details": object{
			"type": "card",
			"card": object{"brand": "visa", "fingerprint": intent["fingerprint"]},
		},
	}
	if intent["customer"] != nil {
		charge["customer"] = intent["customer"]
	}
	intent["latest_charge"], s.charges = charge, append(s.charges, charge)
}

// clearPayment ends an asynchronous payment: paid, or failed.
func (s *Server) clearPayment(session, intent object, paid bool) {
	if paid {
		s.chargeSession(session, intent)
		s.appendEvent("checkout.session.async_payment_succeeded", session)
		return
	}
	intent["status"] = "requires_payment_method"
	s.appendEvent("checkout.session.async_payment_failed", session)
}

// reverseCharge refunds a charge, disputes it, or ends a dispute of it.
func (s *Server) reverseCharge(intent, charge object, do string, with url.Values) error {
	amount, _ := charge["amount"].(int64)
	refunded, _ := charge["amount_refunded"].(int64)
	cents := amount - refunded
	if v := with.Get("cents"); v != "" {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return err
		}
		cents = n
	}
	switch do {
	case "refund":
		s.addRefund(intent, charge, cents, object{})
	case "dispute":
		d := object{
			"id":             newID("du_"),
			"object":         "dispute",
			"amount":         cents,
			"currency":       charge["currency"],
			"livemode":       false,
			"status":         "needs_response",
			"reason":         "fraudulent",
			"charge":         charge["id"],
			"payment_intent": intent["id"],
			"created":        s.o.Now().Unix(),
		}
		charge["disputed"] = true
		s.disputes = append(s.disputes, d)
		s.appendEvent("charge.dispute.created", d)
	default:
		for _, d := range s.disputes {
			if d["payment_intent"] == intent["id"] && d["status"] == "needs_response" && (with.Get("id") == "" ||
				with.Get("id") == d["id"]) {
				d["status"] = do
				s.appendEvent("charge.dispute.closed", d)
				return nil
			}
		}
		return fmt.Errorf("no open dispute of %v", intent["id"])
	}
	return nil
}

// tamperWith changes members of a session or an intent.
func tamperWith(session object, with url.Values) {
	for name := range with {
		switch name {
		case "amount_total", "amount":
			n, _ := strconv.ParseInt(with.Get(name), 10, 64)
			session[name] = n
		case "livemode":
			session[name] = with.Get(name) == "true"
		case "currency", "client_reference_id", "customer":
			session[name] = with.Get(name)
		case "topup_id", "account_id":
			session["metadata"].(object)[name] = with.Get(name)
		}
	}
}
