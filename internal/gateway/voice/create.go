package voice

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/tokens"
)

// decodeStrict reads JSON by package web's rules; the error names the member.
func decodeStrict(data []byte, dst any) error {
	err := web.Decode(data, dst, false)
	if e, ok := err.(*apierr.Error); ok {
		return fmt.Errorf("%s", e.Message)
	}
	return err
}

// creation is the body of POST sessions (spec §4.4).
type creation struct {
	Model            string          `json:"model"`
	Feature          string          `json:"feature"`
	Instructions     string          `json:"instructions"`
	Voice            string          `json:"voice"`
	Tools            json.RawMessage `json:"tools"`
	ToolChoice       json.RawMessage `json:"tool_choice"`
	MaxOutputTokens  *int64          `json:"max_output_tokens"`
	MaxDurationS     *int64          `json:"max_duration_s"`
	MaxCostMC        *money.MC       `json:"max_cost_mc"`
	ClientUpdatable  []string        `json:"client_updatable"`
	OnControlLost    string          `json:"on_control_lost"`
	BudgetBlockMC    *money.MC       `json:"budget_block_mc"`
	ConfirmEachBlock bool            `json:"confirm_each_block"`
}

var (
	voiceName   = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	toolName    = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	featureSlug = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)
)

// Bounds of spec §4.4 and §8.
const (
	maxBody       = 1 << 20
	maxTools      = 128
	defaultOutput = 1024
	defaultS      = 900
	minS, maxS    = 30, 3540
)

func invalid(format string, args ...any) error { return apierr.InvalidRequest.Errorf(format, args...) }

// parseCreation reads and checks what needs no look elsewhere.
func parseCreation(raw []byte) (c creation, err error) {
	if err := web.Decode(raw, &c, true); err != nil {
		return c, err
	}
	switch {
	case c.Model == "" && c.Feature == "":
		return c, invalid("model: one of model and feature is required")
	case c.Feature != "" && !featureSlug.MatchString(c.Feature):
		return c, invalid("feature: must match %s", featureSlug)
	case len(c.Instructions) > maxInstructions:
		return c, invalid("instructions: at most %d bytes", maxInstructions)
	case c.Voice != "" && !voiceName.MatchString(c.Voice):
		return c, invalid("voice: must be the name of a voice")
	case c.MaxOutputTokens != nil && *c.MaxOutputTokens < 1:
		return c, invalid("max_output_tokens: must be at least 1")
	case c.MaxDurationS != nil && (*c.MaxDurationS < minS || *c.MaxDurationS > maxS):
		return c, invalid("max_duration_s: must be from %d to %d", minS, maxS)
	case c.MaxCostMC != nil && *c.MaxCostMC < 1:
		return c, invalid("max_cost_mc: must be at least 1")
	case c.BudgetBlockMC != nil && *c.BudgetBlockMC < 1:
		return c, invalid("budget_block_mc: must be at least 1")
	case c.ConfirmEachBlock && c.BudgetBlockMC == nil:
		return c, invalid("confirm_each_block: requires budget_block_mc")
	case c.OnControlLost != "" && c.OnControlLost != "continue" && c.OnControlLost != "end":
		return c, invalid("on_control_lost: must be continue or end")
	}
	for i, f := range c.ClientUpdatable {
		if f != "voice" && f != "instructions" || slices.Contains(c.ClientUpdatable[:i], f) {
			return c, invalid("client_updatable[%d]: must be voice or instructions, each once", i)
		}
	}
	if c.Tools, err = flattenTools(c.Tools); err != nil {
		return c, invalid("%v", err)
	}
	if c.ToolChoice, err = flattenToolChoice(c.ToolChoice); err != nil {
		return c, invalid("%v", err)
	}
	return c, nil
}

