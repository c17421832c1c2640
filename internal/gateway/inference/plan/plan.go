// Package plan decides everything about a text call that needs no transaction: what the
// request asks for, which model serves it, how much output it may have, what its hold
// is, and which limits bound it (contract §2, §4.3; decision 008). It is pure: it does
// no I/O, and the time is an argument.
package plan

import (
	"math"
	"slices"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/pricing"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/tokens"
)

// A Route is the way by which a call came in.
type Route struct {
	Path  string // part of the fingerprint: "ai/gpt-…", "ai/features/slug", "chat/completions"
	Model string // named by the path; "" = not there
	Slug  string // of the feature route
	Chat  bool   // the OpenAI-compatible route: svc_final rides in an ordinary chunk
}

// Input is what a plan is made from.
type Input struct {
	Request *Request
	Route   Route
	Feature string // the slug as sent; "" = none
	Fit     *bool  // header X-Svc-Fit; nil = as feature and app say
	Caller  *callers.Caller
	Catalog *catalog.Catalog
	Policy  *policy.Policy

	// Calibrate corrects our count of a model's input tokens by what its earlier calls
	// have shown; nil corrects nothing.
	Calibrate func(model string, counted int64) int64

	Now time.Time
}

// A Plan is a call as it is decided before money moves. It is not changed once it is
// made: what is known later (the attempt, the request id, who pays) is the attempt's.
type Plan struct {
	Route        Route
	Request      provider.Request // the canonical request, without the request id
	IncludeUsage bool             // stream_options.include_usage
	Images       int
	Feature      policy.Feature
	Model        catalog.Model
	Rates        catalog.Rates

	CappedBy  string // where the output cap came from: CappedByRequest, …; "" = there is no output
	MinTokens int64  // the lowest output cap to which the hold may lower it; 0 = it may not

	Ignored []string // members, by their canonical names, that the model does not take as they are (fitRequest)

	CountedTokens int64 // input tokens by our count
	InputTokens   int64 // the same, calibrated: the hold is made for them

	Shares policy.Shares // what the wallet's charge adds to the provider cost

	// Demand is the hold to ask for: by the wallet's terms, with free credit's terms as
	// the alternative, and with every limit. What names call, attempt and node is not in
	// it yet.
	Demand rules.Hold
}

// New makes the plan of a call. Its checks are in the order of decision 008. If the
// call cannot be priced, the error comes with a plan, which names feature and model.
func New(in *Input) (*Plan, error) {
	p := &Plan{
		Route:        in.Route,
		Request:      in.Request.Request,
		IncludeUsage: in.Request.IncludeUsage,
		Images:       in.Request.Images,
		Feature:      policy.ResolveFeature(in.Caller.Features, in.Feature),
	}
	if err := in.Caller.CheckFeature(in.Feature); err != nil {
		return nil, err
	}
	p.Request.CacheKey = chooseCacheKey(in)
	p.Shares = policy.Shares{Margin: p.Feature.Margin(&in.Caller.App), Fee: in.Policy.Fee}
	model, err := p.chooseModel(in.Request.BodyModel)
	if err != nil {
		return nil, err
	}
	if err := p.setModel(model, in); err != nil {
		return nil, err
	}
	p.resolveOutputCap(&in.Caller.App)
	if err := p.fitRequest(); err != nil {
		return nil, err
	}
	if err := p.checkModel(); err != nil {
		return nil, err
	}
	least := p.leastTokens()
	if p.Request.MaxTokens < least {
		return nil, invalid("max_tokens: %s takes at least %d in this call", model, least)
	}
	if fit, minTokens := p.Feature.Fit(&in.Caller.App); in.Fit == nil && fit || in.Fit != nil && *in.Fit {
		p.MinTokens = min(max(minTokens, least), p.Request.MaxTokens)
	}
	return p, p.price(in)
}

