package stripe

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An apiError is an error that the API answers with.
type apiError struct {
	status              int
	kind, code, message string
	param               string
	intent              object // that was made all the same
}

// serveAPI returns a handler that checks the key, calls f and writes its answer, or loses
// the request or the answer by the script.
// It holds the lock while f runs.
func (s *Server) serveAPI(f func(*http.Request) (object, *apiError)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.lostRequests > 0 {
			s.lostRequests--
			panic(http.ErrAbortHandler)
		}
		answer, failed := object(nil), &apiError{
			status:  http.StatusUnauthorized,
			kind:    "invalid_request_error",
			message: "Invalid API Key provided.",
		}
		if r.Header.Get("Authorization") == "Bearer "+s.o.Key {
			answer, failed = f(r)
		}
		if s.lostAnswers > 0 && (s.lostMethod == "" || s.lostMethod == r.Method) {
			s.lostAnswers--
			panic(http.ErrAbortHandler)
		}
		status := http.StatusOK
		if failed != nil {
			failure := object{"type": failed.kind, "message": failed.message}
			if failed.code != "" {
				failure["code"] = failed.code
			}
			if failed.param != "" {
				failure["param"] = failed.param
			}
			if failed.intent != nil {
				failure["payment_intent"] = failed.intent
			}
			status, answer = failed.status, object{"error": failure}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write(encodeJSON(answer)) // the client may have disconnected
	}
}

// createSession serves POST /v1/checkout/sessions.
func (s *Server) createSession(r *http.Request) (object, *apiError) {
	old, f, failed := s.readForm(r)
	if failed != nil || old != "" {
		return s.sessions[old], failed
	}
	cents, err := strconv.ParseInt(f.Get("line_items[0][price_data][unit_amount]"), 10, 64)
	quantity, err2 := strconv.ParseInt(f.Get("line_items[0][quantity]"), 10, 64)
	switch {
	case f.Get("mode") != "payment":
		return nil, badRequest("Invalid mode.")
	case err != nil || err2 != nil || cents*quantity < 50:
		return nil, badRequest("The Checkout Session's total amount due must add up to at least $0.50 usd.")
	case f.Get("success_url") == "" || f.Get("line_items[0][price_data][currency]") == "" ||
		f.Get("line_items[0][price_data][product_data][name]") == "":
		return nil, badRequest("Missing required param.")
	}
	if failed := checkTax(f); failed != nil {
		return nil, failed
	}
	id := newID("cs_test_")
	session := object{
		"id":                  id,
		"object":              "checkout.session",
		"mode":                "payment",
		"livemode":            false,
		"created":             s.o.Now().Unix(),
		"expires_at":          s.o.Now().Add(24 * time.Hour).Unix(),
		"amount_total":        cents * quantity,
		"currency":            f.Get("line_items[0][price_data][currency]"),
		"status":              "open",
		"payment_status":      "unpaid",
		"payment_intent":      nil,
		"client_reference_id": f.Get("client_reference_id"),
		"metadata":            readMetadata(f),
		"success_url":         f.Get("success_url"),
		"cancel_url":          f.Get("cancel_url"),
		"url":                 "http://" + r.Host + "/pay/" + id,
	}
	if customer := f.Get("customer"); customer != "" && !s.customers[customer] {
		return nil, missingParam("customer", customer)
	} else if customer != "" {
		session["customer"] = customer
	}
	// the real one tells it of the payment only
	session["setup_future_usage"] = f.Get("payment_intent_data[setup_future_usage]")
	addTax(session, f, cents*quantity)
	s.sessions[id] = session
	s.storeAnswer(r, id)
	return session, nil
}

// badRequest is a 400 about a parameter.
func badRequest(message string) *apiError {
	return &apiError{
		status:  http.StatusBadRequest,
		kind:    "invalid_request_error",
		message: message,
	}
}

