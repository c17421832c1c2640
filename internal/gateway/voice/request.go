package voice

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/models/provider"
)

// creationRequest is the body of POST /v1/realtime/sessions (contract §4.4).
type creationRequest struct {
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
	OnControlLost    *string         `json:"on_control_lost"`
	Relay            *string         `json:"relay"`
	BudgetBlockMC    *money.MC       `json:"budget_block_mc"`
	ConfirmEachBlock bool            `json:"confirm_each_block"`

	Transcription *session.Transcription `json:"transcription"`

	Unknown jsontext.Value `json:",unknown"`
}

var (
	wordName     = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`) // of a voice or a tool
	languageCode = regexp.MustCompile(`^[a-z]{2,3}(-[A-Za-z0-9]{2,8})?$`)
)

// Bounds of contract §4.4 and §8.
const (
	maxBodyBytes    = 1 << 20
	maxTools        = 128
	maxInstructions = session.MaxInstructions
	minDurationS    = 30
	maxDurationS    = 3540
)

// maxTranscriptPrompt bounds what a transcript's model is told, in bytes.
const maxTranscriptPrompt = 4 << 10

func invalid(format string, args ...any) error { return apierr.InvalidRequest.Errorf(format, args...) }

// decodeStrict reads JSON by the rules of package web. Its error names the member.
func decodeStrict(data []byte, dst any) error {
	err := web.DecodeSmall(data, dst, false)
	if e, ok := err.(*apierr.Error); ok {
		return fmt.Errorf("%s", e.Message)
	}
	return err
}

// parseCreation reads and checks a body, as far as that needs nothing else.
func parseCreation(raw []byte) (c creationRequest, err error) {
	if err := web.DecodeSmall(raw, &c, true); err != nil {
		return c, err
	}
	if err := c.checkUnknown(); err != nil {
		return c, err
	}
	if err := c.checkMembers(); err != nil {
		return c, err
	}
	if c.Tools, err = flattenTools(c.Tools); err != nil {
		return c, invalid("%v", err)
	}
	if c.ToolChoice, err = flattenToolChoice(c.ToolChoice); err != nil {
		return c, invalid("%v", err)
	}
	return c, nil
}

// checkUnknown refuses unknown members that look like a bound of the session: without it, it would cost more than the
// app means. Others are dropped (decision 012).
func (c *creationRequest) checkUnknown() (err error) {
	if len(c.Unknown) == 0 {
		return nil
	}
	provider.Members(c.Unknown, func(name, value []byte) bool {
		if right := nearMiss(string(name)); right != "" && string(value) != "null" {
			err = invalid("%s: is not a member of this request; send %s", name, right)
		}
		return err == nil
	})
	return err
}

// nearMiss returns the bound that a client meant by an unknown member, or "".
func nearMiss(name string) string {
	switch strings.ToLower(strings.NewReplacer("_", "", "-", "", ".", "").Replace(name)) {
	case "maxcost", "maxcostmc", "maxcostusd", "maxcostcents", "maxspend", "maxspendmc", "spendcap", "spendcapmc",
		"budget", "budgetmc", "costlimit":
		return "max_cost_mc"
	case "maxtokens", "maxtoken", "maxoutputtoken", "maxoutputtokens", "maxcompletiontokens",
		"maxresponseoutputtokens":
		return "max_output_tokens"
	case "maxduration", "maxdurations", "maxdurationseconds", "maxdurationsec", "maxdurationsecs", "maxdurationms",
		"maxseconds", "duration", "durations":
		return "max_duration_s"
	case "budgetblock", "budgetblockmc", "budgetblocks", "budgetblockusd":
		return "budget_block_mc"
	case "confirmeachblock", "confirmblock", "confirmblocks", "confirmeveryblock":
		return "confirm_each_block"
	case "oncontrollost", "oncontrolloss":
		return "on_control_lost"
	}
	return ""
}

func (c *creationRequest) checkMembers() error {
	switch {
	case c.Model == "" && c.Feature == "":
		return invalid("model: one of model and feature is required")
	case c.Feature != "" && !features.SlugPattern.MatchString(c.Feature):
		return invalid("feature: must match %s", features.SlugPattern)
	case len(c.Instructions) > maxInstructions:
		return invalid("instructions: at most %d bytes", maxInstructions)
	case c.Voice != "" && !wordName.MatchString(c.Voice):
		return invalid("voice: must be the name of a voice")
	case c.MaxOutputTokens != nil && *c.MaxOutputTokens < 1:
		return invalid("max_output_tokens: must be at least 1")
	case c.MaxDurationS != nil && (*c.MaxDurationS < minDurationS || *c.MaxDurationS > maxDurationS):
		return invalid("max_duration_s: must be from %d to %d", minDurationS, maxDurationS)
	case c.MaxCostMC != nil && *c.MaxCostMC < 1:
		return invalid("max_cost_mc: must be at least 1")
	case c.BudgetBlockMC != nil && *c.BudgetBlockMC < 1:
		return invalid("budget_block_mc: must be at least 1")
	case c.ConfirmEachBlock && c.BudgetBlockMC == nil:
		return invalid("confirm_each_block: requires budget_block_mc")
	case c.OnControlLost != nil && *c.OnControlLost != "continue" && *c.OnControlLost != "end":
		return invalid("on_control_lost: must be continue or end")
	case c.Relay != nil && *c.Relay != "listed" && *c.Relay != "all":
		return invalid("relay: must be listed or all")
	}
	if t := c.Transcription; t != nil {
		switch {
		case t.Model == "":
			return invalid("transcription.model: required")
		case t.Language != "" && !languageCode.MatchString(t.Language):
			return invalid("transcription.language: must be a code such as en")
		case len(t.Prompt) > maxTranscriptPrompt:
			return invalid("transcription.prompt: at most %d bytes", maxTranscriptPrompt)
		}
	}
	for i, f := range c.ClientUpdatable {
		if f != "voice" && f != "instructions" || slices.Contains(c.ClientUpdatable[:i], f) {
			return invalid("client_updatable[%d]: must be voice or instructions, each once", i)
		}
	}
	return nil
}

// toolFunction is a function that the model may call.
type toolFunction struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
}

// flattenTools reads tools in the chat shape or the flat shape, and renders the flat one. It accepts
// functions only: the provider's own tools cost what the usage does not report (provider notes D.4).
func flattenTools(raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return json.RawMessage("[]"), nil
	}
	count := 0
	provider.Elements(raw, func([]byte) bool {
		count++
		return count <= maxTools
	})
	if count > maxTools {
		return nil, fmt.Errorf("tools: at most %d", maxTools)
	}
	var in []struct {
		Type string `json:"type"`
		toolFunction
		Function *toolFunction `json:"function"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, fmt.Errorf("tools: must be an array of functions")
	}
	type flatTool struct {
		Type string `json:"type"`
		toolFunction
	}
	out := []flatTool{}
	for i, t := range in {
		f := t.toolFunction
		if t.Function != nil {
			f = *t.Function
		}
		var object map[string]json.RawMessage
		switch {
		case t.Type != "function":
			return nil, fmt.Errorf("tools[%d].type: must be function", i)
		case !wordName.MatchString(f.Name):
			return nil, fmt.Errorf("tools[%d].name: must match %s", i, wordName)
		case len(f.Parameters) > 0 && string(f.Parameters) != "null" && json.Unmarshal(f.Parameters, &object) != nil:
			return nil, fmt.Errorf("tools[%d].parameters: must be a JSON Schema object", i)
		}
		if object == nil {
			f.Parameters = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		out = append(out, flatTool{"function", f})
	}
	return mustJSON(out), nil
}

// flattenToolChoice reads tool_choice in either shape, and renders the flat one.
func flattenToolChoice(raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return json.RawMessage(`"auto"`), nil
	}
	var mode string
	if json.Unmarshal(raw, &mode) == nil && slices.Contains([]string{"auto", "none", "required"}, mode) {
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
		if wordName.MatchString(named.Name) {
			return mustJSON(map[string]string{"type": "function", "name": named.Name}), nil
		}
	}
	return nil, fmt.Errorf("tool_choice: must be auto, none, required, or name a function")
}