// WithImages returns the plan of the same call for the request whose images were read:
// their sizes decide how many input tokens are counted.
func (p *Plan) WithImages(request *provider.Request, in *Input) (*Plan, error) {
	next := *p
	next.Request = *request
	return &next, next.price(in)
}

// chooseModel returns the id of the model that the call names.
func (p *Plan) chooseModel(bodyModel string) (string, error) {
	model := p.Route.Model
	switch f := p.Feature.Registered; {
	case p.Route.Slug != "" && f == nil:
		return "", apierr.InvalidRequest.Errorf(
			"feature %q is not registered; register it, or call POST /v1/ai/{model}", p.Feature.Slug)
	case p.Route.Slug != "" && f.DefaultModel == nil:
		return "", apierr.FeatureModelNotConfigured.Errorf(
			"feature %q has no default_model; set one, or call POST /v1/ai/{model}", p.Feature.Slug)
	case p.Route.Slug != "":
		model = *f.DefaultModel
	case p.Route.Chat:
		if model = bodyModel; model == "" {
			return "", invalid("model: required on this route")
		}
	}
	if bodyModel != "" && bodyModel != model {
		return "", invalid("model: %q differs from the model of this route, %q; leave it out", bodyModel, model)
	}
	return model, nil
}

// setModel looks the model up in the price list.
func (p *Plan) setModel(model string, in *Input) error {
	var ok bool
	if p.Model, p.Rates, ok = in.Catalog.Find(model, in.Now); !ok {
		return invalid("model: %q is not offered; GET /v1/models lists what is", model)
	}
	if p.Model.Realtime {
		return invalid("model: %q speaks in voice sessions only; POST /v1/realtime/sessions begins one", model)
	}
	if p.Model.Transcription {
		return invalid("model: %q writes down what users say in voice sessions only", model)
	}
	switch embeds := p.Request.Embedding != nil; {
	case embeds && !p.Model.Embedding:
		return invalid("model: %q makes no embeddings; capabilities.embeddings in GET /v1/models says which do", model)
	case !embeds && p.Model.Embedding:
		return invalid("model: %q makes embeddings only; POST /openai/v1/embeddings calls it", model)
	}
	if !policy.AllowsModel(&in.Caller.App, model) {
		return apierr.ModelNotAllowed.Errorf("model %q is not among the app's allowed models", model)
	}
	p.Request.Model = model
	p.Request.Facts = provider.ModelFacts{
		Thinking:    p.Model.Thinking,
		Prefill:     p.Model.Prefill,
		Vision:      p.Model.Vision,
		Temperature: p.Model.Temperature,
		Dimensions:  p.Model.MaxDimensions,
	}
	return nil
}

// checkModel refuses what the model cannot do.
func (p *Plan) checkModel() error {
	m, r := &p.Model, &p.Request
	if r.Embedding != nil {
		return p.setEmbedding()
	}
	tools, choice := len(r.Tools) > 0, r.ToolChoice.Mode
	switch {
	case r.MaxTokens > m.MaxOutputTokens:
		return invalid("max_tokens: %s allows at most %d", m.ID, m.MaxOutputTokens)
	case p.Images > 0 && !m.Vision:
		return invalid("messages: %s does not read images", m.ID)
	case p.Images > maxImagesOf(m):
		return invalid("messages: %s reads at most %d images in a request", m.ID, maxImagesOf(m))
	case tools && !m.Tools:
		return invalid("tools: %s does not call tools", m.ID)
	case (choice == "required" || choice == "function") && !m.ForcedToolChoice:
		return invalid("tool_choice: %s cannot be forced to call a tool; use auto", m.ID)
	}
	return nil
}

// maxImagesOf returns how many images a model reads in one request (provider notes B.4).
func maxImagesOf(m *catalog.Model) int {
	switch {
	case m.Provider != "anthropic":
		return math.MaxInt
	case m.ContextTokens <= 200_000:
		return 100
	}
	return 600
}

