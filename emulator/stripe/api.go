package stripe

import (
	"cmp"
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
	isStored            bool   // under the idempotency key: the request was carried out
	carriedOut          bool   // planned: it was carried out all the same
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
		status, body, isReplay := s.answerOnce(r, f)
		if s.lostAnswers > 0 && (s.lostMethod == "" || s.lostMethod == r.Method) {
			s.lostAnswers--
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "application/json")
		if isReplay {
			w.Header().Set("Idempotent-Replayed", "true")
		}
		w.WriteHeader(status)
		_, _ = w.Write(body) // the client may have disconnected
	}
}

// A storedAnswer is what an idempotency key was answered, and to which request.
type storedAnswer struct {
	request string
	status  int
	body    []byte
}

// answerOnce answers a request. As Stripe does, it repeats the stored answer to an earlier request with the same
// idempotency key, also an error of its own or of what it carried out, and refuses the key for another request.
// A request that was not carried out, because the key of the API or a parameter is wrong, is stored under no key.
func (s *Server) answerOnce(r *http.Request, f func(*http.Request) (object, *apiError)) (status int, body []byte,
	isReplay bool) {
	if r.Header.Get("Authorization") != "Bearer "+s.o.Key {
		return encodeAnswer(nil, &apiError{
			status:  http.StatusUnauthorized,
			kind:    "invalid_request_error",
			message: "Invalid API Key provided.",
		})
	}
	if failed := cmp.Or(s.findLack(r), findStrange(r)); failed != nil {
		return encodeAnswer(nil, failed)
	}
	key, request := "", ""
	if r.Method == http.MethodPost {
		key, request = r.Header.Get("Idempotency-Key"), r.URL.Path+"?"+r.PostForm.Encode()
	}
	if old, ok := s.answers[key]; ok && old.request != request {
		return encodeAnswer(nil, &apiError{
			status: http.StatusBadRequest,
			kind:   "idempotency_error",
			message: "Keys for idempotent requests can only be used with the same parameters they were first used " +
				"with.",
		})
	} else if ok {
		return old.status, old.body, true
	}
	answer, failed := object(nil), s.takePlanned(r)
	if failed == nil || failed.carriedOut {
		if planned := failed; planned != nil {
			_, _ = f(r) // the answer is the planned one
		} else {
			answer, failed = f(r)
		}
	}
	status, body, _ = encodeAnswer(answer, failed)
	if key != "" && (failed == nil || failed.isStored || status >= http.StatusInternalServerError) {
		s.answers[key] = storedAnswer{request, status, body}
	}
	return status, body, false
}

// encodeAnswer encodes an object or an error.
func encodeAnswer(answer object, failed *apiError) (status int, body []byte, isReplay bool) {
	if failed == nil {
		return http.StatusOK, encodeJSON(answer), false
	}
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
	return failed.status, encodeJSON(object{"error": failure}), false
}

// createSession serves POST /v1/checkout/sessions.
func (s *Server) createSession(r *http.Request) (object, *apiError) {
	f := r.PostForm
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
