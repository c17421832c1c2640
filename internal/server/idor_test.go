package server_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/server"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/apptest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/nodetest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// stranger is a second developer on the node, with an app, a test account, its
// connection, and whatever else can have an id.
type stranger struct {
	apitest.Client
	params map[string]string // path parameter, with the path before it if it is {id} → id
	token  string            // of its connection
}

// bodies are those that routes take; all others take none.
var bodies = map[string]string{
	"POST /v1/connections/{id}/allocation-requests":  `{"target_allocation_mc":2000000000}`,
	"PATCH /v1/apps/{id}":                            `{"name":"Mine now"}`,
	"POST /v1/apps/{id}/features":                    `{"slug":"mine","display_name":"Mine","description":"Mine now."}`,
	"PATCH /v1/apps/{id}/features/{slug}":            `{"display_name":"Mine"}`,
	"POST /v1/apps/{id}/webhooks":                    `{"url":"https://app.example.com/mine"}`,
	"PATCH /v1/apps/{id}/webhooks/{webhookId}":       `{"status":"disabled"}`,
	"POST /v1/apps/{id}/webhooks/{webhookId}/test":   `{"type":"connection.revoked"}`,
	"POST /v1/apps/{id}/events":                      `{"type":"connection.revoked"}`,
	"POST /v1/apps/{id}/test-accounts/{wac_id}/fund": `{"amount_mc":5}`,
}

var parameter = regexp.MustCompile(`\{(\w+)\}`)

// TestForeignIDsDoNotExist asks every route that takes an id for somebody else's,
// and for one that never was: the answers are the same bytes, and nothing changes.
func TestForeignIDsDoNotExist(t *testing.T) {
	t.Parallel()
	target := apptest.URL(t, db.Postgres)
	p := apptest.Start(t, target).Node
	s := makeStranger(t, p, target)
	before, tried := traces(t, p), 0
	basic := apitest.Client{Base: p.BaseURL, User: p.App.ClientID, Secret: p.App.ClientSecret}
	bearer := apitest.Client{Base: p.BaseURL, Bearer: p.Connection.AccessToken}
	for _, route := range apitest.Routes() {
		method, path, _ := strings.Cut(route, " ")
		if !parameter.MatchString(path) || strings.HasPrefix(path, "/v1/operator") ||
			strings.HasPrefix(path, "/v1/ai/") || strings.Contains(path, "{provider}") ||
			strings.Contains(path, "{model}") || strings.HasSuffix(path, "/models") { // models belong to no one
			continue
		}
		// a ticket's, or a socket: package voice asks these
		if rest, ok := strings.CutPrefix(path, "/v1/realtime/sessions/{id}/"); ok && rest != "end" {
			continue
		}
		clients := []apitest.Client{basic}
		if strings.HasPrefix(path, "/v1/requests") && method == "GET" {
			clients = append(clients, bearer)
		}
		if strings.HasPrefix(path, "/v1/realtime") || strings.HasPrefix(path, "/v1/connection/") {
			clients = []apitest.Client{bearer}
		}
		for _, c := range clients {
			// All ids foreign, and then only the last one: the app is one's own.
			for _, own := range []string{"", p.App.ID} {
				if own != "" && (!strings.HasPrefix(path, "/v1/apps/{id}/") || strings.Count(path, "{") < 2) {
					continue
				}
				tried++
				foreign := c.Do(t, method, s.fillPath(t, path, own, false), bodies[route])
				absent := c.Do(t, method, s.fillPath(t, path, own, true), bodies[route])
				if foreign.Status != 404 || neutral(foreign.Body) != neutral(absent.Body) || absent.Status != 404 {
					t.Errorf("%s of somebody else: %v; of nobody: %v", route, foreign, absent)
				}
			}
		}
	}
	if tried < 25 {
		t.Errorf("only %d routes take an id", tried)
	}
	s.pages(t, p)
	if after := traces(t, p); after != before {
		t.Errorf("something has changed:\n%s\n%s", before, after)
	}
	if a := s.Do(t, "GET", "/v1/connections/"+s.params["connections"], ""); a.Status != 200 ||
		!strings.Contains(a.Body, `"active"`) {
		t.Errorf("the stranger's connection: %v", a)
	}
}

