package console

import (
	"bytes"
	"cmp"
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
	"github.com/purserhq/purser/internal/gateway/inference"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/models/catalog"
)

// playgroundCap is the spend cap of a connection that the playground creates.
const playgroundCap = 10 * money.Dollar

// maxPromptBytes is the maximum length of a prompt in the playground.
const maxPromptBytes = 20_000

// maxPlaygroundTokens is the highest output limit of the form.
const maxPlaygroundTokens = 4000

// playgroundPages make calls for test accounts.
type playgroundPages struct {
	DB       *db.DB
	Features *features.Store
	Sandbox  *sandbox.Store
	Tokens   *oauth.Store
	Calls    *inference.Handler
	API      http.Handler
	BaseURL  string
	modelOffer
}

func (h playgroundPages) mount(rt *web.Router, access access) {
	rt.HandlePage("GET "+appPath+"/playground", access.requireApp(apps.RunCalls, h.showPlayground))
	rt.HandlePage("POST "+appPath+"/playground", access.requireApp(apps.RunCalls, h.runCall))
	rt.HandlePage("POST "+appPath+"/playground/stream", access.requireApp(apps.RunCalls, h.streamCall))
	rt.HandlePage("POST "+appPath+"/playground/stop", access.requireApp(apps.RunCalls, h.stopCall))
	rt.HandlePage("POST "+appPath+"/playground/code", access.requireApp(apps.RunCalls, h.writeCode))
}

// playgroundPage returns the page with its form, and the test accounts that the form offers.
func (h playgroundPages) playgroundPage(r *http.Request, v visit) (ui.Playground, []sandbox.TestAccount, error) {
	page := ui.Playground{Console: v.newPage(r, "Playground", "/playground"), Playgrounds: v.playgroundTabs("")}
	fields, testAccounts, why, err := h.callFields(r.Context(), v, false)
	if page.Why = why; err != nil || why != "" {
		return page, nil, err
	}
	page.Fields = fields[:len(fields)-1] // the models have more to say
	page.Models = h.playgroundModels(v)
	for _, m := range page.Models {
		for _, effort := range strings.Fields(m.Efforts) {
			if !slices.Contains(page.Efforts, effort) {
				page.Efforts = append(page.Efforts, effort)
			}
		}
	}
	page.Parameters = []ui.Field{
		{ID: "system", Label: "System prompt", Kind: "area"},
		{ID: "max_tokens", Label: "Output limit (tokens)", Kind: "number", Value: "500"},
		{ID: "temperature", Label: "Temperature", Kind: "number", Hint: "0 to 2; empty for the model’s default"},
	}
	page.Prompt = "Say hello in three languages."
	return page, testAccounts, nil
}

// isPlayable reports whether the playground offers a model: only realtime models, or only others.
func isPlayable(v visit, m catalog.Listing, realtime bool) bool {
	return m.Capabilities.Realtime == realtime && !m.Capabilities.Embeddings &&
		(len(v.app.AllowedModels) == 0 || slices.Contains(v.app.AllowedModels, m.ID))
}

// playgroundModels returns the models that the text playground offers, the cheapest first.
func (h playgroundPages) playgroundModels(v visit) (list []ui.PlaygroundModel) {
	prices := map[string]money.MC{}
	for _, m := range h.Catalog.Current().Offered(h.Now()) {
		if !isPlayable(v, m, false) {
			continue
		}
		_, rates, _ := h.Catalog.Current().Find(m.ID, h.Now())
		step := rates.Steps[0]
		prices[m.ID] = step.Output
		list = append(list, ui.PlaygroundModel{
			ID:          m.ID,
			InputPrice:  estimatedPrice(step.Input, v.app.DevMargin),
			OutputPrice: estimatedPrice(step.Output, v.app.DevMargin),
			Temperature: m.Capabilities.Temperature,
			Tools:       m.Capabilities.Tools,
			Vision:      m.Capabilities.Vision,
			Efforts:     strings.Join(m.Capabilities.ReasoningEfforts, " "),
		})
	}
	slices.SortStableFunc(list, func(a, b ui.PlaygroundModel) int { return cmp.Compare(prices[a.ID], prices[b.ID]) })
	return list
}

