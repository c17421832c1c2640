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
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/apps/sandbox"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/store"
)

// playgroundCap is the spend cap of a connection that the playground creates.
const playgroundCap = 10 * money.Dollar

// maxPromptBytes is the maximum length of a prompt in the playground.
const maxPromptBytes = 20_000

// playgroundPages make calls for test accounts.
type playgroundPages struct {
	DB       *db.DB
	Features *features.Store
	Sandbox  *sandbox.Store
	Tokens   *oauth.Store
	API      http.Handler
	BaseURL  string
	modelOffer
}

func (h playgroundPages) mount(rt *web.Router, access access) {
	rt.HandlePage("GET "+appPath+"/playground", access.requireApp(apps.RunCalls, h.showPlayground))
	rt.HandlePage("POST "+appPath+"/playground", access.requireApp(apps.RunCalls, h.runCall))
}

// playgroundPage returns the page with its form, and the test accounts that the form offers.
func (h playgroundPages) playgroundPage(r *http.Request, v visit) (ui.Playground, []sandbox.TestAccount, error) {
	page := ui.Playground{Console: v.newPage(r, "Playground", "/playground"), Playgrounds: v.playgroundTabs("")}
	fields, testAccounts, why, err := h.callFields(r.Context(), v, false)
	if page.Why = why; err != nil || why != "" {
		return page, nil, err
	}
	page.Fields = append(fields,
		ui.Field{ID: "max_tokens", Label: "Output limit (tokens)", Kind: "number", Value: "200"},
		ui.Field{ID: "prompt", Label: "Prompt", Kind: "area", Value: "Say hello in three languages."},
	)
	return page, testAccounts, nil
}

// playgroundTabs returns the tabs of the text and the voice playground; tab is the current one.
func (v visit) playgroundTabs(tab string) (list []ui.Tab) {
	for _, t := range []struct{ rest, text string }{{"", "Text"}, {"/voice", "Voice"}} {
		list = append(list, ui.Tab{Href: v.path("/playground" + t.rest), Text: t.text, Current: t.rest == tab})
	}
	return list
}

// callFields returns the fields for the test account, the feature and the model, and the test accounts to choose from.
// It offers only realtime models, or only others. If no call is possible, why tells the developer the reason.
func (h playgroundPages) callFields(ctx context.Context, v visit,
	realtime bool) (fields []ui.Field, testAccounts []sandbox.TestAccount, why string, err error) {
	if v.app.Tier != apps.Sandbox {
		return nil, nil, "This app is live, and test accounts can’t use it. Create another app for the playground.", nil
	}
	testAccounts, err = h.Sandbox.List(ctx, v.app.OwnerID)
	// Leave out the test accounts of testers: those users decide about them.
	testAccounts = slices.DeleteFunc(testAccounts, func(t sandbox.TestAccount) bool { return t.TesterID != "" })
	if err != nil {
		return nil, nil, "", err
	}
	switch {
	case len(testAccounts) > 0:
	case v.ID == v.app.OwnerID:
		return nil, nil, "The playground needs a test account. Create one under Test accounts.", nil
	default:
		return nil, nil, "The playground needs a test account of the account that created the app. It has none yet.",
			nil
	}
	list, err := h.Features.ListAll(ctx, v.app.ID)
	if err != nil {
		return nil, nil, "", err
	}
	account := ui.Field{
		ID:    "account",
		Label: "Run as",
		Kind:  "select",
		Hint:  "Connects it to the app with a spend cap of " + ui.Dollars(playgroundCap) + ", if needed.",
	}
	for _, t := range testAccounts {
		account.Options = append(account.Options,
			ui.Option{ID: t.ID, Text: t.Email + ", " + ui.Dollars(t.Balance.AvailableMC) + " available"})
	}
	feature := ui.Field{ID: "feature", Label: "Feature", Kind: "select", Options: []ui.Option{{Text: "None"}}}
	for _, f := range list {
		feature.Options = append(feature.Options, ui.Option{ID: f.Slug, Text: f.DisplayName + " (" + f.Slug + ")"})
	}
	model := ui.Field{ID: "model", Label: "Model", Kind: "select"}
	for _, m := range h.Catalog.Current().Offered(h.Now()) {
		if m.Capabilities.Realtime == realtime && !m.Capabilities.Embeddings && (len(v.app.AllowedModels) == 0 ||
			slices.Contains(v.app.AllowedModels, m.ID)) {
			model.Options = append(model.Options, ui.Option{ID: m.ID, Text: m.ID})
		}
	}
	if len(model.Options) == 0 {
		return nil, nil, "None of the app’s allowed models can be used here. Change them in its settings.", nil
	}
	return []ui.Field{account, feature, model}, testAccounts, "", nil
}

