package emulator

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// StripeVersion is the version of Stripe's API that the emulator speaks.
const StripeVersion = "2026-03-25.dahlia"

// StripeOptions say how a Stripe is reached and whom it tells.
type StripeOptions struct {
	Key           string // the only one that it takes
	WebhookSecret string
	WebhookURL    string           // where its events go; "" = nowhere, they wait in Events
	Now           func() time.Time // nil = time.Now
}

// Stripe is a server of the parts of Stripe that Purser uses: Checkout sessions,
// payment intents, charges, refunds, disputes and signed events. It remembers what
// it was told, as Stripe does. Its Checkout page works by a click: pay, pay later,
// fail or cancel.
//
// POST /steer with session=cs_… and do=… makes happen what only the world can:
//
//	pay          the card is charged
//	later        an asynchronous method is chosen; clear and bounce are its ends
//	expire       nobody paid in time
//	refund       cents=n goes back, all if it is missing
//	dispute      the bank disputes the charge (id=… names one of several)
//	won, lost    a dispute ends
//	tamper       member=value changes the session, as if Stripe had it wrong: amount_total, currency, client_reference_id, livemode
//	resend       every event is sent again, under its id; anew: under other ids
//	reverse      every event is sent again, the last first
//	forget       every idempotency key is too old to be known
//	lose=n       the next n answers of the API are lost after they are made
//	down=n       the next n requests to the API are lost before they do anything
//
// A session that saves a card keeps one that works unless card=… says another
// behaviour (Cards). Automatic payments with it are made as their card behaves; what
// is said of a session above can be said of such a payment, pi_…, too.
//
//	card         the card pm_… behaves as card=… from now on
type Stripe struct {
	o   StripeOptions
	mux *http.ServeMux

	mu       sync.Mutex
	sessions map[string]object
	intents  map[string]object
	disputes []object
	cards    map[string]*savedCard
	answers  map[string]stripeAnswer // by idempotency key
	events   []object
	lose     int
	down     int
}

// object is one of Stripe's, as its API shows it.
type object = map[string]any

type stripeAnswer struct{ form, id string }

// NewStripe makes one without any sessions.
func NewStripe(o StripeOptions) *Stripe {
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Stripe{o: o, mux: http.NewServeMux(), sessions: map[string]object{}, intents: map[string]object{}, cards: map[string]*savedCard{}, answers: map[string]stripeAnswer{}}
	s.mux.HandleFunc("POST /v1/checkout/sessions", s.api(s.create))
	s.mux.HandleFunc("GET /v1/checkout/sessions/{id}", s.api(s.retrieve))
	s.mux.HandleFunc("GET /v1/checkout/sessions", s.api(s.listSessions))
	s.mux.HandleFunc("GET /v1/disputes", s.api(s.listDisputes))
	s.mux.HandleFunc("POST /v1/customers", s.api(s.createCustomer))
	s.mux.HandleFunc("POST /v1/payment_intents", s.api(s.createIntent))
	s.mux.HandleFunc("GET /v1/payment_intents", s.api(s.listIntents))
	s.mux.HandleFunc("GET /v1/payment_intents/{id}", s.api(s.retrieveIntent))
	s.mux.HandleFunc("POST /v1/payment_intents/{id}/cancel", s.api(s.cancelIntent))
	s.mux.HandleFunc("POST /v1/payment_methods/{id}/detach", s.api(s.detach))
	s.mux.HandleFunc("GET /pay/{id}", s.page)
	s.mux.HandleFunc("POST /pay/{id}", s.click)
	s.mux.HandleFunc("POST /steer", s.steer)
	return s
}

// ServeHTTP implements http.Handler.
func (s *Stripe) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Events returns what happened, as Stripe would tell it, oldest first.
func (s *Stripe) Events() (list [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		list = append(list, marshal(e))
	}
	return list
}

// Sign returns the header Stripe-Signature of an event.
func (s *Stripe) Sign(body []byte) string { return SignStripe(s.o.WebhookSecret, s.o.Now(), body) }

