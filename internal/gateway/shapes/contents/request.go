package contents

import (
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/gateway/shapes"
	"github.com/purserhq/purser/internal/models/provider"
)

// body is the request of generateContent. As at Google, names in snake_case are taken, too. Unknown members are
// dropped, and the response names them, unless they would change the cost or the route of the call (decision 012).
type body struct {
	Model             string         `json:"model"` // in generateContentRequest; the address says it
	Contents          list[content]  `json:"contents"`
	SystemInstruction *content       `json:"systemInstruction,case:ignore"`
	Tools             list[tool]     `json:"tools"`
	ToolConfig        *toolConfig    `json:"toolConfig,case:ignore"`
	Config            *config        `json:"generationConfig,case:ignore"`
	CachedContent     jsontext.Value `json:"cachedContent,case:ignore"`
	ServiceTier       jsontext.Value `json:"serviceTier,case:ignore"`
	Store             jsontext.Value `json:"store"`
	Unknown           jsontext.Value `json:",unknown"`
}

type config struct {
	MaxOutputTokens    *int64          `json:"maxOutputTokens,case:ignore"`
	Temperature        *float64        `json:"temperature"`
	TopP               *float64        `json:"topP,case:ignore"`
	StopSequences      []string        `json:"stopSequences,case:ignore"`
	CandidateCount     *int64          `json:"candidateCount,case:ignore"`
	ResponseMIMEType   string          `json:"responseMimeType,case:ignore"`
	ResponseSchema     jsontext.Value  `json:"responseSchema,case:ignore"`
	ResponseJSONSchema jsontext.Value  `json:"responseJsonSchema,case:ignore"`
	ResponseModalities []string        `json:"responseModalities,case:ignore"`
	ResponseLogprobs   *bool           `json:"responseLogprobs,case:ignore"`
	SpeechConfig       jsontext.Value  `json:"speechConfig,case:ignore"`
	ImageConfig        jsontext.Value  `json:"imageConfig,case:ignore"`
	ThinkingConfig     *thinkingConfig `json:"thinkingConfig,case:ignore"`
	Unknown            jsontext.Value  `json:",unknown"`
}

type thinkingConfig struct {
	IncludeThoughts bool           `json:"includeThoughts,case:ignore"`
	ThinkingBudget  *int64         `json:"thinkingBudget,case:ignore"`
	ThinkingLevel   string         `json:"thinkingLevel,case:ignore"`
	Unknown         jsontext.Value `json:",unknown"`
}

// A list is an array. Google takes one element without its brackets, too.
type list[T any] []T

// UnmarshalJSONFrom reads an array or an element.
func (l *list[T]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() != '{' {
		return json.UnmarshalDecode(d, (*[]T)(l))
	}
	var one T
	if err := json.UnmarshalDecode(d, &one); err != nil {
		return err
	}
	*l = list[T]{one}
	return nil
}

// A reader builds the canonical request.
type reader struct {
	body *body
	call *Call
	out  *plan.Request // that of call

	open  openCalls
	calls int // of all turns
}

