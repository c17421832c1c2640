package console

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/apps/sandbox"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/ledger/tiers"
	"github.com/purserhq/purser/internal/people/accounts"
)

// playCap is the cap of a connection that the playground makes.
const playCap = 10 * money.Dollar

// maxPrompt is how long a prompt of the playground may be, in bytes.
const maxPrompt = 20_000

// playgroundPage is the form, and the test accounts that can be chosen in it.
func (h *Handler) playgroundPage(r *http.Request, v visit) (ui.Playground, []sandbox.TestAccount, error) {
	page := ui.Playground{Console: v.page(r, "Playground", "/playground"), Plays: v.plays("")}
	fields, people, why, err := h.players(r.Context(), v, false)
	if page.Why = why; err != nil || why != "" {
		return page, nil, err
	}
	page.Fields = append(fields,
		ui.Field{ID: "max_tokens", Label: "Output limit (tokens)", Kind: "number", Value: "200"},
		ui.Field{ID: "prompt", Label: "Prompt", Kind: "area", Value: "Say hello in three languages."},
	)
	return page, people, nil
}

// plays are the playgrounds; at is the one that is shown.
func (v visit) plays(at string) (list []ui.Tab) {
	for _, t := range []struct{ rest, text string }{{"", "Text"}, {"/voice", "Voice"}} {
		list = append(list, ui.Tab{Href: v.path("/playground" + t.rest), Text: t.text, Current: t.rest == at})
	}
	return list
}

// players are the fields that choose who calls what, of the models that speak or of
// the others, and the test accounts to choose from; why says that nobody can call.
func (h *Handler) players(ctx context.Context, v visit,
	realtime bool) (fields []ui.Field, people []sandbox.TestAccount, why string, err error) {
	if v.app.Tier != apps.Sandbox {
		return nil, nil, "This app is live, and test accounts can’t use it. Create another app for the playground.", nil
	}
	people, err = h.Sandbox.List(ctx, v.ID)
	// it belongs to somebody
	people = slices.DeleteFunc(people, func(t sandbox.TestAccount) bool { return t.TesterID != "" })
	if err != nil {
		return nil, nil, "", err
	}
	if len(people) == 0 {
		return nil, nil, "The playground needs a test account. Create one under Test accounts.", nil
	}
	list, err := h.Features.ListAll(ctx, v.app.ID)
	if err != nil {
		return nil, nil, "", err
	}
	who := ui.Field{
		ID:    "account",
		Label: "Run as",
		Kind:  "select",
		Hint:  "Connects it to the app with a spend cap of " + ui.Dollars(playCap) + ", if needed.",
	}
	for _, t := range people {
		who.Options = append(who.Options,
			ui.Option{ID: t.ID, Text: t.Email + ", " + ui.Dollars(t.Balance.AvailableMC) + " available"})
	}
	feature := ui.Field{ID: "feature", Label: "Feature", Kind: "select", Options: []ui.Option{{Text: "None"}}}
	for _, f := range list {
		feature.Options = append(feature.Options, ui.Option{ID: f.Slug, Text: f.DisplayName + " (" + f.Slug + ")"})
	}
	model := ui.Field{ID: "model", Label: "Model", Kind: "select"}
	for _, m := range h.Catalog.Current().Offered(h.Now()) {
		if m.Capabilities.Realtime == realtime && (len(v.app.AllowedModels) == 0 ||
			slices.Contains(v.app.AllowedModels, m.ID)) {
			model.Options = append(model.Options, ui.Option{ID: m.ID, Text: m.ID})
		}
	}
	if len(model.Options) == 0 {
		return nil, nil, "None of the app’s allowed models can be used here. Change them in its settings.", nil
	}
	return []ui.Field{who, feature, model}, people, "", nil
}

// chosen is the test account that a form names, or 404.
func chosen(people []sandbox.TestAccount, form url.Values) (sandbox.TestAccount, error) {
	i := slices.IndexFunc(people, func(t sandbox.TestAccount) bool { return t.ID == form.Get("account") })
	if i < 0 {
		return sandbox.TestAccount{}, ui.NotFound()
	}
	return people[i], nil
}

// playground is GET /developer/apps/{id}/playground.
func (h *Handler) playground(w http.ResponseWriter, r *http.Request, v visit) error {
	page, _, err := h.playgroundPage(r, v)
	if err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, page)
}

// play is POST /developer/apps/{id}/playground: one call through this node's own
// API, with a token that is worthless afterwards.
func (h *Handler) play(w http.ResponseWriter, r *http.Request, v visit) error {
	page, people, err := h.playgroundPage(r, v)
	if err != nil {
		return err
	}
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	who, err := chosen(people, form)
	if err != nil {
		return err
	}
	c, found := playCall(form.Get("model"), form.Get("feature"), form.Get("max_tokens"), form.Get("prompt"))
	c.BaseURL = h.BaseURL
	page.Fields = beside(typed(page.Fields, form), found)
	if page.Errors = found; len(found) > 0 {
		return ui.Render(w, http.StatusUnprocessableEntity, page)
	}
	tokens, err := h.borrow(r.Context(), v.app.ID, who.Account)
	if err != nil {
		if page.Errors = problems(err, nil); page.Errors == nil {
			return gone(err)
		}
		return ui.Render(w, http.StatusUnprocessableEntity, page)
	}
	answer := h.send(r.Context(), c, tokens.AccessToken)
	if err := h.Tokens.RevokeToken(context.WithoutCancel(r.Context()), v.app.ID, tokens.RefreshToken); err != nil {
		return err
	}
	page.Result = played(c, answer)
	requestID := answer.header.Get("X-Request-Id")
	// not every refusal is kept
	if _, err := store.GetRefusal(r.Context(), h.DB, requestID); page.Result.OK || err == nil {
		page.Result.Log = v.path("/requests/" + requestID)
	} else if !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("console: refusal: %w", err)
	}
	return ui.Render(w, http.StatusOK, page)
}

