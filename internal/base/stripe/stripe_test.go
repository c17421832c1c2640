package stripe

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A script answers requests one after another, and keeps what came.
type script struct {
	answers []func() (*http.Response, error)
	came    []*http.Request
	bodies  []string
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	s.came, s.bodies = append(s.came, r), append(s.bodies, string(body))
	return s.answers[min(len(s.came), len(s.answers))-1]()
}

// answers with a status and a body. header are names and values.
func answer(status int, body string, header ...string) func() (*http.Response, error) {
	return func() (*http.Response, error) {
		w := httptest.NewRecorder()
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = w.WriteString(body)
		return w.Result(), nil
	}
}

// keyOf returns the idempotency key of a request, which net/http must not know as one.
func keyOf(r *http.Request) string {
	key := ""
	for name, values := range r.Header {
		if name == keyHeader {
			key = values[0]
		}
	}
	return key
}

func cut() (*http.Response, error) { return nil, io.ErrUnexpectedEOF }

func newClient(retries int, answers ...func() (*http.Response, error)) (*Client, *script) {
	s := &script{answers: answers}
	c := &Client{Key: "sk_test_secret", BaseURL: "http://stripe", Retries: retries}
	c.HTTP = &http.Client{Transport: s}
	return c, s
}

// TestRequests shows what each kind of request sends.
func TestRequests(t *testing.T) {
	t.Parallel()
	expanded := Params{"metadata[topup_id]": "top 1&2"}
	expanded.Expand("payment_intent", "payment_intent.latest_charge")
	expanded.SetMetadata("payment_intent_data", map[string]string{"a": "b"})
	for _, c := range []struct {
		send               func(context.Context, *Client) error
		method, path, form string
		key                string // "" = none; "*" = one of its own
	}{
		{func(ctx context.Context, c *Client) error {
			_, err := Create[CheckoutSession](ctx, c, expanded, "key 1")
			return err
		}, "POST", "/v1/checkout/sessions", "expand%5B0%5D=payment_intent&" +
			"expand%5B1%5D=payment_intent.latest_charge&metadata%5Btopup_id%5D=top+1%262&" +
			"payment_intent_data%5Bmetadata%5D%5Ba%5D=b", "key 1"},
		{func(ctx context.Context, c *Client) error {
			_, err := Get[PaymentIntent](ctx, c, "../a?b", Params{"expand[0]": "latest_charge"})
			return err
		}, "GET", "/v1/payment_intents/..%2Fa%3Fb?expand%5B0%5D=latest_charge", "", ""},
		{func(ctx context.Context, c *Client) error {
			_, err := Act[PaymentMethod](ctx, c, "pm_1", "detach", nil)
			return err
		}, "POST", "/v1/payment_methods/pm_1/detach", "", "*"},
		{func(ctx context.Context, c *Client) error {
			_, err := Act[Refund](ctx, c, "re_1", "", nil)
			return err
		}, "POST", "/v1/refunds/re_1", "", "*"},
		{func(ctx context.Context, c *Client) error { return Delete[Customer](ctx, c, "cus_1") },
			"DELETE", "/v1/customers/cus_1", "", "*"},
		{func(ctx context.Context, c *Client) error {
			_, err := GetOwnAccount(ctx, c)
			return err
		}, "GET", "/v1/account", "", ""},
	} {
		client, s := newClient(0, answer(200, `{"id": "../a?b"}`))
		if err := c.send(t.Context(), client); err != nil {
			t.Errorf("%s: %v", c.path, err)
			continue
		}
		r, key := s.came[0], keyOf(s.came[0])
		if r.Method != c.method || r.URL.RequestURI() != c.path || s.bodies[0] != c.form ||
			r.Header.Get("Authorization") != "Bearer sk_test_secret" || r.Header.Get("Stripe-Version") != APIVersion ||
			(r.Method == "POST") != (r.Header.Get("Content-Type") == "application/x-www-form-urlencoded") ||
			r.Header.Get("Stripe-Account") != "" {
			t.Errorf("%s %s %q %v, want %s", r.Method, r.URL.RequestURI(), s.bodies[0], r.Header, c.path)
		}
		if isOwn := key != "" && c.key == "*"; key != c.key && !isOwn {
			t.Errorf("%s: idempotency key %q, want %q", c.path, key, c.key)
		}
	}
}

