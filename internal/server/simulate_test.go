package server_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/apptest"
	"github.com/purserhq/purser/internal/testkit/calltest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/nodetest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// A refusedShape is one of the shapes in which a call is made.
type refusedShape struct {
	path  string // {model} is the model's place
	chat  bool   // the body has model and messages
	input string // member of the text where the body has no messages; "" = messages
	whole bool   // it has no streams

	contents bool // the body is Google's
}

var refusedShapes = []refusedShape{
	{path: "/v1/ai/{model}"},
	{path: "/v1/ai/features/summarize"},
	{path: "/v1/chat/completions", chat: true},
	{path: "/openai/v1/chat/completions", chat: true},
	{path: "/openai/v1/responses", input: "input"},
	{path: "/anthropic/v1/messages", chat: true},
	{path: "/google/v1beta/models/{model}:generateContent", contents: true},
	{path: "/openai/v1/embeddings", input: "input", whole: true},
}

// send makes a call with a text in the shape, as the sample connection unless headers say otherwise.
func (s *refusedShape) send(t *testing.T, p *nodetest.Node, model, text string, stream bool,
	headers ...string) answer {
	t.Helper()
	quoted, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	if s.contents {
		path := strings.Replace(s.path, "{model}", model, 1)
		if stream {
			path = strings.Replace(path, ":generateContent", ":streamGenerateContent?alt=sse", 1)
		}
		a := whole(t, p.Call("POST", path, `{"contents":[{"parts":[{"text":`+string(quoted)+`}]}],`+
			`"generationConfig":{"maxOutputTokens":100}}`, headers...))
		if a.status >= 400 {
			a.body = string(apitest.Envelope(path, []byte(a.body)))
		}
		return a
	}
	body := `{"messages":[{"role":"user","content":` + string(quoted) + `}],"max_tokens":100`
	if s.input != "" {
		body = `{"` + s.input + `":` + string(quoted)
	}
	if s.input != "" && !s.whole {
		body += `,"max_output_tokens":100`
	}
	if s.chat || s.input != "" {
		body += `,"model":"` + model + `"`
	}
	if stream {
		body += `,"stream":true`
	}
	return whole(t, p.Call("POST", strings.Replace(s.path, "{model}", model, 1), body+"}", headers...))
}

// model returns a model that answers in the shape.
func (s *refusedShape) model() string {
	if s.whole {
		return "text-embedding-3-small"
	}
	return "gpt-6-luna"
}

// A simulated refusal, as contract §7 and decisions 013 and 014 describe it. Package apitest checks the rest.
type simulatedRefusal struct {
	code     string
	status   int
	details  string // the names of error.details, sorted
	maxWait  int    // seconds of Retry-After at most; 0 = it has none
	minWait  int
	increase bool
	review   bool
}

var simulatedRefusals = []simulatedRefusal{
	{code: "invalid_request", status: 400},
	{code: "feature_model_not_configured", status: 400},
	{code: "unauthorized", status: 401},
	{code: "allocation_exhausted", status: 402, increase: true,
		details: "capped_by held_mc max_tokens_that_fit reason remaining_mc required_mc"},
	{code: "feature_cost_exceeded", status: 402, details: "allowed_mc capped_by max_tokens_that_fit required_mc"},
	{code: "connection_revoked", status: 403},
	{code: "connection_frozen", status: 403, review: true},
	{code: "app_suspended", status: 403},
	{code: "model_not_allowed", status: 403},
	{code: "call_stopped", status: 403},
	{code: "idempotency_key_reused", status: 409},
	{code: "rate_limited", status: 429, minWait: 25, maxWait: 31},
	{code: "risk_throttled", status: 429, minWait: 590, maxWait: 1200, details: "allowed_mc held_mc spent_mc"},
	{code: "daily_limit_reached", status: 429, minWait: 3000, maxWait: 4200,
		details: "allowed_mc capped_by max_tokens_that_fit required_mc"},
	{code: "app_spend_limited", status: 429, minWait: 3000, maxWait: 4200,
		details: "allowed_mc capped_by max_tokens_that_fit required_mc"},
	{code: "sandbox_live_cost_limited", status: 429, minWait: 3000, maxWait: 4200,
		details: "allowed_mc capped_by max_tokens_that_fit required_mc"},
	{code: "provider_error", status: 502, details: "kind provider retry upstream_status"},
	{code: "unavailable", status: 503, minWait: 1, maxWait: 1},
}

