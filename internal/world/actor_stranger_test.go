package world

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/testkit/bank"
)

// A family is what an app got for a code: tokens, of which the newest refresh token works.
type family struct {
	app                credentials
	code, connectionID string
	refresh            string
	used               []string // earlier refresh tokens
	renewed            time.Time
	ended              string // why nothing of it works any more; "" = it may
}

// verifier is the one PKCE verifier of all apps, and back the address to which users return.
const (
	verifier = "verifier-0123456789-0123456789-0123456789-0123456789"
	back     = "https://app.example.com/back"
)

// authorize lets a person consent to an app with a spend cap in dollars, and the app trade the code for tokens; nil =
// it was refused.
func (a *api) authorize(person string, app credentials, spendCap string) (*family, error) {
	ctx := context.Background()
	challenge := sha256.Sum256([]byte(verifier))
	path := "/oauth/authorize?" + url.Values{
		"response_type": {"code"}, "client_id": {app.clientID}, "redirect_uri": {back}, "state": {"s"},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(challenge[:])}, "code_challenge_method": {"S256"},
	}.Encode()
	page, err := a.pages.Page(ctx, 0, person, "GET", path, nil)
	if err != nil || page.Status != http.StatusOK {
		return nil, errors.Join(err, checkPage("GET", path, page))
	}
	forms, _ := formsOf(page.Body)
	i := slices.IndexFunc(forms, func(f form) bool { return strings.HasPrefix(f.action, "/oauth/authorize") })
	if i < 0 {
		return nil, nil
	}
	consent := forms[i].defaults()
	for name, value := range map[string]string{"decision": "approve", "spend_cap": spendCap, "amount": "other"} {
		consent.Set(name, value)
	}
	page, err = a.pages.Page(ctx, 0, person, "POST", path, consent)
	if err != nil {
		return nil, err
	}
	to, err := url.Parse(page.To)
	if err != nil || to.Query().Get("code") == "" {
		return nil, errors.Join(err, checkPage("POST", path, page))
	}
	g := &family{app: app, code: to.Query().Get("code")}
	answer, err := a.trade(g, "", "grant_type", "authorization_code", "code", g.code, "redirect_uri", back,
		"code_verifier", verifier)
	if err != nil || answer.Status != http.StatusOK {
		return nil, err
	}
	a.grants = append(a.grants[max(0, len(a.grants)+1-keptIDs):], g)
	a.connected = a.clock.steady()
	return g, nil
}

// trade sends a form to the token endpoint, and keeps the tokens in the answer.
func (a *api) trade(g *family, key string, pairs ...string) (bank.Answer, error) {
	form := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		form.Set(pairs[i], pairs[i+1])
	}
	headers := []string{"Content-Type", "application/x-www-form-urlencoded", "Authorization", g.app.basic()}
	if key != "" {
		headers = append(headers, "Idempotency-Key", key)
	}
	answer, err := a.Box.send(context.Background(), nil, "POST", "/oauth/token", form.Encode(), headers...)
	if err != nil || answer.Status != http.StatusOK {
		return answer, errors.Join(err, checkPage("POST", "/oauth/token", answer))
	}
	var tokens oauth.TokenResponse
	if err := json.Unmarshal([]byte(answer.Body), &tokens); err != nil {
		return answer, err
	}
	if g.refresh != "" {
		g.used = append(g.used, g.refresh)
	}
	if tokens.ConnectionID != "" {
		g.connectionID = tokens.ConnectionID
	}
	g.refresh, g.renewed = tokens.RefreshToken, a.clock.steady()
	a.tokens = append(a.tokens[max(0, len(a.tokens)+1-keptIDs):],
		token{tokens.AccessToken, g.connectionID, g.refresh, g.code, a.clock.steady(), g})
	a.see(answer.Body)
	return answer, nil
}

