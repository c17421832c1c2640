// Package stripe emulates Stripe, as far as Purser uses it, over HTTP. It shares no code with
// the client that it tests. See Server for its steering.
package stripe

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Version is the version of Stripe's API that the emulator speaks.
const Version = "2026-03-25.dahlia"

// Options say how the emulator is reached and where it sends events.
type Options struct {
	Key           string // the only one that it takes
	Account       string // that the key is of, acct_…; "" = acct_emulated
	WebhookSecret string
	WebhookURL    string           // where its events go; "" = nowhere, they wait in Events
	Now           func() time.Time // nil = time.Now
}

// Server emulates the parts of Stripe that Purser uses: Checkout sessions, payment intents,
// charges, refunds, disputes, invoices, Stripe Tax at 20 % and signed events. It keeps
// everything in memory. Its Checkout page works by a click: pay, pay later, fail or cancel.
// It is safe for concurrent use.
//
// POST /steer with session=cs_… and do=… makes happen what happens outside of the API:
//
//	pay          the card is charged; tax_id=… is the customer's; fingerprint=… is the card's: without it each account
//	             has a card of its own
//	later        an asynchronous method is chosen; it ends with clear or bounce
//	expire       the session expires unpaid
//	refund       cents=n are refunded, all if it is missing
//	dispute      the bank disputes the charge (id=… names one of several disputes)
//	won, lost    a dispute ends
//	tamper       member=value changes the session, as if Stripe had it wrong: amount_total,
//	             currency, client_reference_id, livemode
//	resend       every event is sent again, under its id; anew: under other ids
//	reverse      every event is sent again, the last first
//	forget       every idempotency key has expired
//	refunds      status=pending, succeeded or failed is that of refunds from now on, and of those that are pending;
//	             all=1: of all that there are; new=1: of those from now on alone; reason=… says why they are pending
//	lose=n       the next n answers of the API are lost after the request was carried out; method=…: to such requests
//	answer       the next times=n requests (1) of method=… below path=… are answered with an error of status=…,
//	             type=…, code=…, param=…, message=…; with after=1 after they were carried out. An error of 500 or
//	             more, or with stored=1, is repeated for the idempotency key. Without a status, none is planned
//	permissions  the key has these permissions, may=rak_charge_write,…; all if it is missing
//	vanish       session= names a customer, card or account that is deleted
//	down=n       the next n requests to the API are lost before anything is done
//
// A session that saves a card saves one that works, unless card=… names another behavior
// (Cards). An automatic payment succeeds or fails as its card behaves. The words for
// sessions work for such a payment, pi_…, too.
//
//	card         the card pm_… behaves as card=… from now on, also as unasked, confirm or processing: then no bank is
//	             asked
//	transfers    status=balance or refuse lets transfers fail from now on, status= lets them work again, and
//	             status=reversed takes back those that there are; id=tr_…: only that one
//
// A connected account, acct_…, is what Connect pays. Its onboarding page works by a click, as these words do:
//
//	enable       it can be paid
//	submit       its owner has answered, and Stripe checks the answers
//	restrict     it can no longer be paid
//
// The word for one refund, re_…, is the status that it gets: succeeded, failed or canceled; for one dispute, du_…: won,
// lost or warning_closed.
type Server struct {
	o   Options
	mux *http.ServeMux

	mu           sync.Mutex
	sessions     map[string]object
	intents      map[string]object
	intentIDs    []string // oldest first
	charges      []object
	disputes     []object
	refunds      []object
	refundStatus string // of refunds; "" = succeeded
	// pendingReason is why refunds are pending; "" = the bank takes its time
	pendingReason string
	invoices      map[string]object
	customers     map[string]bool
	cards         map[string]*savedCard
	answers       map[string]storedAnswer // by idempotency key
	planned       []*plannedAnswer
	permissions   []string // of the key; nil = all
	events        []object
	lostAnswers   int
	lostMethod    string // of the requests whose answers are lost; "" = of all
	lostRequests  int

	connected     map[string]*connectedAccount
	transfers     []object
	transfersFail string // how new transfers fail: balance or refuse; "" = they don't
}