// TestEveryRefusalOfACallIsSimulated compares the list with the table of codes.
func TestEveryRefusalOfACallIsSimulated(t *testing.T) {
	t.Parallel()
	notOfCalls := []string{
		"invalid_grant", "unsupported_grant_type", // of OAuth
		"invalid_ticket", "too_many_sessions", // of voice
		"not_found", "method_not_allowed", "internal_error", // of HTTP
	}
	for _, c := range apierr.All {
		listed := slices.ContainsFunc(simulatedRefusals, func(r simulatedRefusal) bool { return r.code == c.Name })
		if listed == slices.Contains(notOfCalls, c.Name) {
			t.Errorf("%s: simulated %t", c.Name, listed)
		}
	}
}

// check checks an answer to a message that asks for the refusal.
func (r *simulatedRefusal) check(a answer, embedding bool) error {
	var e struct {
		Error struct {
			Code        string
			IncreaseURL *string `json:"increase_url"`
			ReviewURL   *string `json:"review_url"`
			Details     map[string]any
		}
	}
	if err := json.Unmarshal([]byte(a.body), &e); err != nil {
		return err
	}
	var names []string
	for name := range e.Error.Details {
		names = append(names, name)
	}
	slices.Sort(names)
	details := r.details
	if embedding { // it has no output, so no cap would help
		details = strings.TrimSpace(strings.NewReplacer("capped_by", "", "max_tokens_that_fit", "").Replace(details))
		details = strings.Join(strings.Fields(details), " ")
	}
	wait, _ := strconv.Atoi(a.header.Get("Retry-After")) // 0 = none
	if a.status != r.status || e.Error.Code != r.code || a.header.Get("Svc-Simulated") != "refusal" ||
		(e.Error.IncreaseURL != nil) != r.increase || (e.Error.ReviewURL != nil) != r.review ||
		wait < r.minWait || wait > r.maxWait || strings.Join(names, " ") != details {
		return fmt.Errorf("want %+v, got %d %v %s", *r, a.status, a.header, a.body)
	}
	return nil
}

// TestSimulatedRefusals asks for each refusal in each shape, whole and streamed. None leaves a trace, and its
// idempotency key is free.
func TestSimulatedRefusals(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, p *nodetest.Node) {
		before := simulationTraces(t, p)
		for _, s := range refusedShapes {
			for _, r := range simulatedRefusals {
				for _, stream := range []bool{false, true} {
					if stream && s.whole ||
						r.code == "feature_model_not_configured" && !strings.Contains(s.path, "features") {
						continue
					}
					text := "!refuse " + r.code
					if stream {
						text = fmt.Sprintf("Hello\n!refuse %d %s\n", r.status, r.code)
					}
					if err := r.check(s.send(t, p, s.model(), text, stream), s.whole); err != nil {
						t.Errorf("%s, %q: %v", s.path, text, err)
					}
				}
			}
		}
		if after := simulationTraces(t, p); after != before {
			t.Errorf("simulated refusals have left a trace: %s, before %s", after, before)
		}
		for _, s := range refusedShapes {
			for _, text := range []string{"!refuse", "!refuse nothing", "!refuse 429 allocation_exhausted",
				"!refuse 402"} {
				a := s.send(t, p, s.model(), text, false)
				if a.status != 400 ||
					!strings.Contains(a.body, "402 allocation_exhausted, 402 feature_cost_exceeded") ||
					a.header.Get("Svc-Simulated") != "" {
					t.Errorf("%s, %q: %+v", s.path, text, a)
				}
			}
		}
		key := "Idempotency-Key: " + servertest.UUID()
		body := prompt("!refuse provider_error")
		for range 2 {
			whole(t, p.Call("POST", luna, body, key)).wantAnswer(t, 502, "provider_error")
		}
		a := whole(t, p.Call("POST", luna, prompt("please do not !refuse allocation_exhausted"), key))
		if a.status != 200 || a.header.Get("Idempotent-Replayed") != "" || a.header.Get("Svc-Simulated") != "" {
			t.Errorf("a call with the key of a simulated refusal: %+v", a)
		}
		whole(t, p.Call("POST", luna, body, key)).wantAnswer(t, 502, "provider_error")
		receipt := whole(t, p.Call("GET", "/v1/requests/"+a.header.Get("X-Request-Id"), ""))
		if receipt.status != 200 {
			t.Errorf("the receipt of the call: %+v", receipt)
		}
	})
}