// SignStripe signs an event as Stripe does.
func SignStripe(secret string, at time.Time, body []byte) string {
	t := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(t + "."))
	mac.Write(body)
	return "t=" + t + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}

// stripeError is an answer of the API that is none.
type stripeError struct {
	status              int
	kind, code, message string
	intent              object // that was made all the same
}

// api checks the key, runs f and writes its answer, or loses it.
func (s *Stripe) api(f func(*http.Request) (object, *stripeError)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.down > 0 {
			s.down--
			panic(http.ErrAbortHandler)
		}
		answer, failed := object(nil), &stripeError{status: http.StatusUnauthorized, kind: "invalid_request_error", message: "Invalid API Key provided."}
		if r.Header.Get("Authorization") == "Bearer "+s.o.Key {
			answer, failed = f(r)
		}
		if s.lose > 0 {
			s.lose--
			panic(http.ErrAbortHandler)
		}
		status := http.StatusOK
		if failed != nil {
			told := object{"type": failed.kind, "code": failed.code, "message": failed.message}
			if failed.intent != nil {
				told["payment_intent"] = failed.intent
			}
			status, answer = failed.status, object{"error": told}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write(marshal(answer)) // whoever asked may have gone
	}
}

func (s *Stripe) create(r *http.Request) (object, *stripeError) {
	old, f, failed := s.known(r)
	if failed != nil || old != "" {
		return s.sessions[old], failed
	}
	cents, err := strconv.ParseInt(f.Get("line_items[0][price_data][unit_amount]"), 10, 64)
	quantity, err2 := strconv.ParseInt(f.Get("line_items[0][quantity]"), 10, 64)
	switch {
	case f.Get("mode") != "payment":
		return nil, bad("Invalid mode.")
	case err != nil || err2 != nil || cents*quantity < 50:
		return nil, bad("The Checkout Session's total amount due must add up to at least $0.50 usd.")
	case f.Get("success_url") == "" || f.Get("line_items[0][price_data][currency]") == "" || f.Get("line_items[0][price_data][product_data][name]") == "":
		return nil, bad("Missing required param.")
	}
	id := name("cs_test_")
	session := object{
		"id": id, "object": "checkout.session", "mode": "payment", "livemode": false, "created": s.o.Now().Unix(), "expires_at": s.o.Now().Add(24 * time.Hour).Unix(),
		"amount_total": cents * quantity, "currency": f.Get("line_items[0][price_data][currency]"), "status": "open", "payment_status": "unpaid", "payment_intent": nil,
		"client_reference_id": f.Get("client_reference_id"), "metadata": metadata(f), "success_url": f.Get("success_url"), "cancel_url": f.Get("cancel_url"), "url": "http://" + r.Host + "/pay/" + id,
	}
	if customer := f.Get("customer"); customer != "" {
		session["customer"] = customer
	}
	session["setup_future_usage"] = f.Get("payment_intent_data[setup_future_usage]") // the real one tells it of the payment only
	s.sessions[id] = session
	s.remember(r, id)
	return session, nil
}

func bad(message string) *stripeError {
	return &stripeError{status: http.StatusBadRequest, kind: "invalid_request_error", code: "parameter_invalid", message: message}
}

func noSuch(what string) *stripeError {
	return &stripeError{status: http.StatusNotFound, kind: "invalid_request_error", code: "resource_missing", message: "No such " + what}
}

// known reads a form, and what was made for its idempotency key before, or "".
func (s *Stripe) known(r *http.Request) (id string, f url.Values, failed *stripeError) {
	if err := r.ParseForm(); err != nil {
		return "", nil, bad(err.Error())
	}
	old, ok := s.answers[r.Header.Get("Idempotency-Key")]
	if ok && old.form != r.PostForm.Encode() {
		return "", nil, &stripeError{status: http.StatusBadRequest, kind: "idempotency_error", message: "Keys for idempotent requests can only be used with the same parameters they were first used with."}
	}
	return old.id, r.PostForm, nil
}