// New returns a server without sessions.
func New(o Options) *Server {
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{
		o:         o,
		mux:       http.NewServeMux(),
		sessions:  map[string]object{},
		intents:   map[string]object{},
		invoices:  map[string]object{},
		customers: map[string]bool{},
		cards:     map[string]*savedCard{},
		connected: map[string]*connectedAccount{},
		answers:   map[string]storedAnswer{},
	}
	s.mux.HandleFunc("POST /v1/checkout/sessions", s.serveAPI(s.createSession))
	s.mux.HandleFunc("GET /v1/checkout/sessions/{id}", s.serveAPI(s.retrieveSession))
	s.mux.HandleFunc("GET /v1/checkout/sessions", s.serveAPI(s.listSessions))
	s.mux.HandleFunc("POST /v1/checkout/sessions/{id}/expire", s.serveAPI(s.expireSession))
	s.mux.HandleFunc("POST /v1/refunds", s.serveAPI(s.createRefund))
	s.mux.HandleFunc("GET /v1/refunds", s.serveAPI(s.listRefunds))
	s.mux.HandleFunc("GET /v1/charges", s.serveAPI(s.listCharges))
	s.mux.HandleFunc("GET /v1/disputes", s.serveAPI(s.listDisputes))
	s.mux.HandleFunc("POST /v1/customers", s.serveAPI(s.createCustomer))
	s.mux.HandleFunc("DELETE /v1/customers/{id}", s.serveAPI(s.deleteCustomer))
	s.mux.HandleFunc("POST /v1/payment_intents", s.serveAPI(s.createIntent))
	s.mux.HandleFunc("GET /v1/payment_intents", s.serveAPI(s.listIntents))
	s.mux.HandleFunc("GET /v1/payment_intents/{id}", s.serveAPI(s.retrieveIntent))
	s.mux.HandleFunc("POST /v1/payment_intents/{id}/cancel", s.serveAPI(s.cancelIntent))
	s.mux.HandleFunc("GET /v1/payment_methods/{id}", s.serveAPI(s.retrieveMethod))
	s.mux.HandleFunc("POST /v1/payment_methods/{id}/detach", s.serveAPI(s.detachMethod))
	s.mux.HandleFunc("GET /v1/account", s.serveAPI(s.retrieveOwnAccount))
	s.mux.HandleFunc("POST /v1/accounts", s.serveAPI(s.createAccount))
	s.mux.HandleFunc("GET /v1/accounts/{id}", s.serveAPI(s.retrieveAccount))
	s.mux.HandleFunc("POST /v1/account_links", s.serveAPI(s.createAccountLink))
	s.mux.HandleFunc("POST /v1/transfers", s.serveAPI(s.createTransfer))
	s.mux.HandleFunc("GET /v1/transfers", s.serveAPI(s.listTransfers))
	for _, path := range []string{"customers", "refunds", "accounts", "transfers"} {
		s.mux.HandleFunc("POST /v1/"+path+"/{id}", s.serveAPI(s.updateNothing))
	}
	s.mux.HandleFunc("GET /connect/{id}", s.showOnboarding)
	s.mux.HandleFunc("POST /connect/{id}", s.clickOnboarding)
	s.mux.HandleFunc("GET /invoice/{id}", s.showInvoice)
	s.mux.HandleFunc("GET /pay/{id}", s.showPage)
	s.mux.HandleFunc("POST /pay/{id}", s.clickButton)
	s.mux.HandleFunc("POST /steer", s.postSteering)
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Events returns all events that happened, as Stripe sends them, oldest first.
func (s *Server) Events() (list [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		list = append(list, encodeJSON(e))
	}
	return list
}

// Sign returns the header Stripe-Signature of an event that is sent now.
func (s *Server) Sign(body []byte) string { return Sign(s.o.WebhookSecret, time.Now(), body) }

// Sign signs an event as Stripe does: HMAC-SHA256 of the time and the body.
func Sign(secret string, at time.Time, body []byte) string {
	t := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(t + "."))
	mac.Write(body)
	return "t=" + t + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}

// appendEvent records an event, and sends it to Options.WebhookURL.
func (s *Server) appendEvent(kind string, about object) {
	var copied object
	if err := json.Unmarshal(encodeJSON(about), &copied); err != nil {
		panic(err) // it was JSON a moment ago
	}
	e := object{
		"id":               newID("evt_"),
		"object":           "event",
		"type":             kind,
		"created":          s.o.Now().Unix(),
		"livemode":         about["livemode"],
		"api_version":      Version,
		"pending_webhooks": 1,
		"data":             object{"object": copied},
	}
	s.events = append(s.events, e)
	s.sendEvent(e)
}

// resendEvents sends every event again: under its id ("resend"), under another ("anew"), or
// in the opposite order ("reverse").
func (s *Server) resendEvents(how string) {
	list := slices.Clone(s.events)
	if how == "reverse" {
		slices.Reverse(list)
	}
	for _, e := range list {
		if how == "anew" {
			e = maps.Clone(e)
			e["id"] = newID("evt_")
		}
		s.sendEvent(e)
	}
}

// sendEvent delivers an event in the background, with a few tries.
func (s *Server) sendEvent(e object) {
	if s.o.WebhookURL == "" {
		return
	}
	body := encodeJSON(e)
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

// newID makes an identifier of Stripe's form.
func newID(prefix string) string {
	var b [12]byte
	rand.Read(b[:])
	return prefix + hex.EncodeToString(b[:])
}

// encodeJSON encodes maps of texts, numbers and booleans, which cannot fail.
func encodeJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("emulator: " + err.Error()) // maps of text, numbers and truths are always JSON
	}
	return b
}

// object is an object of Stripe, as its API shows it.
type object = map[string]any
