package plan

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

// What a model does not take is left out, or replaced by the nearest that it takes, and the response names it
// (decision 170).

// fitRequest makes the request one that the model takes.
func (p *Plan) fitRequest() error {
	p.fitEffort()
	p.fitThinking()
	p.Request.Facts.Responses = p.usesResponses()
	p.fitStop()
	p.fitTools()
	p.fitNames()
	p.fitFormat()
	return p.fitSampling()
}

// ignore notes a member that is not sent as the client wrote it, by its canonical name.
func (p *Plan) ignore(member string) { p.Ignored = append(p.Ignored, member) }

// efforts are the levels of reasoning_effort, from the least.
var efforts = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}

// fitEffort replaces an effort that the model does not take by the nearest one that it takes, and drops it if the model
// takes none. A model that does not reason takes none at all, so there the wish for none is granted.
func (p *Plan) fitEffort() {
	m, r := &p.Model, &p.Request
	wanted := r.ReasoningEffort
	if wanted == "" || m.AcceptsEffort(wanted) {
		return
	}
	r.ReasoningEffort = findNearestEffort(m.Efforts, wanted)
	if wanted != "none" || m.Reasoning {
		p.ignore("reasoning_effort")
	}
}

// findNearestEffort returns the level that is nearest to the wanted one, of two the lower; "" = there is none. Who
// wants reasoning gets some: none is no neighbour of a little.
func findNearestEffort(accepted []string, wanted string) string {
	at := slices.Index(efforts, wanted)
	for distance := 1; distance < len(efforts); distance++ {
		for _, i := range []int{at - distance, at + distance} {
			if i > 0 && i < len(efforts) && slices.Contains(accepted, efforts[i]) {
				return efforts[i]
			}
		}
	}
	return ""
}

// fitThinking keeps a model of Anthropic from thinking where its API refuses that.
func (p *Plan) fitThinking() {
	m, r := &p.Model, &p.Request
	if m.Provider == "anthropic" && m.Thinking != "always" && r.AsksToThink() && !p.canThink() {
		r.Thinking, r.WantReasoning = "off", false
		p.ignore("reasoning_effort")
	}
}

// thinkingMinimum is the least budget of thinking that Anthropic takes. The output cap must be above it.
const thinkingMinimum = 1024

// canThink reports whether a model of Anthropic may think that can do without: not when it must call a tool. Those that
// think only when asked do not go on from their own words meanwhile; with a budget, they want the thinking before all
// calls of the history back.
func (p *Plan) canThink() bool {
	m, r := &p.Model, &p.Request
	forced := r.ToolChoice.Mode == "required" || r.ToolChoice.Mode == "function"
	switch {
	case forced || m.Thinking == "on":
		return !forced
	case len(r.Turns) > 0 && r.Turns[len(r.Turns)-1].Role == "assistant":
		return false
	case m.Thinking == "budget" && r.MaxTokens <= thinkingMinimum:
		return false
	case m.Thinking == "budget":
		return p.keepsThinking()
	}
	return true
}

// keepsThinking reports whether each turn of the model with calls begins with its thinking, where it may also have come
// with the first call.
func (p *Plan) keepsThinking() bool {
	began := false
	for i := range p.Request.Turns {
		t := &p.Request.Turns[i]
		if t.Role != "assistant" {
			continue
		}
		call := slices.IndexFunc(t.Blocks, func(b conversation.Block) bool { return b.Kind == conversation.CallBlock })
		if i == 0 || p.Request.Turns[i-1].Role != "assistant" {
			began = len(t.Blocks) > 0 && isOfAnthropic(&t.Blocks[0]) || call >= 0 && isOfAnthropic(&t.Blocks[call])
		}
		if call >= 0 && !began {
			return false
		}
	}
	return true
}

// isOfAnthropic reports whether a block has what Anthropic's models want back.
func isOfAnthropic(b *conversation.Block) bool { return bytes.Contains(b.Extra, []byte(`"anthropic"`)) }