// TestAnswers decodes objects, whether their members are in full or only their ids.
func TestAnswers(t *testing.T) {
	t.Parallel()
	text := `{"id": "cs_1", "payment_intent": {"id": "pi_1", "customer": "cus_1", "payment_method": null,
		"latest_charge": {"id": "ch_1", "payment_intent": "pi_1",
			"payment_method_details": {"type": "card", "card": {"fingerprint": "fp"}}},
		"last_payment_error": {"code": "card_declined", "decline_code": "insufficient_funds"}},
		"invoice": "in_1", "unknown": {"member": [1]}, "amount_total": 9007199254740993}`
	client, _ := newClient(0, answer(200, text))
	s, err := Get[CheckoutSession](t.Context(), client, "cs_1", nil)
	if err != nil {
		t.Fatal(err)
	}
	p := s.PaymentIntent
	if s.AmountTotal != 9007199254740993 || s.Invoice.ID != "in_1" || p.Customer.ID != "cus_1" ||
		p.PaymentMethod != nil || p.LatestCharge.Method.Card.Fingerprint != "fp" ||
		p.LatestCharge.PaymentIntent.ID != "pi_1" || p.LastPaymentError.DeclineCode != "insufficient_funds" {
		t.Errorf("%+v", s)
	}
}

// TestErrors tells an error of Stripe's from everything else. None has the key, or what came in another form.
func TestErrors(t *testing.T) {
	t.Parallel()
	declined := `{"error": {"type": "card_error", "code": "card_declined", "message": "No.",
		"payment_intent": {"id": "pi_1", "status": "requires_payment_method"}}}`
	for _, c := range []struct {
		name   string
		answer func() (*http.Response, error)
		want   *Error // nil = not of Stripe
	}{
		{"declined", answer(402, declined, "Idempotent-Replayed", "true"), &Error{Type: "card_error",
			Code: "card_declined", Message: "No.", Payment: &PaymentIntent{ID: "pi_1", Status: RequiresPaymentMethod},
			Status: 402, Replayed: true}},
		{"of our own", answer(500, `{"error": {"type": "api_error"}}`), &Error{Type: "api_error", Status: 500}},
		{"page of a proxy", answer(403, `<html>sk_test_secret</html>`), nil},
		{"other JSON", answer(404, `{"detail": "sk_test_secret"}`), nil},
		{"no error", answer(400, `{"error": null}`), nil},
		{"error of no type", answer(400, `{"error": {"message": "sk_test_secret"}}`), nil},
		{"redirect", answer(302, `{}`, "Location", "http://elsewhere/sk_test_secret"), nil},
		{"page instead of an object", answer(200, `<html>sk_test_secret</html>`), nil},
		{"half an object", answer(200, `{"id": "cus_1"`), nil},
		{"no object", answer(200, `null`), nil},
		{"another object", answer(200, `{"status": "sk_test_secret"}`), nil},
		{"too large", answer(200, `{"id": "`+strings.Repeat("x", maxAnswerBytes)+`"}`), nil},
		{"cut", cut, nil},
	} {
		client, _ := newClient(0, c.answer)
		client.HTTP.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		_, err := Create[Customer](t.Context(), client, Params{"email": "who@example.com"}, "")
		if err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "who@") {
			t.Errorf("%s: %v", c.name, err)
		}
		got, ok := errors.AsType[*Error](err)
		if ok != (c.want != nil) || ok && !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v", c.name, err)
		}
	}
}

