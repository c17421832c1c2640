// Package contents is the shape of Google's Gemini API (provider notes C): it reads the bodies of generateContent,
// streamGenerateContent and countTokens below /google/v1beta/models, and writes the response, streamed or whole, as
// Google's clients read it. Every model of the catalog can answer. It does not share code with provider/google, which
// is the other direction.
package contents

import (
	"regexp"
	"strings"

	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/gateway/shapes"
)

// A Call is a parsed request.
type Call struct {
	request plan.Request
	places  []shapes.Place // of its turns
	tools   []string       // the path of each canonical tool in the body

	level    bool // the reasoning effort comes from thinkingLevel, not from thinkingBudget
	thoughts bool // the client asked for summaries of thoughts
}

// Parse reads the body of a call of a model, which the address names, as it names whether the answer is streamed. Its
// errors name the member and the rule.
func Parse(data []byte, model string, stream bool) (shapes.Call, error) {
	var b body
	if err := web.DecodeSaid(data, &b); err != nil {
		return nil, err
	}
	return read(&b, model, stream)
}

// ParseCount reads the body of countTokens: contents alone, or a whole request.
func ParseCount(data []byte, model string) (shapes.Call, error) {
	var b struct {
		body
		Whole *body `json:"generateContentRequest,case:ignore"`
	}
	if err := web.DecodeSaid(data, &b); err != nil {
		return nil, err
	}
	if b.Whole == nil {
		return read(&b.body, model, false)
	}
	if b.Contents != nil {
		return nil, plan.Invalid("contents: generateContentRequest has them, too; send one of the two")
	}
	return read(b.Whole, model, false)
}

func read(b *body, model string, stream bool) (shapes.Call, error) {
	c := &Call{}
	c.request.BodyModel, c.request.Stream, c.request.IncludeUsage = model, stream, true
	r := reader{body: b, call: c, out: &c.request}
	for _, step := range []func() error{
		r.readTop, r.readConfig, r.readThinking, r.readFormat, r.readSystem, r.readContents, r.readTools, r.readChoice,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	// A model's thoughts come back with its calls, whether the client reads them or not.
	c.request.WantReasoning = c.thoughts || len(c.request.Tools) > 0
	c.request.WantSummary = c.thoughts
	if err := c.request.Check(); err != nil {
		return nil, shapes.RenameMember(err, c.MemberName)
	}
	return c, nil
}

// Request returns the canonical request (see shapes.Call).
func (c *Call) Request() *plan.Request { return &c.request }

// NewWriter returns a writer of one answer (see shapes.Call).
func (c *Call) NewWriter(h shapes.Head) shapes.Writer { return &writer{head: h, thoughts: c.thoughts} }

// Body is not needed: answers have deltas (see shapes.Call).
func (c *Call) Body(canonical []byte) []byte { return canonical }

// Format returns the form of the answers (see shapes.Call).
func (c *Call) Format() shapes.Format { return format{} }

// renamed are the members of the canonical request that have another name here.
var renamed = map[string]string{
	"messages":            "contents",
	"max_tokens":          "generationConfig.maxOutputTokens",
	"temperature":         "generationConfig.temperature",
	"top_p":               "generationConfig.topP",
	"stop":                "generationConfig.stopSequences",
	"response_format":     "generationConfig.responseJsonSchema",
	"reasoning_effort":    "generationConfig.thinkingConfig.thinkingBudget",
	"tool_choice":         "toolConfig.functionCallingConfig.mode",
	"parallel_tool_calls": "toolConfig",
}

var (
	firstMember = regexp.MustCompile(`^[a-z_]+`)

	memberNames = strings.NewReplacer(
		".function.arguments", ".functionCall.args",
		".function.parameters", ".parametersJsonSchema",
		".function.name", ".name",
		".extra_content.google.thought_signature", ".thoughtSignature",
		".image_url.url", ".inlineData",
		".tool_call_id", ".functionResponse.id",
		".json_schema.schema", "",
	)
)

// MemberName returns Google's name of a member of the canonical request (see shapes.Call).
func (c *Call) MemberName(canonical string) string {
	if at, rest, ok := shapes.FindPlace(c.places, canonical); ok {
		return at + memberNames.Replace(rest)
	}
	if at, rest, ok := shapes.FindTool(c.tools, canonical); ok {
		return at + memberNames.Replace(rest)
	}
	first := firstMember.FindString(canonical)
	name := renamed[first]
	switch {
	case name == "":
		return canonical
	case first == "reasoning_effort" && c.level:
		name = "generationConfig.thinkingConfig.thinkingLevel"
	case canonical == "tool_choice.function.name":
		return "toolConfig.functionCallingConfig.allowedFunctionNames"
	}
	return name + memberNames.Replace(canonical[len(first):])
}