// usesResponses reports whether OpenAI's Responses API serves the call (decision 171): only there a model reasons and
// calls tools at once, and only it returns reasoning. Its own clients are served there too, so that what they leave out
// means what it means to them. Chat Completions serves all other calls.
func (p *Plan) usesResponses() bool {
	m, r := &p.Model, &p.Request
	switch {
	case m.Provider != "openai":
		return false
	case len(r.Tools) > 0 && (m.Responses || m.ToolsEffort != "" && r.ReasoningEffort != m.ToolsEffort):
		return true
	}
	return m.Reasoning && (r.WantReasoning || r.FromResponses)
}

// fitTools names what Gemini has no word for: tools that are held to their schema, and calls one at a time (contract
// §4.3).
func (p *Plan) fitTools() {
	r := &p.Request
	if p.Model.Provider != "google" {
		return
	}
	if slices.ContainsFunc(r.Tools, func(t provider.Tool) bool { return t.Strict != nil && *t.Strict }) {
		p.ignore("tools.strict")
	}
	if r.ParallelToolCalls != nil && !*r.ParallelToolCalls {
		p.ignore("parallel_tool_calls")
	}
}

// fitNames names what only Chat Completions of OpenAI has a word for: the name of a speaker.
func (p *Plan) fitNames() {
	if p.Model.Provider == "openai" && !p.Request.Facts.Responses {
		return
	}
	if slices.ContainsFunc(p.Request.Turns, func(t conversation.Turn) bool { return t.Name != "" }) {
		p.ignore("messages.name")
	}
}

// fitFormat names a response_format that Claude is told of, and not held to: any JSON object (decision 185).
func (p *Plan) fitFormat() {
	var f struct {
		Type string `json:"type"`
	}
	if p.Model.Provider == "anthropic" && p.Request.ResponseFormat != nil &&
		json.Unmarshal(p.Request.ResponseFormat, &f) == nil && f.Type == "json_object" {
		p.ignore("response_format")
	}
}

// fitSampling drops temperature and top_p where the model takes only their defaults. The contract's own routes refuse
// them instead (contract §4.3). Claude takes no temperature above 1, and one of the two.
func (p *Plan) fitSampling() error {
	m, r := &p.Model, &p.Request
	why := "accepts only its default"
	free := m.Temperature || m.Provider == "openai" && m.Reasoning && r.ReasoningEffort == "none"
	claude := m.Provider == "anthropic"
	if claude && free && r.AsksToThink() {
		free, why = false, "accepts only its default while it thinks"
	}
	for _, s := range []struct {
		name  string
		value **float64
	}{{"temperature", &r.Temperature}, {"top_p", &r.TopP}} {
		v := *s.value
		switch {
		case v == nil || *v == 1:
			continue
		case !free && !p.Route.Chat:
			return invalid("%s: %s %s; leave it out", s.name, m.ID, why)
		case free && (!claude || *v < 1 && (s.name == "temperature" || r.Temperature == nil || *r.Temperature == 1)):
			continue
		}
		*s.value = nil
		p.ignore(s.name)
	}
	return nil
}

// responsesMinimum is the least output cap that OpenAI's Responses API takes.
const responsesMinimum = 16

// leastTokens returns the least output cap with which the call can be made.
func (p *Plan) leastTokens() int64 {
	switch {
	case p.Request.Facts.Responses:
		return responsesMinimum
	case p.Model.Provider == "anthropic" && p.Model.Thinking == "budget" && p.Request.AsksToThink():
		return thinkingMinimum + 1
	}
	return 0
}

// fitStop drops stop sequences where the model does not take them: OpenAI's models do while they do not reason, and the
// Responses API has no such member.
func (p *Plan) fitStop() {
	m, r := &p.Model, &p.Request
	if len(r.Stop) > 0 && m.Provider == "openai" && m.Reasoning && (r.Facts.Responses || r.ReasoningEffort != "none") {
		r.Stop = nil
		p.ignore("stop")
	}
}