// TestRetries repeats a request whose answer did not come, with the same key, and nothing that Stripe has answered but
// a lock that passes.
func TestRetries(t *testing.T) {
	t.Parallel()
	locked := answer(429, `{"error": {"type": "invalid_request_error", "code": "lock_timeout"}}`)
	limited := answer(429, `{"error": {"type": "invalid_request_error", "code": "rate_limit"}}`)
	refused := answer(400, `{"error": {"type": "invalid_request_error"}}`)
	failed := answer(500, `{"error": {"type": "api_error"}}`)
	done := answer(200, `{"id": "cus_1"}`)
	for _, c := range []struct {
		name    string
		retries int
		answers []func() (*http.Response, error)
		came    int
		isDone  bool
	}{
		{"cut twice", 2, []func() (*http.Response, error){cut, answer(502, "<html>"), done}, 3, true},
		{"cut each time", 2, []func() (*http.Response, error){cut}, 3, false},
		{"never repeated", 0, []func() (*http.Response, error){cut, done}, 1, false},
		{"locked", 2, []func() (*http.Response, error){locked, done}, 2, true},
		{"too many", 2, []func() (*http.Response, error){limited, done}, 1, false},
		{"refused", 2, []func() (*http.Response, error){refused, done}, 1, false},
		{"error of Stripe's own", 2, []func() (*http.Response, error){failed, done}, 1, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			client, s := newClient(c.retries, c.answers...)
			_, err := Create[Customer](t.Context(), client, Params{"a": "b"}, "")
			if len(s.came) != c.came || err == nil != c.isDone {
				t.Errorf("%s: %d requests, %v", c.name, len(s.came), err)
			}
			for i, r := range s.came {
				if key := keyOf(r); key != keyOf(s.came[0]) ||
					s.bodies[i] != "a=b" {
					t.Errorf("%s: try %d has key %q and body %q", c.name, i+1, key, s.bodies[i])
				}
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), firstPause/2)
		defer cancel()
		client, s := newClient(2, cut)
		if _, err := GetOwnAccount(ctx, client); err == nil || len(s.came) != 1 {
			t.Errorf("%d requests after the caller has left, %v", len(s.came), err)
		}
	})
}

// TestList reads a list page by page, as long as it is asked for, and each object once.
func TestList(t *testing.T) {
	t.Parallel()
	first, second := answer(200, `{"object": "list", "data": [{"id": "re_1"}, {"id": "re_2"}], "has_more": true}`),
		answer(200, `{"object": "list", "data": [{"id": "re_3"}], "has_more": false}`)
	empty := answer(200, `{"object": "list", "data": [], "has_more": true}`)
	params := Params{"limit": "2"}
	for _, c := range []struct {
		name    string
		answers []func() (*http.Response, error)
		take    int // 0 = all
		want    string
		came    int
	}{
		{"all", []func() (*http.Response, error){first, second}, 0, "re_1 re_2 re_3", 2},
		{"two", []func() (*http.Response, error){first, second}, 2, "re_1 re_2", 1},
		{"none", []func() (*http.Response, error){answer(200, `{"object": "list", "data": []}`)}, 0, "", 1},
		{"no list", []func() (*http.Response, error){answer(200, `{}`)}, 0, "error", 1},
		{"cut", []func() (*http.Response, error){first, cut}, 0, "re_1 re_2 error", 2},
		{"without end", []func() (*http.Response, error){first}, 0, "re_1 re_2 re_1 re_2 error", 2},
		{"empty, and more", []func() (*http.Response, error){empty}, 0, "error", 1},
	} {
		client, s := newClient(0, c.answers...)
		var got []string
		for r, err := range List[Refund](t.Context(), client, params) {
			if err != nil {
				got = append(got, "error")
			} else if got = append(got, r.ID); len(got) == c.take {
				break
			}
		}
		if text := strings.Join(got, " "); text != c.want || len(s.came) != c.came {
			t.Errorf("%s: %q after %d requests, want %q after %d", c.name, text, len(s.came), c.want, c.came)
		}
		if q := s.came[len(s.came)-1].URL.Query(); c.came > 1 && q.Encode() != "limit=2&starting_after=re_2" {
			t.Errorf("%s: %v", c.name, q)
		}
	}
	if len(params) != 1 {
		t.Errorf("a list changes the parameters of its caller: %v", params)
	}
}