// remember keeps what was made for an idempotency key.
func (s *Stripe) remember(r *http.Request, id string) {
	if key := r.Header.Get("Idempotency-Key"); key != "" {
		s.answers[key] = stripeAnswer{r.PostForm.Encode(), id}
	}
}

func metadata(f url.Values) object {
	m := object{}
	for name, values := range f {
		if rest, ok := strings.CutPrefix(name, "metadata["); ok {
			m[strings.TrimSuffix(rest, "]")] = values[0]
		}
	}
	return m
}

// expanded are the parts that a request asks for in full.
func expanded(r *http.Request) (list []string) {
	for name, values := range r.URL.Query() {
		if strings.HasPrefix(name, "expand[") {
			list = append(list, values...)
		}
	}
	return list
}

func (s *Stripe) retrieve(r *http.Request) (object, *stripeError) {
	session, ok := s.sessions[r.PathValue("id")]
	if !ok {
		return nil, noSuch("checkout.session")
	}
	session = maps.Clone(session)
	expand := expanded(r)
	if id, ok := session["payment_intent"].(string); ok && slices.ContainsFunc(expand, func(e string) bool { return strings.HasPrefix(e, "payment_intent") }) {
		session["payment_intent"] = s.shown(id, slices.Contains(expand, "payment_intent.latest_charge"), slices.Contains(expand, "payment_intent.payment_method"))
	}
	return session, nil
}

// shown is an intent with some parts in full.
func (s *Stripe) shown(id string, charge, method bool) object {
	intent := maps.Clone(s.intents[id])
	if c, ok := intent["latest_charge"].(object); ok && !charge {
		intent["latest_charge"] = c["id"]
	}
	if m, ok := intent["payment_method"].(string); ok && method && s.cards[m] != nil {
		intent["payment_method"] = s.cards[m].object(m)
	}
	return intent
}

func (s *Stripe) listSessions(r *http.Request) (object, *stripeError) {
	list := []object{}
	for _, session := range s.sessions {
		if session["payment_intent"] == r.URL.Query().Get("payment_intent") {
			list = append(list, session)
		}
	}
	return object{"object": "list", "data": list, "has_more": false, "url": "/v1/checkout/sessions"}, nil
}

func (s *Stripe) listDisputes(r *http.Request) (object, *stripeError) {
	list := []object{}
	for _, d := range s.disputes {
		if d["payment_intent"] == r.URL.Query().Get("payment_intent") {
			list = append(list, d)
		}
	}
	return object{"object": "list", "data": list, "has_more": false, "url": "/v1/disputes"}, nil
}