// simulationTraces is everything that a simulated refusal must leave as it was.
func simulationTraces(t *testing.T, p *nodetest.Node) string {
	t.Helper()
	d, err := db.OpenReadOnly(t.Context(), p.DB)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	out := traces(t, p)
	for _, table := range []string{"refusals", "counters", "daily_totals", "stored_responses", "app_spend", "notices"} {
		var n int64
		if err := d.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM `+table).Scan(&n); err != nil {
			t.Fatal(table, err)
		}
		out += fmt.Sprintf("%s %d ", table, n)
	}
	return out
}

// TestLiveAppsAreNotSimulated: the message of a live app goes to the model as it is.
func TestLiveAppsAreNotSimulated(t *testing.T) {
	t.Parallel()
	p := apptest.Start(t, apptest.URL(t, db.Postgres)).Node
	d := dbtest.OpenURL(t, p.DB)
	l := calltest.NewLiveApp(t, d, "simulate-", 1, 20*money.Dollar)
	for _, s := range refusedShapes {
		if strings.Contains(s.path, "features") || s.whole { // the app has no features
			continue
		}
		a := s.send(t, p, s.model(), "!refuse allocation_exhausted", false, "Authorization: Bearer "+l.Tokens[0])
		if a.status != 200 || a.header.Get("Svc-Simulated") != "" || !strings.Contains(a.body, "!refuse") {
			t.Errorf("%s: %+v", s.path, a)
		}
	}
	p.Verify()
}

// sameForAll replaces what differs between two refusals of one kind: numbers, ids, names of models and features.
var sameForAll = regexp.MustCompile(
	`(conn|req)_[0-9a-z]+|[0-9a-f]{8}-[-0-9a-f]{27}|127\.0\.0\.1:\d+|\$?\d+(\.\d+)?` +
		`|feature \\?"?[a-z]+\\?"?|\\"[-.a-z0-9]+\\"`)

func (a answer) normalize() string {
	body := sameForAll.ReplaceAllStringFunc(a.body, func(s string) string {
		switch {
		case strings.HasPrefix(s, "feature"):
			return "feature F"
		case s[0] == '$' || '0' <= s[0] && s[0] <= '9' && !strings.Contains(s, "-") && !strings.HasPrefix(s, "127."):
			return "N"
		}
		return "X"
	})
	retry := "after a wait" // package apitest checks x-should-retry, which depends on the wait
	if a.header.Get("Retry-After") == "" {
		retry = "x-should-retry " + a.header.Get("X-Should-Retry")
	}
	return fmt.Sprintf("%d %s%s, %q", a.status, body, retry, a.header.Get("WWW-Authenticate"))
}

// TestSimulatedRefusalsAreAsTheRealOnes provokes real refusals in each shape, and compares the
// simulated ones with them: every member, its type and its text are the same but for numbers and names.
func TestSimulatedRefusalsAreAsTheRealOnes(t *testing.T) {
	t.Parallel()
	p := apptest.Start(t, apptest.URL(t, db.SQLite)).Node
	app := apitest.Client{Base: p.BaseURL, User: p.App.ClientID, Secret: p.App.ClientSecret}
	operator := operatorOf(t, p)
	do := func(c apitest.Client, method, path, body string) string {
		t.Helper()
		a := c.Do(t, method, path, body)
		if a.Status/100 != 2 {
			t.Fatal(method, path, a)
		}
		return a.Body
	}
	at := "/v1/apps/" + p.App.ID
	connect := func(spendCap string, more ...string) (bearer, id string, account calltest.TestAccount) {
		t.Helper()
		if err := json.Unmarshal([]byte(do(app, "POST", at+"/test-accounts", "")), &account); err != nil {
			t.Fatal(err)
		}
		token, id := calltest.Connect(t, p, account.Email, account.Password, spendCap, more...)
		return "Authorization: Bearer " + token, id, account
	}
	do(app, "POST", at+"/features", `{"slug":"dear","display_name":"D","description":"D","max_cost_per_call_mc":0}`)
	do(app, "POST", at+"/features", `{"slug":"seldom","display_name":"S","description":"S","rate_limit":1}`)
	const text = "Hello"
	own := refusedShapes[0]
	spent, _, account := connect("5")
	charge := own.send(t, p, own.model(), text, false, spent).bill(t)["user_charge_mc"].(float64)
	// The cap is all that is spent.
	calltest.Connect(t, p, account.Email, account.Password, fmt.Sprintf("%.8f", charge/1e8))
	revoked, id, _ := connect("5")
	do(app, "POST", "/v1/connections/"+id+"/revoke", "")
	frozen, id, _ := connect("5")
	do(operator, "POST", "/v1/operator/connections/"+id+"/freeze", `{"reason":"A test."}`)
	hold := own.send(t, p, own.model(), text, false).bill(t)["hold_amount_mc"].(float64)
	limited, _, _ := connect("5", "daily_limit", fmt.Sprintf("%.8f", 2*hold/1e8))
	for own.send(t, p, own.model(), text, false, limited).status == 200 {
	}
	for _, s := range refusedShapes {
		for _, tt := range []struct {
			code string
			real func() answer
		}{
			{"invalid_request", func() answer { return s.send(t, p, "no-such-model", text, false) }},
			{"unauthorized", func() answer {
				return s.send(t, p, s.model(), text, false, "Authorization: Bearer "+strings.Repeat("a", 43))
			}},
			{"allocation_exhausted", func() answer { return s.send(t, p, s.model(), text, false, spent) }},
			{"connection_revoked", func() answer { return s.send(t, p, s.model(), text, false, revoked) }},
			{"connection_frozen", func() answer { return s.send(t, p, s.model(), text, false, frozen) }},
			{"daily_limit_reached", func() answer { return s.send(t, p, s.model(), text, false, limited) }},
			{"feature_cost_exceeded", func() answer {
				return s.send(t, p, s.model(), text, false, "X-Svc-Feature: dear")
			}},
			{"app_suspended", func() answer {
				do(app, "PATCH", at, `{"suspended":true}`)
				defer do(app, "PATCH", at, `{"suspended":false}`)
				return s.send(t, p, s.model(), text, false)
			}},
			{"model_not_allowed", func() answer {
				do(app, "PATCH", at, `{"allowed_models":["claude-haiku-5-5"]}`)
				defer do(app, "PATCH", at, `{"allowed_models":[]}`)
				return s.send(t, p, s.model(), text, false)
			}},
			{"idempotency_key_reused", func() answer {
				key := "Idempotency-Key: " + servertest.UUID()
				s.send(t, p, s.model(), text, false, key)
				return s.send(t, p, s.model(), "Another text", false, key)
			}},
			{"rate_limited", func() answer {
				s.send(t, p, s.model(), text, false, "X-Svc-Feature: seldom")
				return s.send(t, p, s.model(), text, false, "X-Svc-Feature: seldom")
			}},
			{"provider_error", func() answer { return s.send(t, p, s.model(), "!mock status=503", false) }},
		} {
			if strings.Contains(s.path, "features") &&
				slices.Contains([]string{"invalid_request", "feature_cost_exceeded",
					"rate_limited"}, tt.code) {
				continue // the route has one feature and one model
			}
			if s.whole && tt.code == "daily_limit_reached" {
				continue // so small a call fits into the rest of the limit
			}
			real := tt.real()
			simulated := s.send(t, p, s.model(), "!refuse "+tt.code, false)
			if r, s := real.normalize(), simulated.normalize(); r != s || real.header.Get("Svc-Simulated") != "" {
				t.Errorf("%s: the real refusal is\n%s\nthe simulated one\n%s\n%s", tt.code, r, s, real.body)
			}
		}
	}
	real := whole(t, p.Call("POST", "/v1/ai/features/chat", prompt(text)))
	simulated := whole(t, p.Call("POST", "/v1/ai/features/summarize", prompt("!refuse feature_model_not_configured")))
	if r, s := real.normalize(), simulated.normalize(); r != s {
		t.Errorf("the real refusal is\n%s\nthe simulated one\n%s", r, s)
	}
	p.Verify()
}

// bill returns the svc block of a whole answer in any shape.
func (a answer) bill(t *testing.T) map[string]any {
	t.Helper()
	var v struct{ Svc map[string]any }
	if err := json.Unmarshal([]byte(a.body), &v); err != nil || v.Svc == nil {
		t.Fatalf("no bill: %v in %d %s", err, a.status, a.body)
	}
	return v.Svc
}