// playCall reads the form.
func playCall(model, feature, limit, prompt string) (call, []ui.Problem) {
	c := call{Model: model, Feature: feature, Prompt: prompt}
	var found []ui.Problem
	var err error
	if c.MaxTokens, err = strconv.ParseInt(strings.TrimSpace(limit), 10, 64); err != nil || c.MaxTokens < 1 ||
		c.MaxTokens > 4000 {
		found = append(found,
			ui.Problem{Field: "max_tokens", Text: "Output limit: enter a whole number from 1 to 4000."})
	}
	if strings.TrimSpace(prompt) == "" || len(prompt) > maxPrompt {
		found = append(found,
			ui.Problem{Field: "prompt", Text: "Prompt: enter 1 to " + ui.Count(maxPrompt) + " bytes."})
	}
	return c, found
}

// borrow connects a test account to the app, unless it is already, and returns a
// token for one call. As at the token endpoint, the app and the account stay what
// they are until the connection is made (I29).
func (h *Handler) borrow(ctx context.Context, appID string,
	person accounts.Account) (t oauth.TokenResponse, err error) {
	err = h.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		app, err := apps.LockShared(ctx, tx, appID)
		if err != nil {
			return err
		}
		a, err := accounts.Lock(ctx, tx, person.ID)
		if err != nil {
			return err
		}
		if app.Tier != apps.Sandbox || a.OwnerID != app.OwnerID || a.Deactivated {
			return sql.ErrNoRows
		}
		conn, err := store.LiveConnection(ctx, tx, appID, a.ID)
		if errors.Is(err, sql.ErrNoRows) {
			var done rules.Result
			done, err = h.Ledger.DoTx(ctx, tx, rules.Connect{
				ConnectionID: id.New(id.Connection, h.Now()),
				AppID:        appID,
				AccountID:    a.ID,
				Sandbox:      true,
				RequestedMC:  playCap,
				MaxMC:        tiers.PolicyOf(app.Tier).MaxCapMC,
			})
			conn = done.Connection
		}
		if err != nil {
			return err
		}
		t, err = h.Tokens.IssueTokens(ctx, tx, conn.ID, appID, "")
		return err
	})
	if err != nil {
		return t, fmt.Errorf("console: playground: %w", err)
	}
	return t, nil
}

// A recorder keeps the answer of a request that never leaves the process.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header returns the answer's header.
func (a *recorder) Header() http.Header { return a.header }

// WriteHeader keeps the status.
func (a *recorder) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

// Write keeps the body.
func (a *recorder) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// send makes the call as an app's server would, but for the wire.
func (h *Handler) send(ctx context.Context, c call, token string) *recorder {
	more := http.Header{"Idempotency-Key": {id.NewUUID()}}
	if c.Feature != "" {
		more.Set(web.FeatureHeader, c.Feature)
	}
	return h.ask(ctx, "/v1/chat/completions", c.body(), token, more)
}

// ask posts JSON to this node's own API.
func (h *Handler) ask(ctx context.Context, path, body, token string, more http.Header) *recorder {
	a := &recorder{header: http.Header{}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(body))
	if err != nil {
		panic("console: the path is one: " + err.Error())
	}
	maps.Copy(req.Header, more)
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	req.RequestURI, req.RemoteAddr = req.URL.Path, "127.0.0.1:0"
	h.API.ServeHTTP(a, req)
	return a
}

// played reads an answer for people.
func played(c call, a *recorder) *ui.Played {
	var body struct {
		Choices []struct{ Message struct{ Content string } }
		Svc     struct {
			HoldMC      money.MC `json:"hold_amount_mc"`
			CostMC      money.MC `json:"provider_cost_mc"`
			FeeMC       money.MC `json:"svc_fee_mc"`
			MarginMC    money.MC `json:"dev_margin_mc"`
			ChargeMC    money.MC `json:"user_charge_mc"`
			RemainingMC money.MC `json:"allocation_remaining_mc"`
		}
		Error struct{ Code, Message string }
	}
	p := &ui.Played{Status: strconv.Itoa(a.status), Raw: indented(a.body.Bytes()), Code: calls(c)}
	if err := json.Unmarshal(a.body.Bytes(), &body); err != nil || a.status != http.StatusOK || len(body.Choices) == 0 {
		p.Answer = sentence(body.Error.Message) + " (" + body.Error.Code + ")"
		return p
	}
	p.OK, p.Answer = true, body.Choices[0].Message.Content
	p.Money = []ui.Fact{
		{Name: "Provider cost", Value: body.Svc.CostMC.Display()},
		{Name: "Service fee", Value: body.Svc.FeeMC.Display()},
		{Name: "Your margin", Value: body.Svc.MarginMC.Display()},
		{Name: "Charge", Value: body.Svc.ChargeMC.Display()}, {Name: "Authorized", Value: body.Svc.HoldMC.Display()},
		{Name: "Remaining spend cap", Value: body.Svc.RemainingMC.Display()},
	}
	return p
}