var payPage = template.Must(template.New("pay").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark"><link rel="icon" href="data:,"><title>Emulated checkout</title>
<style>body{font:16px/1.5 sans-serif;max-width:26rem;margin:3rem auto;padding:0 1rem}button{font:inherit;display:block;width:100%;padding:.7rem;margin:.6rem 0;border-radius:.5rem;border:1px solid #888;cursor:pointer}label{display:block;padding:.25rem 0}fieldset{border:1px solid #888;border-radius:.5rem}button.pay{background:#1a5cff;color:#fff;border-color:#1a5cff}small{opacity:.75}</style></head>
<body><h1>Emulated checkout</h1><p>This page stands in for Stripe’s. No money moves and no card is asked for.</p>
<p>Purser top-up: <strong>{{.Amount}}</strong></p>
{{if .Open}}<form method="post">
{{if .Save}}<fieldset><legend>Card to save</legend>{{range .Cards}}<label><input type="radio" name="card" value="{{.ID}}"{{if eq .ID "works"}} checked{{end}}> {{.Text}}</label>{{end}}</fieldset>
<p>By paying you allow Purser to charge this card in future, as you set it up there.</p>{{end}}
<button class="pay" name="do" value="pay">Pay {{.Amount}}</button>
{{if not .Save}}<button name="do" value="later">Pay by bank debit, which takes days</button>{{end}}
<button name="do" value="fail">Let the card be declined</button>
<button name="do" value="cancel">Cancel and go back</button></form>{{if .Declined}}<p role="alert"><strong>The card was declined.</strong> Try again, or go back.</p>{{end}}
{{else}}<p>This session is over. <a href="{{.Back}}">Back to the shop</a></p>{{end}}
<p><small>{{.ID}}</small></p></body></html>
`))

func (s *Stripe) page(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	session, ok := s.sessions[r.PathValue("id")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	cents, _ := session["amount_total"].(int64)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = payPage.Execute(w, map[string]any{ // whoever asked may have gone
		"ID": session["id"], "Amount": fmt.Sprintf("$%d.%02d", cents/100, cents%100), "Open": session["status"] == "open", "Save": session["setup_future_usage"] == "off_session", "Cards": cardChoices, "Back": session["success_url"], "Declined": r.URL.Query().Has("declined"),
	})
}

// click is a button of the page.
func (s *Stripe) click(w http.ResponseWriter, r *http.Request) {
	id, do := r.PathValue("id"), r.FormValue("do")
	s.mu.Lock()
	session, ok := s.sessions[id]
	s.mu.Unlock()
	if !ok {
		http.NotFound(w, r)
		return
	}
	next, _ := session["success_url"].(string)
	switch do {
	case "fail":
		next = "/pay/" + id + "?declined"
	case "cancel":
		next, _ = session["cancel_url"].(string)
	default:
		if err := s.Do(id, do, r.PostForm); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	http.Redirect(w, r, next, http.StatusSeeOther)
}

func (s *Stripe) steer(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	} else if err := s.Do(r.PostForm.Get("session"), r.PostForm.Get("do"), r.PostForm); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

// Do makes something happen to a session: the words of POST /steer.
func (s *Stripe) Do(sessionID, do string, with url.Values) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch do {
	case "lose":
		n, err := strconv.Atoi(with.Get("lose"))
		s.lose = n
		return err
	case "down":
		n, err := strconv.Atoi(with.Get("down"))
		s.down = n
		return err
	case "forget":
		clear(s.answers)
		return nil
	case "resend", "anew", "reverse":
		s.again(do)
		return nil
	}
	session, ok := s.sessions[sessionID]
	if !ok && strings.HasPrefix(sessionID, "pm_") {
		return s.behave(sessionID, with.Get("card"))
	} else if !ok {
		return s.doIntent(sessionID, do, with)
	}
	intent := s.intents[fmt.Sprint(session["payment_intent"])]
	switch do {
	case "pay", "later", "expire":
		if session["status"] != "open" {
			return fmt.Errorf("session %s is %v", sessionID, session["status"])
		}
		s.finish(session, do, with.Get("card"))
	case "clear", "bounce":
		if intent == nil || intent["status"] != "processing" {
			return fmt.Errorf("session %s waits for nothing", sessionID)
		}
		s.clear(session, intent, do == "clear")
	case "tamper":
		tamper(session, with)
	case "refund", "dispute", "won", "lost":
		charge, ok := intent["latest_charge"].(object)
		if !ok {
			return fmt.Errorf("session %s has no charge", sessionID)
		}
		return s.takeBack(intent, charge, do, with)
	default:
		return fmt.Errorf("cannot %q", do)
	}
	return nil
}

// finish ends the Checkout page: paid, to be paid by a slow method, or too late.
func (s *Stripe) finish(session object, do, card string) {
	if do == "expire" {
		session["status"], session["url"] = "expired", nil
		s.tell("checkout.session.expired", session)
		return
	}
	id := name("pi_")
	intent := object{
		"id": id, "object": "payment_intent", "amount": session["amount_total"], "amount_received": 0, "currency": session["currency"], "livemode": false,
		"status": "processing", "latest_charge": nil, "metadata": session["metadata"],
	}
	if session["setup_future_usage"] == "off_session" {
		intent["customer"], intent["payment_method"] = session["customer"], s.keep(session["customer"], card)
	}
	s.intents[id] = intent
	session["status"], session["payment_intent"], session["url"] = "complete", id, nil
	if do == "pay" {
		s.charge(session, intent)
		s.tell("payment_intent.succeeded", intent)
	} else {
		s.tell("payment_intent.processing", intent)
	}
	s.tell("checkout.session.completed", session)
}

func (s *Stripe) charge(session, intent object) {
	session["payment_status"] = "paid"
	succeed(intent)
}

func succeed(intent object) {
	intent["status"], intent["amount_received"] = "succeeded", intent["amount"]
	intent["latest_charge"] = object{
		"id": name("ch_"), "object": "charge", "amount": intent["amount"], "amount_refunded": int64(0), "currency": intent["currency"], "livemode": false,
		"refunded": false, "disputed": false, "paid": true, "status": "succeeded", "payment_intent": intent["id"], "metadata": object{},
	}
}

// clear ends a slow payment.
func (s *Stripe) clear(session, intent object, paid bool) {
	if paid {
		s.charge(session, intent)
		s.tell("checkout.session.async_payment_succeeded", session)
		return
	}
	intent["status"] = "requires_payment_method"
	s.tell("checkout.session.async_payment_failed", session)
}

func (s *Stripe) takeBack(intent, charge object, do string, with url.Values) error {
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
		charge["amount_refunded"], charge["refunded"] = refunded+cents, refunded+cents == amount
		s.tell("charge.refunded", charge)
	case "dispute":
		d := object{
			"id": name("du_"), "object": "dispute", "amount": cents, "currency": charge["currency"], "livemode": false, "status": "needs_response", "reason": "fraudulent",
			"charge": charge["id"], "payment_intent": intent["id"],
		}
		charge["disputed"] = true
		s.disputes = append(s.disputes, d)
		s.tell("charge.dispute.created", d)
	default:
		for _, d := range s.disputes {
			if d["payment_intent"] == intent["id"] && d["status"] == "needs_response" && (with.Get("id") == "" || with.Get("id") == d["id"]) {
				d["status"] = do
				s.tell("charge.dispute.closed", d)
				return nil
			}
		}
		return fmt.Errorf("no open dispute of %v", intent["id"])
	}
	return nil
}

func tamper(session object, with url.Values) {
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

// tell appends an event, and sends it if somebody listens.
func (s *Stripe) tell(kind string, about object) {
	var copied object
	if err := json.Unmarshal(marshal(about), &copied); err != nil {
		panic(err) // it was JSON a moment ago
	}
	e := object{
		"id": name("evt_"), "object": "event", "type": kind, "created": s.o.Now().Unix(), "livemode": about["livemode"], "api_version": StripeVersion,
		"pending_webhooks": 1, "data": object{"object": copied},
	}
	s.events = append(s.events, e)
	s.send(e)
}

func (s *Stripe) again(how string) {
	list := slices.Clone(s.events)
	if how == "reverse" {
		slices.Reverse(list)
	}
	for _, e := range list {
		if how == "anew" {
			e = maps.Clone(e)
			e["id"] = name("evt_")
		}
		s.send(e)
	}
}

// send delivers an event, in the background, and tries a few times.
func (s *Stripe) send(e object) {
	if s.o.WebhookURL == "" {
		return
	}
	body := marshal(e)
	go func() {
		for wait := 100 * time.Millisecond; wait < time.Minute; wait *= 3 {
			r, err := http.NewRequest(http.MethodPost, s.o.WebhookURL, bytes.NewReader(body))
			if err != nil {
				return
			}
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Stripe-Signature", s.Sign(body))
			if a, err := http.DefaultClient.Do(r); err == nil {
				_ = a.Body.Close()
				if a.StatusCode < 300 {
					return
				}
			}
			time.Sleep(wait)
		}
	}()
}

// name makes an identifier of Stripe's form.
func name(prefix string) string {
	var b [12]byte
	rand.Read(b[:])
	return prefix + hex.EncodeToString(b[:])
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("emulator: " + err.Error()) // maps of text, numbers and truths are always JSON
	}
	return b
}
