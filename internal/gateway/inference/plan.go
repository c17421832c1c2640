package inference

import (
	"slices"
	"strconv"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/tiers"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/estimates"
	"github.com/purserhq/purser/internal/models/pricing"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/tokens"
)

// route is the way a call came in. It is part of the fingerprint, and decides
// how the answer carries its bill.
type route struct {
	path  string // as it stands in the fingerprint: "ai/gpt-…", "ai/features/slug", "chat/completions"
	model string // from the path, "" if it comes from elsewhere
	slug  string // from the path of the feature route
	chat  bool   // the drop-in route: svc_final rides in an ordinary chunk
}

// plan is everything about a call that is decided before money moves.
type plan struct {
	*parsed
	route   route
	feature string // the slug as sent, "" = none
	bucket  string // where analytics count it
	guard   *features.Feature
	model   catalog.Model
	rates   catalog.Rates
	margin  money.PPM
	fee     money.PPM
	input   int64 // counted input tokens
	held    int64 // the same, corrected by what this model's counts have missed
	holdMC  money.MC
	terms   string
	maxCost *money.MC
}

// newPlan decides model, output cap, price, hold and limits. It is pure; the
// order of its checks is that of decisions, 'Order of checks'.
func newPlan(p *parsed, rt route, header string, app *apps.App, registered map[string]features.Feature, book *catalog.Catalog, drift *estimates.Calibration, fee money.PPM, now time.Time) (*plan, error) {
	q := &plan{parsed: p, route: rt, fee: fee, margin: app.DevMargin, feature: header}
	if rt.slug != "" {
		q.feature = rt.slug
	}
	if err := q.setFeature(registered); err != nil {
		return nil, err
	}
	if err := q.setModel(app, book, now); err != nil {
		return nil, err
	}
	if err := q.checkModel(); err != nil {
		return nil, err
	}
	return q, q.price(app, drift)
}

// setFeature resolves the slug: an unregistered one still works, and counts as
// 'other' (spec §2, Feature).
func (q *plan) setFeature(registered map[string]features.Feature) error {
	f, ok := registered[q.feature]
	switch {
	case ok:
		q.guard, q.bucket, q.maxCost = &f, f.Slug, f.MaxCostPerCallMC
		if f.DevMargin != nil {
			q.margin = *f.DevMargin
		}
	case q.route.slug != "":
		return apierr.InvalidRequest.Errorf("feature %q is not registered; register it, or call POST /v1/ai/{model}", q.feature)
	case q.feature != "":
		q.bucket = "other"
	}
	return nil
}

func (q *plan) setModel(app *apps.App, book *catalog.Catalog, now time.Time) error {
	want := q.route.model
	switch {
	case q.route.slug != "":
		if q.guard.DefaultModel == nil {
			return apierr.FeatureModelNotConfigured.Errorf("feature %q has no default_model; set one, or call POST /v1/ai/{model}", q.feature)
		}
		want = *q.guard.DefaultModel
	case q.route.chat:
		if want = q.BodyModel; want == "" {
			return invalid("model: required on this route")
		}
	}
	if q.BodyModel != "" && q.BodyModel != want {
		return invalid("model: %q differs from the model of this route, %q; leave it out", q.BodyModel, want)
	}
	var ok bool
	if q.model, q.rates, ok = book.Find(want, now); !ok {
		return invalid("model: %q is not offered; GET /v1/models lists what is", want)
	}
	if q.model.Realtime {
		return invalid("model: %q speaks in voice sessions only; POST /v1/realtime/sessions begins one", want)
	}
	if len(app.AllowedModels) > 0 && !slices.Contains(app.AllowedModels, want) {
		return apierr.ModelNotAllowed.Errorf("model %q is not among the app's allowed models", want)
	}
	q.Request.Model = want
	tools := len(q.Tools) > 0 // without them, Chat Completions serves every model
	q.Request.Facts = provider.ModelFacts{Responses: tools && q.model.Responses, Thinking: q.model.Thinking, Vision: q.model.Vision, Temperature: q.model.Temperature}
	return nil
}

// checkModel refuses what the model cannot do, before anything is held.
func (q *plan) checkModel() error {
	m := q.model
	switch {
	case q.MaxTokens > m.MaxOutputTokens:
		return invalid("max_tokens: %s allows at most %d", m.ID, m.MaxOutputTokens)
	case q.Temperature != nil && *q.Temperature != 1 && !m.Temperature:
		return invalid("temperature: %s accepts only its default; leave it out", m.ID)
	case q.TopP != nil && *q.TopP != 1 && !m.Temperature:
		return invalid("top_p: %s accepts only its default; leave it out", m.ID)
	case q.Images > 0 && !m.Vision:
		return invalid("messages: %s does not read images", m.ID)
	case len(q.Tools) > 0 && !m.Tools:
		return invalid("tools: %s does not call tools", m.ID)
	case (q.ToolChoice.Mode == "required" || q.ToolChoice.Mode == "function") && !m.ForcedToolChoice:
		return invalid("tool_choice: %s cannot be forced to call a tool; use auto", m.ID)
	case len(q.Tools) > 0 && m.Responses && len(q.Stop) > 0:
		return invalid("stop: %s does not take it together with tools", m.ID) // the Responses API has no such member
	case q.ReasoningEffort != "" && !m.AcceptsEffort(q.ReasoningEffort):
		return invalid("reasoning_effort: %s does not take %q", m.ID, q.ReasoningEffort)
	}
	if len(q.Tools) > 0 && m.ToolsEffort != "" {
		if q.ReasoningEffort != "" && q.ReasoningEffort != m.ToolsEffort {
			return invalid("reasoning_effort: %s takes tools only with %q", m.ID, m.ToolsEffort)
		}
		q.ReasoningEffort = m.ToolsEffort
	}
	return nil
}