// pages asks every page of a person for another person's things.
func (s *stranger) pages(t *testing.T, p *nodetest.Node) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	ask := func(method, path string, form url.Values) answer {
		req, err := http.NewRequestWithContext(t.Context(), method, p.BaseURL+path, strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", p.BaseURL)
		req.Header.Set("Sec-Fetch-Site", "same-origin")
		resp, err := browser.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		return whole(t, resp)
	}
	if a := ask("POST", "/sign-in",
		url.Values{"email": {p.TestAccount.Email}, "password": {p.TestAccount.Password}}); a.status != 303 {
		t.Fatalf("sign in: %+v", a)
	}
	tried := 0
	for _, route := range server.Pages {
		method, path, _ := strings.Cut(route, " ")
		if !parameter.MatchString(path) || strings.Contains(path, "{token}") || strings.Contains(path, "{$}") {
			continue
		}
		// nobody else's at all: packages admin and topups ask them
		if strings.HasPrefix(path, "/operator/") || strings.HasPrefix(path, "/top-ups/") {
			continue
		}
		// whoever is no developer is led away from all of them; package console asks them as another developer
		if strings.HasPrefix(path, "/developer/") {
			continue
		}
		// a month, of whoever asks
		if strings.HasPrefix(path, "/statements/") {
			continue
		}
		// guides are the same for all; package docs asks for a token as other accounts
		if strings.HasPrefix(path, "/docs/") {
			continue
		}
		tried++
		form := url.Values{"action": {"revoke"}, "decision": {"approve"}, "spend_cap": {"20"}}
		foreign, absent := ask(method, s.fillPath(t, path, "", false), form),
			ask(method, s.fillPath(t, path, "", true), form)
		if foreign.status != 404 || absent.status != 404 || neutral(foreign.body) != neutral(absent.body) {
			t.Errorf("page %s: %d of somebody else, %d of nobody", route, foreign.status, absent.status)
		}
	}
	if tried < 6 {
		t.Errorf("only %d pages take an id", tried)
	}
}

var anyID = regexp.MustCompile(`\b(req|rts|conn|acr|whk|whd|wac|app|led|glr|opl|pky)_[0-9a-z]{10,}`)

// neutral is an answer without the ids that were asked for.
func neutral(body string) string { return anyID.ReplaceAllString(body, "ID") }

// fillPath puts the stranger's ids into a path, or ids that never were; own is one's
// own app.
func (s *stranger) fillPath(t *testing.T, path, own string, absent bool) string {
	t.Helper()
	return parameter.ReplaceAllStringFunc(path, func(m string) string {
		name := m[1 : len(m)-1]
		if name == "id" {
			before, _, _ := strings.Cut(path, "/{id}")
			name = before[strings.LastIndex(before, "/")+1:]
			if name == "apps" && own != "" {
				return own
			}
		}
		value, ok := s.params[name]
		if !ok {
			t.Fatalf("%s: the stranger has no %s", path, name)
		}
		if prefix, _, ok := strings.Cut(value, "_"); absent && ok {
			return prefix + "_" + strings.Repeat("0", len(value)-len(prefix)-1)
		} else if absent {
			return "nobodys"
		}
		return value
	})
}