// resolveOutputCap sets the output cap: the request's, or else the feature's, the app's
// or the model's (contract §2, holds 5). An embedding has no output and no cap.
func (p *Plan) resolveOutputCap(app *apps.App) {
	ceiling := p.Model.MaxOutputTokens
	switch f := p.Feature.Registered; {
	case p.Model.Embedding:
	case p.Request.MaxTokens > 0:
		p.CappedBy = CappedByRequest
	case f != nil && f.MaxTokens != nil:
		p.CappedBy, p.Request.MaxTokens = CappedByFeature, min(*f.MaxTokens, ceiling)
	case app.DefaultMaxTokens != nil:
		p.CappedBy, p.Request.MaxTokens = CappedByApp, min(*app.DefaultMaxTokens, ceiling)
	default:
		p.CappedBy, p.Request.MaxTokens = CappedByModel, ceiling
	}
}

// price counts the input tokens and computes the hold (contract §2, holds 3; decision
// 017).
func (p *Plan) price(in *Input) error {
	p.CountedTokens = tokens.CountRequest(&p.Request, p.Model.Family)
	p.InputTokens = p.CountedTokens
	if in.Calibrate != nil && !p.CountIsExact() {
		p.InputTokens = in.Calibrate(p.Model.ID, p.CountedTokens)
	}
	if p.Model.Provider == "anthropic" && marksPrefixes(in) { // only this provider takes marks
		markPrefix(&p.Request, p.CountedTokens, p.Rates)
	}
	holdMC, costMC, err := p.priceCap(p.Request.MaxTokens)
	if err != nil {
		return tooLarge()
	}
	terms := policy.Terms{
		Shares:        p.Shares,
		Rates:         p.Rates.Snapshot(),
		InputTokens:   p.InputTokens,
		CountedTokens: p.CountedTokens,
		MaxTokens:     p.Request.MaxTokens,
		Mock:          in.Caller.App.ProviderMode == apps.Mock,
	}
	priceCap := p.priceCap
	if p.Model.Embedding {
		priceCap = nil // there is no output cap that could be lowered
	}
	p.Demand = in.Policy.Demand(&policy.Call{
		Call: rules.Call{
			ConnectionID: in.Caller.ConnectionID,
			AccountID:    in.Caller.AccountID,
			AppID:        in.Caller.App.ID,
			Feature:      p.Feature.Slug,
			FeatureLabel: p.Feature.Label,
			Model:        p.Model.ID,
			Terms:        terms.JSON(),
			HoldMC:       holdMC,
		},
		PriceTerms: terms,
		CostMC:     costMC,
		PriceCap:   priceCap,
		MinTokens:  p.MinTokens,
		App:        &in.Caller.App,
		ChildID:    in.Caller.ChildID(),
		Guardrails: p.Feature.Guardrails(),
	}, in.Now)
	return nil
}

// priceCap returns the hold of the call with an output cap: by the wallet's terms, and at
// provider cost.
func (p *Plan) priceCap(maxTokens int64) (holdMC, costMC money.MC, err error) {
	if holdMC, err = pricing.EstimateHold(p.Rates, p.InputTokens, maxTokens, p.Shares.Margin,
		p.Shares.Fee); err != nil {
		return 0, 0, err
	}
	costMC, err = pricing.EstimateHold(p.Rates, p.InputTokens, maxTokens, 0, 0)
	return holdMC, costMC, err
}

func tooLarge() error { return invalid("max_tokens: this call is too large to price") }

// CopyRequest returns a copy of the canonical request into which its images may be read.
func (p *Plan) CopyRequest() *provider.Request {
	request := p.Request
	request.Turns = slices.Clone(request.Turns)
	for i := range request.Turns {
		t := &request.Turns[i]
		if !t.Has(conversation.ImageBlock) {
			continue
		}
		t.Blocks = slices.Clone(t.Blocks)
		for j := range t.Blocks {
			if p := t.Blocks[j].Picture; p != nil {
				picture := *p
				t.Blocks[j].Picture = &picture
			}
		}
	}
	return &request
}