// price counts the input, resolves the output cap and computes the hold (spec
// §2, 3 and 5).
func (q *plan) price(app *apps.App, drift *estimates.Calibration) error {
	q.input = tokens.CountRequest(&q.Request, q.model.Family)
	q.held = drift.Correct(q.model.ID, q.input)
	switch {
	case q.MaxTokens > 0:
	case q.guard != nil && q.guard.MaxTokens != nil:
		q.MaxTokens = min(*q.guard.MaxTokens, q.model.MaxOutputTokens)
	case app.DefaultMaxTokens != nil:
		q.MaxTokens = min(*app.DefaultMaxTokens, q.model.MaxOutputTokens)
	default:
		q.MaxTokens = q.model.MaxOutputTokens
	}
	var err error
	if q.holdMC, err = pricing.EstimateHold(q.rates, q.held, q.MaxTokens, q.margin, q.fee); err != nil {
		return invalid("max_tokens: this call is too large to price")
	}
	q.terms = terms(q.rates, q.margin, q.fee, q.held, q.MaxTokens, q.input)
	return nil
}

// terms writes what the price of the call will be computed from, whatever
// changes meanwhile (F-28). An estimate is never of more input than was counted,
// so the count is kept where more is held.
func terms(r catalog.Rates, margin, fee money.PPM, input, output, counted int64) string {
	b := make([]byte, 0, 320)
	b = append(append(b, `{"rates":`...), r.Snapshot()...)
	b = strconv.AppendInt(append(b, `,"margin_ppm":`...), int64(margin), 10)
	b = strconv.AppendInt(append(b, `,"fee_ppm":`...), int64(fee), 10)
	b = strconv.AppendInt(append(b, `,"input_tokens":`...), input, 10)
	b = strconv.AppendInt(append(b, `,"max_tokens":`...), output, 10)
	if counted < input {
		b = strconv.AppendInt(append(b, `,"counted_tokens":`...), counted, 10)
	}
	return string(append(b, '}'))
}

// call names the call for the ledger.
func (q *plan) call(c *callers.Caller, key, requestID, fingerprint string) rules.Call {
	return rules.Call{
		ConnectionID: c.ConnectionID, AccountID: c.AccountID, AppID: c.App.ID, Key: key, RequestID: requestID, Fingerprint: fingerprint,
		Feature: q.feature, FeatureLabel: q.bucket, Model: q.model.ID, Terms: q.terms, HoldMC: q.holdMC,
	}
}

// demand is the hold of the call, with every limit that there is for it now: of
// the feature, of the app's present tier, of its pace (spec §7, §8).
func (q *plan) demand(h *Handler, c *callers.Caller, call rules.Call, nodeID, claim string, now time.Time) (rules.Hold, error) {
	d := rules.Hold{Call: call, NodeID: nodeID, Claim: claim, MaxCostMC: q.maxCost}
	if q.guard != nil && q.guard.RateLimit != nil {
		d.Limits = append(d.Limits, limits.Limit{
			Subject: "rate/" + c.ConnectionID + "/" + q.feature, Unit: limits.Calls, Window: time.Minute, Max: *q.guard.RateLimit,
			Code: apierr.RateLimited, What: "feature " + q.feature,
		})
	}
	live := c.App.Tier != tiers.Sandbox
	if !live && c.App.ProviderMode == apps.Mock {
		return d, nil // fake money for canned answers
	}
	cost, err := pricing.EstimateHold(q.rates, q.held, q.MaxTokens, 0, 0)
	if err != nil {
		return d, invalid("max_tokens: this call is too large to price")
	}
	if d.CostMC = cost; !live {
		d.Limits = append(d.Limits, tiers.SandboxLimit(c.App.OwnerID, h.SandboxDayMC))
		return d, nil
	}
	terms := tiers.Of(c.App.Tier)
	d.Limits = append(d.Limits, terms.Limits(c.App.ID)...)
	d.Risk, d.MaxCapMC = h.pace(&c.App), terms.MaxCapMC
	if h.Free.PoolMC > 0 {
		d.FreeCredit = q.free(h.Free, c, cost, now)
	}
	return d, nil
}

// free is how free credit would pay for the call: at cost, without margin and fee.
func (q *plan) free(f tiers.FreeCredit, c *callers.Caller, cost money.MC, now time.Time) *rules.FreeCreditHold {
	pool, onApp, onAll := rules.FreeCreditSubjects(c.App.ID, c.AccountID, now)
	held := terms(q.rates, 0, 0, q.held, q.MaxTokens, q.input)
	return &rules.FreeCreditHold{
		Terms: held[:len(held)-1] + `,"pool":"` + pool + `"}`, HoldMC: cost,
		Limits: []limits.Limit{
			{Subject: pool, Unit: limits.Spend, Max: int64(f.PoolMC)}, {Subject: onApp, Unit: limits.Spend, Max: int64(f.OnAppMC)},
			{Subject: onAll, Unit: limits.Spend, Max: int64(f.OnAllMC)},
		},
	}
}

// pace is how fast an app's connections may spend: fake money as fast as it likes.
func (h *Handler) pace(app *apps.App) *limits.Risk {
	if app.Tier == tiers.Sandbox || h.Risk == (limits.Risk{}) {
		return nil
	}
	return &h.Risk
}