// flattenTools reads tools in the chat shape or the flat one, and writes the flat one.
// Only functions: the provider's own tools cost what nobody meters (wire, D.4).
func flattenTools(raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return json.RawMessage("[]"), nil
	}
	type function struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters,omitempty"`
	}
	var in []struct {
		Type string `json:"type"`
		function
		Function *function `json:"function"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, fmt.Errorf("tools: must be an array of functions")
	}
	if len(in) > maxTools {
		return nil, fmt.Errorf("tools: at most %d", maxTools)
	}
	type flat struct {
		Type string `json:"type"`
		function
	}
	out := []flat{}
	for i, t := range in {
		f := t.function
		if t.Function != nil {
			f = *t.Function
		}
		var object map[string]json.RawMessage
		switch {
		case t.Type != "function":
			return nil, fmt.Errorf("tools[%d].type: must be function", i)
		case !toolName.MatchString(f.Name):
			return nil, fmt.Errorf("tools[%d].name: must match %s", i, toolName)
		case len(f.Parameters) > 0 && string(f.Parameters) != "null" && json.Unmarshal(f.Parameters, &object) != nil:
			return nil, fmt.Errorf("tools[%d].parameters: must be a JSON Schema object", i)
		}
		if object == nil {
			f.Parameters = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		out = append(out, flat{"function", f})
	}
	return mustJSON(out), nil
}

// flattenToolChoice reads tool_choice in either shape.
func flattenToolChoice(raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return json.RawMessage(`"auto"`), nil
	}
	var word string
	if json.Unmarshal(raw, &word) == nil && slices.Contains([]string{"auto", "none", "required"}, word) {
		return raw, nil
	}
	var named struct {
		Type     string `json:"type"`
		Name     string `json:"name"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if json.Unmarshal(raw, &named) == nil && named.Type == "function" {
		if named.Name == "" {
			named.Name = named.Function.Name
		}
		if toolName.MatchString(named.Name) {
			return mustJSON(map[string]string{"type": "function", "name": named.Name}), nil
		}
	}
	return nil, fmt.Errorf("tool_choice: must be auto, none, required, or name a function")
}

// plan decides model, prices and bounds, in the order of 'Order of checks'.
func (h *Handler) plan(c *creation, who *callers.Caller) (session.State, book, error) {
	b := book{ConnectionID: who.ConnectionID, AccountID: who.AccountID, AppID: who.App.ID, OwnerID: who.App.OwnerID, Feature: c.Feature, Margin: who.App.DevMargin, Fee: h.Fee}
	guard, registered := who.Features[c.Feature]
	switch {
	case registered:
		b.Bucket, b.MaxCostMC = guard.Slug, guard.MaxCostPerCallMC
		if guard.DevMargin != nil {
			b.Margin = *guard.DevMargin
		}
	case c.Feature != "":
		b.Bucket = "other"
	}
	model := c.Model
	if model == "" {
		switch {
		case !registered:
			return session.State{}, b, invalid("feature: %q is not registered; register it, or name a model", c.Feature)
		case guard.DefaultModel == nil:
			return session.State{}, b, invalid("feature: %q has no default_model; set one, or name a model", c.Feature)
		}
		model = *guard.DefaultModel
	}
	m, rates, ok := h.Catalog.Current().Find(model, h.Now())
	switch {
	case !ok:
		return session.State{}, b, invalid("model: %q is not offered; GET /v1/models lists what is", model)
	case !m.Realtime:
		return session.State{}, b, invalid("model: %q is not a realtime model", model)
	case len(who.App.AllowedModels) > 0 && !slices.Contains(who.App.AllowedModels, model):
		return session.State{}, b, apierr.ModelNotAllowed.On(who.ConnectionID, "model %q is not among the app's allowed models", model)
	}
	output := int64(defaultOutput)
	if registered && guard.MaxTokens != nil {
		output = *guard.MaxTokens
	}
	if c.MaxOutputTokens != nil {
		output = *c.MaxOutputTokens
	}
	output = min(output, m.MaxOutputTokens)
	b.Model, b.Provider, b.Rates, b.rates, b.MaxOutput = model, m.Provider, rates.Snapshot(), rates, output
	return h.state(c, &m, output, who), b, nil
}

// state is a session that nobody has seen yet.
func (h *Handler) state(c *creation, m *catalog.Model, output int64, who *callers.Caller) session.State {
	s := session.State{Status: session.Pending, Settings: session.Settings{
		Mock: who.App.ProviderMode == "mock", MaxOutputTokens: output, ContextTokens: m.ContextTokens, MaxDuration: defaultS * time.Second, IdleTimeout: h.Idle, MaxCostMC: c.MaxCostMC,
		BudgetBlockMC: c.BudgetBlockMC, ConfirmBlocks: c.ConfirmEachBlock, EndOnControlLost: c.OnControlLost == "end", ClientUpdatable: c.ClientUpdatable,
	}}
	if c.MaxDurationS != nil {
		s.MaxDuration = time.Duration(*c.MaxDurationS) * time.Second
	}
	s.Config = session.Config{Model: m.ID, Instructions: c.Instructions, Voice: c.Voice, Tools: c.Tools, ToolChoice: c.ToolChoice, MaxOutputTokens: output, AutoReply: true}
	s.Context.TextInput = int64(tokens.Count(c.Instructions)+tokens.Count(string(c.Tools))) + 128 // what the provider adds of its own
	return s
}
