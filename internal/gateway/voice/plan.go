package voice

import (
	"fmt"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/tokens"
)

const (
	defaultMaxOutputTokens = 1024
	defaultDuration        = 15 * time.Minute

	// sessionOverheadTokens is what the provider adds to the instructions and tools.
	sessionOverheadTokens = 128
)

// planSession decides model, prices and bounds of a session, in the order of decision 008.
func (h *Handler) planSession(c *creationRequest, who *callers.Caller) (savedSession, error) {
	feature := policy.ResolveFeature(who.Features, c.Feature)
	terms := billingTerms{
		ConnectionID: who.ConnectionID,
		AccountID:    who.AccountID,
		AppID:        who.App.ID,
		OwnerID:      who.App.OwnerID,
		ChildID:      who.ChildID(),
		Feature:      feature.Slug,
		FeatureLabel: feature.Label,
		Shares:       policy.Shares{Margin: feature.Margin(&who.App), Fee: h.Policies.At(h.Now()).Fee},
		Guardrails:   feature.Guardrails(),
		BudgetMC:     c.MaxCostMC,
	}
	if who.CheckFeature(c.Feature) != nil {
		return savedSession{}, invalid("feature: this token may be used for %s only",
			strings.Join(who.Child.Features, ", "))
	}
	model := c.Model
	if model == "" {
		switch {
		case feature.Registered == nil:
			return savedSession{}, invalid("feature: %q is not registered; register it, or name a model", c.Feature)
		case feature.Registered.DefaultModel == nil:
			return savedSession{}, invalid("feature: %q has no default_model; set one, or name a model", c.Feature)
		}
		model = *feature.Registered.DefaultModel
	}
	m, rates, ok := h.Catalog.Current().Find(model, h.Now())
	switch {
	case !ok:
		return savedSession{}, invalid("model: %q is not offered; GET /v1/models lists what is", model)
	case !m.Realtime:
		return savedSession{}, invalid("model: %q is not a realtime model", model)
	case !policy.AllowsModel(&who.App, model):
		return savedSession{}, apierr.ModelNotAllowed.On(who.ConnectionID,
			"model %q is not among the app's allowed models", model)
	case c.Voice != "" && !m.HasVoice(c.Voice):
		return savedSession{}, invalid("voice: %s", refuseVoice(&m, c.Voice))
	}
	output := int64(defaultMaxOutputTokens)
	if f := feature.Registered; f != nil && f.MaxTokens != nil {
		output = *f.MaxTokens
	}
	if c.MaxOutputTokens != nil {
		output = *c.MaxOutputTokens
	}
	terms.Model, terms.Provider, terms.MaxOutputTokens = model, m.Provider, min(output, m.MaxOutputTokens)
	terms.Rates, terms.rates = rates.Snapshot(), rates
	terms.Mock = who.App.ProviderMode == apps.Mock
	return savedSession{State: newState(c, &m, terms.MaxOutputTokens, terms.Mock, h.IdleTimeout), Terms: terms}, nil
}

// refuseVoice says that a model has no such voice, and which ones it has.
func refuseVoice(m *catalog.Model, voice string) string {
	return fmt.Sprintf("%s has no voice %q; its voices are %s", m.ID, voice, strings.Join(m.Voices, ", "))
}

// newState returns the state of a session that is not yet stored.
func newState(
	c *creationRequest, m *catalog.Model, maxOutputTokens int64, isMock bool, idleTimeout time.Duration,
) session.State {
	s := session.State{
		Status: session.Pending,
		Settings: session.Settings{
			Mock:             isMock,
			MaxOutputTokens:  maxOutputTokens,
			ContextTokens:    m.ContextTokens,
			MaxDuration:      defaultDuration,
			IdleTimeout:      idleTimeout,
			MaxCostMC:        c.MaxCostMC,
			BudgetBlockMC:    c.BudgetBlockMC,
			ConfirmBlocks:    c.ConfirmEachBlock,
			EndOnControlLost: c.OnControlLost != nil && *c.OnControlLost == "end",
			RelayAll:         c.Relay != nil && *c.Relay == "all",
			ClientUpdatable:  c.ClientUpdatable,
		},
		Config: session.Config{
			Model:           m.ID,
			Instructions:    c.Instructions,
			Voice:           c.Voice,
			Tools:           c.Tools,
			ToolChoice:      c.ToolChoice,
			MaxOutputTokens: maxOutputTokens,
			AutoReply:       true,
		},
	}
	if c.MaxDurationS != nil {
		s.MaxDuration = time.Duration(*c.MaxDurationS) * time.Second
	}
	s.Context.TextInput = int64(tokens.Count(c.Instructions)+tokens.Count(string(c.Tools))) + sessionOverheadTokens
	return s
}