// chosenAccount returns the test account that a form names; 404 if there is none.
func chosenAccount(testAccounts []sandbox.TestAccount, form url.Values) (sandbox.TestAccount, error) {
	i := slices.IndexFunc(testAccounts, func(t sandbox.TestAccount) bool { return t.ID == form.Get("account") })
	if i < 0 {
		return sandbox.TestAccount{}, ui.NotFound()
	}
	return testAccounts[i], nil
}

// showPlayground is GET /developer/apps/{id}/playground.
func (h playgroundPages) showPlayground(w http.ResponseWriter, r *http.Request, v visit) error {
	page, _, err := h.playgroundPage(r, v)
	if err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, page)
}

// runCall is POST /developer/apps/{id}/playground: one call to this node's API, with a token that is
// revoked afterwards.
func (h playgroundPages) runCall(w http.ResponseWriter, r *http.Request, v visit) error {
	page, testAccounts, err := h.playgroundPage(r, v)
	if err != nil {
		return err
	}
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	account, err := chosenAccount(testAccounts, form)
	if err != nil {
		return err
	}
	c, found := parseCall(form.Get("model"), form.Get("feature"), form.Get("max_tokens"), form.Get("prompt"))
	c.BaseURL = h.BaseURL
	page.Fields = withErrors(withValues(page.Fields, form), found)
	if page.Errors = found; len(found) > 0 {
		return ui.Render(w, http.StatusUnprocessableEntity, page)
	}
	tokens, err := h.Tokens.ConnectTestAccount(r.Context(), v.app.ID, account.ID, playgroundCap)
	if err != nil {
		if page.Errors = formProblems(err, nil); page.Errors == nil {
			return notFound(err)
		}
		return ui.Render(w, http.StatusUnprocessableEntity, page)
	}
	answer := h.postCompletion(r.Context(), c, tokens.AccessToken)
	if err := h.Tokens.RevokeToken(context.WithoutCancel(r.Context()), v.app.ID, tokens.RefreshToken); err != nil {
		return err
	}
	page.Result = describeResult(c, answer)
	requestID := answer.header.Get("X-Request-Id")
	// not every refusal is recorded
	if _, err := store.GetRefusal(r.Context(), h.DB, requestID); page.Result.OK || err == nil {
		page.Result.Log = v.path("/requests/" + requestID)
	} else if !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("console: refusal: %w", err)
	}
	return ui.Render(w, http.StatusOK, page)
}

// parseCall reads the form.
func parseCall(model, feature, limit, prompt string) (exampleCall, []ui.Problem) {
	c := exampleCall{Model: model, Feature: feature, Prompt: prompt}
	var found []ui.Problem
	var err error
	if c.MaxTokens, err = strconv.ParseInt(strings.TrimSpace(limit), 10, 64); err != nil || c.MaxTokens < 1 ||
		c.MaxTokens > 4000 {
		found = append(found,
			ui.Problem{Field: "max_tokens", Text: "Output limit: enter a whole number from 1 to 4000."})
	}
	if strings.TrimSpace(prompt) == "" || len(prompt) > maxPromptBytes {
		found = append(found,
			ui.Problem{Field: "prompt", Text: "Prompt: enter 1 to " + ui.Count(maxPromptBytes) + " bytes."})
	}
	return c, found
}

// A recorder keeps the response to a request that stays within the process.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header returns the header of the response.
func (a *recorder) Header() http.Header { return a.header }

// WriteHeader records the status.
func (a *recorder) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

// Write records the body.
func (a *recorder) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// postCompletion makes the call as an app's server would.
func (h playgroundPages) postCompletion(ctx context.Context, c exampleCall, token string) *recorder {
	more := http.Header{"Idempotency-Key": {id.NewUUID()}}
	if c.Feature != "" {
		more.Set(web.FeatureHeader, c.Feature)
	}
	return h.postJSON(ctx, "/v1/chat/completions", c.requestBody(), token, more)
}

// postJSON posts JSON to this node's own API.
func (h playgroundPages) postJSON(ctx context.Context, path, body, token string, more http.Header) *recorder {
	a := &recorder{header: http.Header{}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(body))
	if err != nil {
		panic("console: the path is valid: " + err.Error())
	}
	maps.Copy(req.Header, more)
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	req.RequestURI, req.RemoteAddr = req.URL.Path, "127.0.0.1:0"
	h.API.ServeHTTP(a, req)
	return a
}

// describeResult returns the response to a call for the page.
func describeResult(c exampleCall, a *recorder) *ui.PlaygroundResult {
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
	p := &ui.PlaygroundResult{Status: strconv.Itoa(a.status), Raw: indentJSON(a.body.Bytes()), Code: exampleCode(c)}
	if err := json.Unmarshal(a.body.Bytes(), &body); err != nil || a.status != http.StatusOK || len(body.Choices) == 0 {
		p.Answer = ui.Sentence(body.Error.Message) + " (" + body.Error.Code + ")"
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