// refresh renews the tokens of a grant, as its app does, whose first answer is lost now and then.
func (w *world) refresh(g *family, loses bool) error {
	before, err := w.standingOf(g.connectionID)
	if err != nil {
		return err
	}
	key, was := id.NewUUID(), g.refresh
	answer, err := w.api.trade(g, key, "grant_type", "refresh_token", "refresh_token", was)
	if err != nil || answer.Status != http.StatusOK {
		return err
	}
	if g.ended != "" || before.status == "revoked" || before.isIdle || before.isClosed {
		return fmt.Errorf("access: %s is renewed, whose family has ended by %q, %+v", g.connectionID, g.ended, before)
	}
	if !loses {
		return nil
	}
	won := g.refresh
	again, err := w.api.trade(g, key, "grant_type", "refresh_token", "refresh_token", was)
	if err == nil && again.Status == http.StatusOK && g.refresh != won {
		err = errors.New("access: a refresh that is repeated with its key gives other tokens")
	}
	g.used = slices.DeleteFunc(g.used, func(text string) bool { return text == g.refresh })
	return err
}

// renew renews the tokens of some app.
func (w *world) renew(s bank.Step) error {
	if len(w.api.grants) == 0 {
		return nil
	}
	return w.refresh(w.api.grants[s.A%len(w.api.grants)], s.B%2 == 0)
}

// secrets are what a stranger may hold, each with what happens when it is used: it is refused, and what ends by that.
var secrets = []struct {
	name string
	use  func(w *world, g *family) (bank.Answer, error)
	ends bool
}{
	{"a code that was used", func(w *world, g *family) (bank.Answer, error) {
		w.Pass(3 * time.Second) // until then it may have lost a race
		return w.api.trade(&family{app: g.app}, "", "grant_type", "authorization_code", "code", g.code,
			"redirect_uri", back, "code_verifier", verifier)
	}, true},
	{"a refresh token that was used", func(w *world, g *family) (bank.Answer, error) {
		if len(g.used) == 0 {
			return bank.Answer{Status: http.StatusBadRequest, Body: "none"}, nil
		}
		w.Pass(3 * time.Second) // likewise
		return w.api.trade(&family{app: g.app}, id.NewUUID(), "grant_type", "refresh_token", "refresh_token",
			g.used[len(g.used)-1])
	}, true},
	{"a refresh token of another app", func(w *world, g *family) (bank.Answer, error) {
		for _, app := range w.money.Apps {
			if other := w.api.apps[app.ID]; other != g.app {
				return w.api.trade(&family{app: other}, "", "grant_type", "refresh_token", "refresh_token", g.refresh)
			}
		}
		return bank.Answer{}, nil
	}, false},
	{"a refresh token and a client id", func(w *world, g *family) (bank.Answer, error) {
		return w.api.trade(&family{app: credentials{g.app.clientID, "guessed"}}, "", "grant_type", "refresh_token",
			"refresh_token", g.refresh)
	}, false},
	{"a client secret in place of a token", func(w *world, g *family) (bank.Answer, error) {
		return w.send(context.Background(), nil, "GET", "/v1/connection", "", "Authorization", "Bearer "+g.app.secret)
	}, false},
	{"a refresh token in place of an access token", func(w *world, g *family) (bank.Answer, error) {
		return w.send(context.Background(), nil, "GET", "/v1/connection", "", "Authorization", "Bearer "+g.refresh)
	}, false},
	{"an access token in place of the operator's", func(w *world, _ *family) (bank.Answer, error) {
		return w.send(context.Background(), nil, "GET", "/v1/operator/accounts", "", "Authorization",
			"Bearer "+w.api.token(0))
	}, false},
	{"an event of Stripe's that is signed by another", func(w *world, _ *family) (bank.Answer, error) {
		return w.send(context.Background(), nil, "POST", "/stripe/events", `{"id":"evt_1","type":"charge.refunded"}`,
			"Content-Type", "application/json", "Stripe-Signature", "t=1,v1=00")
	}, false},
}

// steal lets a stranger use a secret.
func (w *world) steal(s bank.Step) error {
	if len(w.api.grants) == 0 {
		return nil
	}
	how, g := secrets[s.B%len(secrets)], w.api.grants[s.A%len(w.api.grants)]
	answer, err := how.use(w, g)
	if err != nil {
		return err
	}
	if answer.Status < 400 {
		return fmt.Errorf("access: a stranger with %s is answered by %d: %s", how.name, answer.Status, answer.Body)
	}
	if how.ends && strings.Contains(answer.Body, `"reason":"used"`) {
		g.ended = how.name
	}
	return nil
}