func makeStranger(t *testing.T, p *nodetest.Node, target string) *stranger {
	t.Helper()
	d := dbtest.OpenURL(t, target)
	s := &stranger{Client: apitest.Client{Base: p.BaseURL}, params: map[string]string{}}
	w := store.NewWriter(d, d.Now)
	token := ""
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		people := accounts.NewStore(d, d.Now)
		developer, err := people.Create(ctx, tx, accounts.NewAccount{Email: "stranger@example.com", Developer: true})
		if err != nil {
			return err
		}
		app, secret, err := apps.NewStore(d, d.Now, false).Create(ctx, tx, apps.New{
			OwnerID:      developer.ID,
			Name:         "Theirs",
			RedirectURIs: []string{publicCallback},
		})
		if err != nil {
			return err
		}
		tester, err := people.Create(ctx, tx, accounts.NewAccount{
			Email:   "theirs@example.com",
			Sandbox: true,
			OwnerID: developer.ID,
		})
		if err != nil {
			return err
		}
		if _, err := w.DoTx(ctx, tx, rules.TopUp{
			AccountID: tester.ID,
			Sandbox:   true,
			AmountMC:  100 * dollar,
		}); err != nil {
			return err
		}
		r, err := w.DoTx(ctx, tx, rules.Connect{
			ConnectionID: id.New(id.Connection, d.Now()),
			AppID:        app.ID,
			AccountID:    tester.ID,
			Sandbox:      true,
			RequestedMC:  10 * dollar,
		})
		if err != nil {
			return err
		}
		tokens, err := (&oauth.Store{DB: d, Ledger: w, Now: d.Now}).IssueTokens(ctx, tx, r.Connection.ID, app.ID, "")
		token = tokens.AccessToken
		s.params["passkeys"] = id.New("pky_", d.Now())
		if err == nil {
			_, err = tx.ExecContext(ctx,
				`INSERT INTO passkeys (id, account_id, credential_id, public_key, name, transports, backup_eligible,`+
					` counter, created_us, used_us) VALUES ($1, $2, $3, $3, 'Theirs', '', 0, 0, 1, 0)`,
				s.params["passkeys"], tester.ID, []byte("theirs"))
		}
		for _, text := range []string{
			`UPDATE apps SET own_work = 1 WHERE id = $1 AND $2 <> ''`,
			`INSERT INTO work_consents (app_id, account_id, connection_id, created_us)
				SELECT $1, $2, id, 1 FROM connections WHERE app_id = $1 AND account_id = $2`,
		} {
			if _, err := tx.ExecContext(ctx, text, app.ID, tester.ID); err != nil {
				return err
			}
		}
		s.User, s.Secret = app.ClientID, secret
		s.params["apps"], s.params["connections"], s.params["wac_id"] = app.ID, r.Connection.ID, tester.ID
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s.token = token
	at := "/v1/apps/" + s.params["apps"]
	made := func(method, path, body, member string) string {
		a := s.Do(t, method, path, body)
		if a.Status != 200 {
			t.Fatalf("%s %s: %v", method, path, a)
		}
		return memberOf(t, a, member)
	}
	s.params["slug"] = made("POST", at+"/features", `{"slug":"theirs","display_name":"Theirs","description":"Theirs."}`,
		"slug")
	s.params["webhookId"] = made("POST", at+"/webhooks", `{"url":"https://app.example.com/hooks"}`, "id")
	s.params["deliveryId"] = made("POST", at+"/webhooks/"+s.params["webhookId"]+"/test",
		`{"type":"connection.revoked"}`, "id")
	s.params["requestId"] = made("POST", "/v1/connections/"+s.params["connections"]+"/allocation-requests",
		fmt.Sprintf(`{"target_allocation_mc":%d}`, 20*dollar), "id")
	s.params["allocation-requests"] = s.params["requestId"]
	held := whole(t, p.Call("POST", "/v1/holds", `{"amount_mc":5,"description":"Theirs"}`,
		"Authorization: Bearer "+token, "Idempotency-Key: "+servertest.UUID()))
	if _, rest, ok := strings.Cut(held.body, `"id":"`); ok {
		s.params["holds"], _, _ = strings.Cut(rest, `"`)
	} else {
		t.Fatalf("the stranger's hold: %+v", held)
	}
	child := whole(t, p.Call("POST", "/v1/connection/children", `{"amount_mc":5}`,
		"Authorization: Bearer "+token, "Idempotency-Key: "+servertest.UUID()))
	if _, rest, ok := strings.Cut(child.body, `"id":"`); ok {
		s.params["children"], _, _ = strings.Cut(rest, `"`)
		s.params["child"] = s.params["children"]
	} else {
		t.Fatalf("the stranger's child: %+v", child)
	}
	call := p.Call("POST", "/v1/ai/gpt-6-luna", prompt("hello"), "Authorization: Bearer "+token,
		"Idempotency-Key: "+servertest.UUID())
	if a := whole(t, call); a.status != 200 {
		t.Fatalf("the stranger's call: %+v", a)
	}
	voice := whole(t,
		p.Call("POST", "/v1/realtime/sessions", `{"model":"gpt-realtime-2.1-mini"}`, "Authorization: Bearer "+token))
	if _, rest, ok := strings.Cut(voice.body, `"id":"`); ok {
		s.params["sessions"], _, _ = strings.Cut(rest, `"`)
	}
	// so that nothing happens to it later
	if a := whole(t,
		p.Call("POST", "/v1/realtime/sessions/"+s.params["sessions"]+"/end", `{}`,
			"Authorization: Bearer "+token)); a.status != 202 {
		t.Fatalf("the stranger's voice session: %+v, %+v", voice, a)
	}
	s.params["requests"] = call.Header.Get("X-Request-Id")
	s.params["call"] = s.params["requests"]
	s.params["activity"] = id.ReplacePrefix(s.params["requests"], id.Request, id.Ledger)
	// The operator's pages are not there for anybody else, whatever the id.
	s.params["ledger"] = id.ReplacePrefix(s.params["requests"], id.Request, id.Ledger)
	s.params["accounts"] = s.params["wac_id"]
	s.params["reviews"], s.params["log"] = id.New("glr_", time.Now()), id.New("opl_", time.Now())
	if slices.Contains([]string{s.params["requests"], s.params["slug"]}, "") {
		t.Fatalf("%v", s.params)
	}
	return s
}
