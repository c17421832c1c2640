package plan

import "slices"

// What a model does not take is left out, or replaced by the nearest that it takes, and the response names it
// (decision 170).

// fitRequest makes the request one that the model takes.
func (p *Plan) fitRequest() {
	p.fitEffort()
	p.Request.Facts.Responses = p.usesResponses()
	p.fitStop()
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

// responsesMinimum is the least output cap that OpenAI's Responses API takes.
const responsesMinimum = 16

// leastTokens returns the least output cap with which the call can be made.
func (p *Plan) leastTokens() int64 {
	if p.Request.Facts.Responses {
		return responsesMinimum
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
