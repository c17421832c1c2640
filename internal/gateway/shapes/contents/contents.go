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

	openAPI  map[string]bool // the paths of the tools whose parameters are a schema of Google's kind
	effort   string          // the path of what the reasoning effort comes from
	schema   string          // the path of the schema of the response
	thoughts bool            // the client asked for summaries of thoughts
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
	if b.Contents != nil || b.SystemInstruction != nil || b.Tools != nil || b.Config != nil || b.ToolConfig != nil {
		return nil, plan.Invalid("generateContentRequest: has the whole request; send nothing beside it")
	}
	return read(b.Whole, model, false)
}

func read(b *body, model string, stream bool) (shapes.Call, error) {
	if named := strings.TrimPrefix(b.Model, "models/"); named != "" && named != model {
		return nil, plan.Invalid("model: %q differs from the model of this route, %q; leave it out", named, model)
	}
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
	c.request.WantReasoning, c.request.WantSummary = c.thoughts, c.thoughts // signatures come anyway
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
	"tool_choice":         "toolConfig.functionCallingConfig.mode",
	"parallel_tool_calls": "toolConfig",
}

var (
	firstMember = regexp.MustCompile(`^[a-z_]+`)

	memberNames = strings.NewReplacer(
		".function.arguments", ".functionCall.args",
		".function.name", ".name",
		".extra_content.google.thought_signature", ".thoughtSignature",
		".image_url.url", "",
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
		parameters := ".parametersJsonSchema"
		if c.openAPI[at] {
			parameters = ".parameters"
		}
		return at + memberNames.Replace(strings.Replace(rest, ".function.parameters", parameters, 1))
	}
	first := firstMember.FindString(canonical)
	name := renamed[first]
	switch {
	case first == "response_format" && c.schema != "":
		name = c.schema
	case first == "response_format":
		name = "generationConfig.responseMimeType"
	case first == "reasoning_effort":
		name = c.effort
	case canonical == "tool_choice.function.name":
		return "toolConfig.functionCallingConfig.allowedFunctionNames"
	}
	if name == "" {
		return canonical
	}
	return name + memberNames.Replace(canonical[len(first):])
}