// TestReadEvent accepts an event that is signed with the secret, not long ago, and nothing else.
func TestReadEvent(t *testing.T) {
	t.Parallel()
	const secret = "whsec_0123456789"
	now := time.Unix(1_800_000_000, 0)
	body := `{"object": "event", "id": "evt_1", "type": "charge.refunded", "data": {"object": {"id": "ch_1"}}}`
	sign := func(at time.Time, secret, body string) string {
		m := hmac.New(sha256.New, []byte(secret))
		_, _ = fmt.Fprintf(m, "%d.%s", at.Unix(), body)
		return hex.EncodeToString(m.Sum(nil))
	}
	stamp := func(at time.Time) string { return "t=" + strconv.FormatInt(at.Unix(), 10) }
	right, wrong := "v1="+sign(now, secret, body), "v1="+sign(now, "whsec_another", body)
	late, later, ahead := now.Add(-signatureTTL), now.Add(-signatureTTL-time.Second), now.Add(time.Hour)
	thin := `{"object": "v2.core.event", "id": "evt_1"}`
	bare := `{"object": "event", "id": "evt_1"}`
	for name, c := range map[string]struct {
		body, header string
		isRight      bool
	}{
		"right":                     {body, stamp(now) + "," + right, true},
		"of a second secret":        {body, stamp(now) + "," + wrong + "," + right + ",v0=00", true},
		"beside what is no hex":     {body, stamp(now) + ",v1=zz," + right, true},
		"at the end of the time":    {body, stamp(late) + ",v1=" + sign(late, secret, body), true},
		"by a clock that is ahead":  {body, stamp(ahead) + ",v1=" + sign(ahead, secret, body), true},
		"too old":                   {body, stamp(later) + ",v1=" + sign(later, secret, body), false},
		"of an older time":          {body, stamp(now.Add(-time.Minute)) + "," + right, false},
		"of another secret":         {body, stamp(now) + "," + wrong, false},
		"of another body":           {body + " ", stamp(now) + "," + right, false},
		"of another version":        {body, stamp(now) + ",v0=" + sign(now, secret, body), false},
		"half":                      {body, stamp(now) + "," + right[:len(right)-2], false},
		"without a signature":       {body, stamp(now), false},
		"without a time":            {body, right, false},
		"without anything":          {body, "", false},
		"no header":                 {body, "x", false},
		"right, and no event":       {thin, stamp(now) + ",v1=" + sign(now, secret, thin), false},
		"right, and about nothing":  {bare, stamp(now) + ",v1=" + sign(now, secret, bare), false},
		"right, and no JSON":        {"{", stamp(now) + ",v1=" + sign(now, secret, "{"), false},
		"with a time that is words": {body, "t=now," + right, false},
	} {
		e, err := ReadEvent([]byte(c.body), c.header, secret, now)
		var of Charge
		switch {
		case err == nil != c.isRight:
			t.Errorf("%s: %+v, %v", name, e, err)
		case err == nil:
			if err := json.Unmarshal(e.Data.Object, &of); err != nil || of.ID != "ch_1" || e.ID != "evt_1" {
				t.Errorf("%s: %+v, %v", name, e, err)
			}
		}
	}
	if _, err := ReadEvent([]byte(body), stamp(now)+",v1="+sign(now, "", body), "", now); err == nil {
		t.Error("without a secret anyone signs")
	}
}