// at returns the path of an element of a list.
func at(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

// findBound returns the member that an unknown one means which looks like a bound on the cost; "" = none.
func findBound(name string) string {
	switch plan.FindBound(name) {
	case "max_tokens":
		return "generationConfig.maxOutputTokens"
	case "reasoning_effort":
		return "generationConfig.thinkingConfig"
	}
	return ""
}

const price = "not offered here, because it would change the price or the route of the call; leave it out"

func (r *reader) readTop() error {
	b := r.body
	if plan.IsSet(b.CachedContent) {
		return plan.Invalid("cachedContent: caches are not kept here; send the whole content, whose begin the " +
			"provider caches by itself")
	}
	if plan.IsSet(b.ServiceTier) &&
		!slices.Contains([]string{`"standard"`, `"STANDARD"`, `"unspecified"`}, string(b.ServiceTier)) {
		return plan.Invalid("serviceTier: %s", price)
	}
	if string(b.Store) == "true" { // it is only made false
		r.out.Ignore("store")
	}
	return r.out.IgnoreUnknown(b.Unknown, findBound)
}

func (r *reader) readConfig() error {
	c, out := r.body.Config, r.out
	if c == nil {
		return nil
	}
	const prefix = "generationConfig."
	switch {
	case c.MaxOutputTokens != nil && *c.MaxOutputTokens < 1:
		return plan.Invalid(prefix + "maxOutputTokens: must be at least 1")
	case c.Temperature != nil && (*c.Temperature < 0 || *c.Temperature > 2):
		return plan.Invalid(prefix + "temperature: must be between 0 and 2")
	case c.TopP != nil && (*c.TopP < 0 || *c.TopP > 1):
		return plan.Invalid(prefix + "topP: must be between 0 and 1")
	case c.CandidateCount != nil && *c.CandidateCount != 1:
		return plan.Invalid(prefix + "candidateCount: must be 1; each call answers once")
	case c.ResponseLogprobs != nil && *c.ResponseLogprobs:
		return plan.Invalid(prefix + "responseLogprobs: not offered here, because not every provider returns them; " +
			"leave it out")
	case plan.IsSet(c.SpeechConfig):
		return plan.Invalid(prefix + "speechConfig: only text is offered here; voice is at POST /v1/realtime/sessions")
	case plan.IsSet(c.ImageConfig):
		return plan.Invalid(prefix + "imageConfig: images are not made here")
	case len(c.StopSequences) > plan.MaxStops:
		return plan.Invalid(prefix+"stopSequences: at most %d", plan.MaxStops)
	}
	for _, m := range c.ResponseModalities {
		if !strings.EqualFold(m, "TEXT") {
			return plan.Invalid(prefix + "responseModalities: only TEXT is offered here")
		}
	}
	for i, s := range c.StopSequences {
		if s == "" || len(s) > plan.MaxStop {
			return plan.Invalid("%s: must have 1 to %d bytes", at(prefix+"stopSequences", i), plan.MaxStop)
		}
	}
	if c.MaxOutputTokens != nil {
		out.MaxTokens = *c.MaxOutputTokens
	}
	out.Temperature, out.TopP, out.Stop = c.Temperature, c.TopP, c.StopSequences
	var err error
	provider.Members(c.Unknown, func(name, value []byte) bool {
		if right := findBound(string(name)); right != "" && string(value) != "null" {
			err = plan.Invalid("%s%s: is not a member of this request; send %s", prefix, string(name), right)
		}
		return err == nil
	})
	r.out.IgnoreIn("generationConfig", c.Unknown)
	return err
}

// readThinking maps a level or a budget to a reasoning effort, which is what every provider understands.
func (r *reader) readThinking() error {
	if r.body.Config == nil || r.body.Config.ThinkingConfig == nil {
		return nil
	}
	const prefix = "generationConfig.thinkingConfig."
	t := r.body.Config.ThinkingConfig
	r.out.IgnoreIn("generationConfig.thinkingConfig", t.Unknown)
	r.call.effort = prefix + "includeThoughts"
	if r.call.thoughts = t.IncludeThoughts; t.IncludeThoughts {
		r.out.Thinking = "on"
	}
	level := strings.ToLower(t.ThinkingLevel)
	switch {
	case level == "thinking_level_unspecified":
	case level != "":
		if !slices.Contains([]string{"minimal", "low", "medium", "high"}, level) {
			return plan.Invalid(prefix + "thinkingLevel: must be one of MINIMAL, LOW, MEDIUM, HIGH")
		}
		if t.ThinkingBudget != nil {
			return plan.Invalid(prefix + "thinkingBudget: thinkingLevel means the same; send one")
		}
		r.out.ReasoningEffort, r.call.effort = level, prefix+"thinkingLevel"
	}
	if t.ThinkingBudget != nil {
		r.call.effort = prefix + "thinkingBudget"
	}
	switch b := t.ThinkingBudget; {
	case b == nil:
	case *b < -1:
		return plan.Invalid(prefix + "thinkingBudget: must be at least 0, or -1 for as much as the model wants")
	case *b == -1:
		r.out.Thinking = "on"
	case *b == 0:
		r.out.ReasoningEffort, r.out.Thinking = "none", "off"
	default:
		r.out.ReasoningEffort = shapes.EffortOfBudget(*b)
	}
	return nil
}

// readFormat reads in which form the answer is wanted: a schema of either kind, or any JSON.
func (r *reader) readFormat() error {
	c := r.body.Config
	if c == nil {
		return nil
	}
	schema, path := c.ResponseJSONSchema, "generationConfig.responseJsonSchema"
	if plan.IsSet(c.ResponseSchema) {
		if plan.IsSet(schema) {
			return plan.Invalid("generationConfig.responseSchema: responseJsonSchema means the same; send one")
		}
		schema, path = c.ResponseSchema, "generationConfig.responseSchema"
	}
	switch c.ResponseMIMEType {
	case "", "text/plain":
		if plan.IsSet(schema) {
			return plan.Invalid("generationConfig.responseMimeType: must be application/json with a schema")
		}
		return nil
	case "application/json":
	default:
		return plan.Invalid("generationConfig.responseMimeType: must be text/plain or application/json")
	}
	if !plan.IsSet(schema) {
		r.out.ResponseFormat = []byte(`{"type":"json_object"}`)
		return nil
	}
	plain, err := readSchema(schema, path)
	if err != nil {
		return err
	}
	r.call.schema = path
	r.out.ResponseFormat = shapes.SchemaFormat(plain)
	return nil
}

// readSchema returns the JSON Schema that a schema at a path says. That of responseSchema and parameters is written in
// OpenAPI's way.
func readSchema(schema jsontext.Value, path string) ([]byte, error) {
	if schema.Kind() != '{' {
		return nil, plan.Invalid("%s: must be a schema, an object", path)
	}
	if strings.HasSuffix(path, "JsonSchema") {
		return schema, nil
	}
	w := provider.NewWalk(schema)
	plain, ok := appendSchema(nil, &w)
	if !ok {
		return nil, plan.Invalid("%s: must be a schema of Google's kind, with types such as STRING", path)
	}
	return plain, nil
}