// estimatedPrice returns what a user pays for a million tokens, in micro-cents and without the fee, for the estimate
// that the page shows until the bill comes.
func estimatedPrice(price money.MC, margin money.PPM) string {
	return strconv.FormatInt(int64(price)+int64(price)/int64(money.One)*int64(margin), 10)
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
		if isPlayable(v, m, realtime) {
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
	request, found := parseCall(form)
	page.Fields = withErrors(withValues(page.Fields, form), found)
	page.Parameters = withErrors(withValues(page.Parameters, form), found)
	page.Prompt, page.PromptError = form.Get("prompt"), problemOf(found, "prompt")
	for i := range page.Models {
		page.Models[i].Chosen = page.Models[i].ID == form.Get("model")
	}
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
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("console: playground: %w", err)
	}
	feature := form.Get("feature")
	answer := h.postJSON(r.Context(), "/v1/chat/completions", string(body), tokens.AccessToken, callHeaders(feature))
	if err := h.Tokens.RevokeToken(context.WithoutCancel(r.Context()), v.app.ID, tokens.RefreshToken); err != nil {
		return err
	}
	page.Result = describeResult(answer)
	page.Result.Code = callCode(h.BaseURL, feature, request)
	requestID := answer.header.Get("X-Request-Id")
	// not every refusal is recorded
	if _, err := store.GetRefusal(r.Context(), h.DB, requestID); page.Result.OK || err == nil {
		page.Result.Log = v.path("/requests/" + requestID)
	} else if !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("console: refusal: %w", err)
	}
	return ui.Render(w, http.StatusOK, page)
}

// parseCall reads the form that the page posts without its script, and returns the body of the request.
func parseCall(form url.Values) (request map[string]json.RawMessage, found []ui.Problem) {
	limit, err := strconv.ParseInt(strings.TrimSpace(form.Get("max_tokens")), 10, 64)
	if err != nil || limit < 1 || limit > maxPlaygroundTokens {
		found = append(found, ui.Problem{
			Field: "max_tokens",
			Text:  fmt.Sprintf("Output limit: enter a whole number from 1 to %d.", maxPlaygroundTokens),
		})
	}
	prompt, system := form.Get("prompt"), strings.TrimSpace(form.Get("system"))
	if strings.TrimSpace(prompt) == "" || len(prompt) > maxPromptBytes {
		found = append(found,
			ui.Problem{Field: "prompt", Text: "Prompt: enter 1 to " + ui.Count(maxPromptBytes) + " bytes."})
	}
	if len(system) > maxPromptBytes {
		found = append(found,
			ui.Problem{Field: "system", Text: "System prompt: enter at most " + ui.Count(maxPromptBytes) + " bytes."})
	}
	request = map[string]json.RawMessage{
		"model":      json.RawMessage(quoteJSON(form.Get("model"))),
		"max_tokens": json.RawMessage(strconv.FormatInt(limit, 10)),
	}
	messages := `{"role":"user","content":` + quoteJSON(prompt) + `}`
	if system != "" {
		messages = `{"role":"system","content":` + quoteJSON(system) + `},` + messages
	}
	request["messages"] = json.RawMessage(`[` + messages + `]`)
	if text := strings.TrimSpace(form.Get("temperature")); text != "" {
		value, err := strconv.ParseFloat(text, 64)
		if err != nil || !(value >= 0 && value <= 2) {
			found = append(found,
				ui.Problem{Field: "temperature", Text: "Temperature: enter a number from 0 to 2."})
		} else {
			request["temperature"] = json.RawMessage(strconv.FormatFloat(value, 'f', -1, 64))
		}
	}
	return request, found
}

// problemOf returns the problem of a field, or "".
func problemOf(found []ui.Problem, field string) string {
	for _, p := range found {
		if p.Field == field {
			return p.Text
		}
	}
	return ""
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

// callHeaders returns the headers of a new call for a feature; "" = none.
func callHeaders(feature string) http.Header {
	more := http.Header{"Idempotency-Key": {id.NewUUID()}}
	if feature != "" {
		more.Set(web.FeatureHeader, feature)
	}
	return more
}

// postJSON posts JSON to this node's own API, and records the response.
func (h playgroundPages) postJSON(ctx context.Context, path, body, token string, more http.Header) *recorder {
	a := &recorder{header: http.Header{}}
	h.postTo(ctx, a, path, body, token, more)
	return a
}

// postTo posts JSON to this node's own API, as an app's server would.
func (h playgroundPages) postTo(ctx context.Context, w http.ResponseWriter, path, body, token string,
	more http.Header) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(body))
	if err != nil {
		panic("console: the path is valid: " + err.Error())
	}
	maps.Copy(req.Header, more)
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	req.RequestURI, req.RemoteAddr = req.URL.Path, "127.0.0.1:0"
	h.API.ServeHTTP(w, req)
}

// describeResult returns the response to a call for the page.
func describeResult(a *recorder) *ui.PlaygroundResult {
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
		Error struct {
			Code, Message string
			DocURL        string `json:"doc_url"`
		}
	}
	p := &ui.PlaygroundResult{Status: strconv.Itoa(a.status), Raw: indentJSON(a.body.Bytes())}
	if err := json.Unmarshal(a.body.Bytes(), &body); err != nil || a.status != http.StatusOK || len(body.Choices) == 0 {
		p.Answer, p.DocURL = ui.Sentence(body.Error.Message)+" ("+body.Error.Code+")", body.Error.DocURL
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