// missingParam is the 400 for a parameter that names an object that does not exist.
func missingParam(name, id string) *apiError {
	return &apiError{
		status:  http.StatusBadRequest,
		kind:    "invalid_request_error",
		code:    "resource_missing",
		param:   name,
		message: "No such " + name + ": '" + id + "'",
	}
}

// notFound is the 404 for an object that does not exist.
func notFound(what string) *apiError {
	return &apiError{
		status:  http.StatusNotFound,
		kind:    "invalid_request_error",
		code:    "resource_missing",
		message: "No such " + what,
	}
}

// readForm reads a form, and returns the id of what was made for its idempotency key
// before, or "".
func (s *Server) readForm(r *http.Request) (id string, f url.Values, failed *apiError) {
	if err := r.ParseForm(); err != nil {
		return "", nil, badRequest(err.Error())
	}
	old, ok := s.answers[r.Header.Get("Idempotency-Key")]
	if ok && old.form != r.PostForm.Encode() {
		return "", nil, &apiError{
			status: http.StatusBadRequest,
			kind:   "idempotency_error",
			message: "Keys for idempotent requests can only be used with the same parameters they were first used " +
				"with.",
		}
	}
	return old.id, r.PostForm, nil
}

// storeAnswer stores the id of what was made for an idempotency key.
func (s *Server) storeAnswer(r *http.Request, id string) {
	if key := r.Header.Get("Idempotency-Key"); key != "" {
		s.answers[key] = storedAnswer{r.PostForm.Encode(), id}
	}
}

// A storedAnswer is what an idempotency key made: the form that was sent, and the id.
type storedAnswer struct{ form, id string }

// readMetadata reads the parameters metadata[…].
func readMetadata(f url.Values) object {
	m := object{}
	for name, values := range f {
		if rest, ok := strings.CutPrefix(name, "metadata["); ok {
			m[strings.TrimSuffix(rest, "]")] = values[0]
		}
	}
	return m
}

// expandedParts are the parts that a request asks for in full.
func expandedParts(r *http.Request) (list []string) {
	for name, values := range r.URL.Query() {
		if strings.HasPrefix(name, "expand[") {
			list = append(list, values...)
		}
	}
	return list
}

// retrieveSession serves GET /v1/checkout/sessions/{id}.
func (s *Server) retrieveSession(r *http.Request) (object, *apiError) {
	session, ok := s.sessions[r.PathValue("id")]
	if !ok {
		return nil, notFound("checkout.session")
	}
	session = maps.Clone(session)
	expand := expandedParts(r)
	if id, ok := session["payment_intent"].(string); ok &&
		slices.ContainsFunc(expand, func(e string) bool { return strings.HasPrefix(e, "payment_intent") }) {
		session["payment_intent"] = s.expandIntent(id, slices.Contains(expand, "payment_intent.latest_charge"),
			slices.Contains(expand, "payment_intent.payment_method"))
	}
	if id, ok := session["invoice"].(string); ok && slices.Contains(expand, "invoice") {
		invoice := maps.Clone(s.invoices[id])
		invoice["hosted_invoice_url"] = "http://" + r.Host + "/invoice/" + id
		session["invoice"] = invoice
	}
	return session, nil
}

// expandIntent returns an intent, with its latest charge and its payment method in full
// if they are asked for, else with their ids.
func (s *Server) expandIntent(id string, charge, method bool) object {
	intent := maps.Clone(s.intents[id])
	if c, ok := intent["latest_charge"].(object); ok && !charge {
		intent["latest_charge"] = c["id"]
	}
	if m, ok := intent["payment_method"].(string); ok && method && s.cards[m] != nil {
		intent["payment_method"] = s.cards[m].object(m)
	}
	return intent
}

// listSessions serves GET /v1/checkout/sessions, by payment intent.
func (s *Server) listSessions(r *http.Request) (object, *apiError) {
	list := []object{}
	for _, session := range s.sessions {
		if session["payment_intent"] == r.URL.Query().Get("payment_intent") {
			list = append(list, session)
		}
	}
	return object{"object": "list", "data": list, "has_more": false, "url": "/v1/checkout/sessions"}, nil
}
