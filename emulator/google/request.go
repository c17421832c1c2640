package google

import (
	"bytes"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/purserhq/purser/emulator/exchange"
)

type generateRequest struct {
	Model             string         `json:"model"`
	Contents          []inputContent `json:"contents"`
	SystemInstruction *inputContent  `json:"systemInstruction"`
	Tools             []struct {
		FunctionDeclarations []functionDeclaration `json:"functionDeclarations"`
	} `json:"tools"`
	ToolConfig *struct {
		FunctionCallingConfig *struct {
			Mode                 string   `json:"mode"`
			AllowedFunctionNames []string `json:"allowedFunctionNames"`
		} `json:"functionCallingConfig"`
	} `json:"toolConfig"`
	GenerationConfig *generationConfig `json:"generationConfig"`
	SafetySettings   raw               `json:"safetySettings"`
	CachedContent    raw               `json:"cachedContent"`
	Store            raw               `json:"store"`
}

type generationConfig struct {
	MaxOutputTokens  *int     `json:"maxOutputTokens"`
	Temperature      *float64 `json:"temperature"`
	TopP             *float64 `json:"topP"`
	TopK             *float64 `json:"topK"`
	CandidateCount   *int     `json:"candidateCount"`
	StopSequences    []string `json:"stopSequences"`
	Seed             *int     `json:"seed"`
	MediaResolution  string   `json:"mediaResolution"`
	ResponseMIMEType string   `json:"responseMimeType"`
	ResponseSchema   raw      `json:"responseSchema"`
	ResponseJSON     raw      `json:"responseJsonSchema"`
	ThinkingConfig   *struct {
		IncludeThoughts bool   `json:"includeThoughts"`
		ThinkingBudget  *int   `json:"thinkingBudget"`
		ThinkingLevel   string `json:"thinkingLevel"`
	} `json:"thinkingConfig"`
}

type inputContent struct {
	Role  string      `json:"role"`
	Parts []inputPart `json:"parts"`
}

type inputPart struct {
	Text             *string           `json:"text"`
	Thought          bool              `json:"thought"`
	ThoughtSignature string            `json:"thoughtSignature"`
	InlineData       *inlineData       `json:"inlineData"`
	FileData         raw               `json:"fileData"`
	FunctionCall     *functionCall     `json:"functionCall"`
	FunctionResponse *functionResponse `json:"functionResponse"`
	MediaResolution  raw               `json:"mediaResolution"`
}

type inlineData struct {
	MIMEType string `json:"mimeType"`
	Data     string `json:"data"`
}

type functionCall struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Args raw    `json:"args"`
}

type functionResponse struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Response raw    `json:"response"`
}

type functionDeclaration struct {
	Name                 string        `json:"name"`
	Description          string        `json:"description"`
	Parameters           *schemaObject `json:"parameters"`
	ParametersJSONSchema raw           `json:"parametersJsonSchema"`
	Response             raw           `json:"response"`
	ResponseJSONSchema   raw           `json:"responseJsonSchema"`
	Behavior             string        `json:"behavior"`
}

// A schemaObject is the part of OpenAPI that Google takes; anything else is an
// unknown name.
type schemaObject struct {
	Type             string                  `json:"type,omitzero"`
	Format           string                  `json:"format,omitzero"`
	Title            string                  `json:"title,omitzero"`
	Description      string                  `json:"description,omitzero"`
	Nullable         bool                    `json:"nullable,omitzero"`
	Enum             []string                `json:"enum,omitempty"`
	Items            *schemaObject           `json:"items,omitzero"`
	MinItems         raw                     `json:"minItems,omitzero"`
	MaxItems         raw                     `json:"maxItems,omitzero"`
	Properties       map[string]schemaObject `json:"properties,omitempty"`
	Required         []string                `json:"required,omitempty"`
	PropertyOrdering []string                `json:"propertyOrdering,omitempty"`
	MinProperties    raw                     `json:"minProperties,omitzero"`
	MaxProperties    raw                     `json:"maxProperties,omitzero"`
	Minimum          raw                     `json:"minimum,omitzero"`
	Maximum          raw                     `json:"maximum,omitzero"`
	MinLength        raw                     `json:"minLength,omitzero"`
	MaxLength        raw                     `json:"maxLength,omitzero"`
	Pattern          string                  `json:"pattern,omitzero"`
	AnyOf            []schemaObject          `json:"anyOf,omitempty"`
	Default          raw                     `json:"default,omitzero"`
	Example          raw                     `json:"example,omitzero"`
}

func badRequest(format string, args ...any) *exchange.Refusal {
	return &exchange.Refusal{Status: 400, Message: fmt.Sprintf(format, args...)}
}

// decodeBody decodes a request, and refuses unknown members.
func decodeBody(body []byte, v any) *exchange.Refusal {
	pointer, unknown, err := exchange.DecodeStrict(camelNames(body), v)
	path := snakeCase(exchange.DottedPath(pointer))
	switch {
	case err == nil:
		return nil
	case unknown:
		at, name := "", path
		if i := strings.LastIndexByte(path, '.'); i >= 0 {
			at, name = " at '"+path[:i]+"'", path[i+1:]
		}
		return badRequest("Invalid JSON payload received. Unknown name \"%s\"%s: Cannot find field.",
			sentName(pointer, name), at)
	case path != "":
		return badRequest("Invalid value at '%s'", path)
	}
	return badRequest("Invalid JSON payload received. Unexpected token.")
}

// opaque are the members whose value is not of the API. In properties the names are not.
var opaque = []string{"args", "response", "parametersJsonSchema", "responseJsonSchema", "default", "example", "enum"}

// camelNames writes the names of an API's members in camelCase, which may come in snake_case.
func camelNames(body []byte) []byte {
	var v any
	if !bytes.ContainsRune(body, '_') || json.Unmarshal(body, &v) != nil {
		return body
	}
	return exchange.Encode(camelValue(v, false))
}

func camelValue(v any, named bool) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = camelValue(v[i], false)
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, value := range v {
			if !named {
				name = camelCase(name)
			}
			if named || !slices.Contains(opaque, name) {
				value = camelValue(value, !named && name == "properties")
			}
			out[name] = value
		}
		return out
	}
	return v
}

var snake = regexp.MustCompile(`_[a-z]`)

// camelCase writes generation_config as generationConfig.
func camelCase(name string) string {
	return snake.ReplaceAllStringFunc(name, func(c string) string { return strings.ToUpper(c[1:]) })
}

// sentName is the last name of a pointer as it was sent.
func sentName(pointer, name string) string {
	if i := strings.LastIndexByte(pointer, '/'); i >= 0 {
		return pointer[i+1:]
	}
	return name
}

var capitalLetter = regexp.MustCompile(`[A-Z]`)

// snakeCase writes generationConfig as generation_config.
func snakeCase(path string) string {
	return capitalLetter.ReplaceAllStringFunc(path, func(c string) string { return "_" + strings.ToLower(c) })
}

func (c *generate) ReadPrompt(_ *http.Request, body []byte) (*exchange.Prompt, *exchange.Refusal) {
	q := &c.request
	m, ok := c.api.server.FindModel(exchange.Google, c.name)
	if !ok || m.Dimensions > 0 {
		return nil, notFound(c.name, "generateContent")
	}
	if f := decodeBody(body, q); f != nil {
		return nil, f
	}
	c.model = m
	p := &exchange.Prompt{Model: m, Stream: c.stream, Parallel: true, Choice: "auto", Thinks: true}
	for _, check := range []func() *exchange.Refusal{
		func() *exchange.Refusal { return q.readConfig(p) },
		func() *exchange.Refusal { return q.readTools(p) },
		func() *exchange.Refusal { return q.readContents(p) },
		func() *exchange.Refusal { return q.checkOrder() },
		func() *exchange.Refusal { return q.checkSignatures(m) },
	} {
		if f := check(); f != nil {
			return nil, f
		}
	}
	if n := p.Input.Text + p.Input.Images; n > m.Context {
		return nil, badRequest("The input token count (%d) exceeds the maximum number of tokens allowed (%d).", n,
			m.Context)
	}
	return p, nil
}

func (q *generateRequest) readConfig(p *exchange.Prompt) *exchange.Refusal {
	g := q.GenerationConfig
	if g == nil {
		return nil
	}
	switch {
	case g.MaxOutputTokens != nil && (*g.MaxOutputTokens < 1 || *g.MaxOutputTokens > p.Model.MaxOutput):
		return badRequest(
			"Unable to submit request because it has a maxOutputTokens value of %d but the supported range is from 1 "+
				"(inclusive) to %d (exclusive). Update the value and try "+
				"again.", *g.MaxOutputTokens, p.Model.MaxOutput+1)
	case g.Temperature != nil && (*g.Temperature < 0 || *g.Temperature > 2):
		return badRequest(
			"* GenerateContentRequest.generation_config.temperature: temperature must be in the range [0.0, 2.0].\n")
	case g.CandidateCount != nil && *g.CandidateCount != 1:
		return badRequest("Multiple candidates is not enabled for this model")
	}
	if g.MaxOutputTokens != nil {
		p.Limit = *g.MaxOutputTokens
	}
	if g.ResponseMIMEType == "application/json" {
		p.Schema = raw("{}")
		for _, schema := range []raw{g.ResponseSchema, g.ResponseJSON} {
			if len(schema) > 0 {
				p.Schema = schema
			}
		}
	}
	t := g.ThinkingConfig
	if t == nil {
		return nil
	}
	level := strings.ToUpper(t.ThinkingLevel)
	switch fourth := strings.HasPrefix(p.Model.ID, "gemini-4"); {
	case level != "" && t.ThinkingBudget != nil:
		return badRequest("You can only set one of thinking budget and thinking level.")
	case level != "" && p.Model.Thinking != "level":
		return badRequest("Thinking level is not supported for this model.")
	case !slices.Contains([]string{"", "MINIMAL", "LOW", "MEDIUM", "HIGH"}, level):
		return badRequest(
			"Invalid value at 'generation_config.thinking_config.thinking_level' "+
				"(type.googleapis.com/google.ai.generativelanguage.v1beta.ThinkingConfig.ThinkingLevel), "+
				"\"%s\"", t.ThinkingLevel)
	case fourth && (level == "MINIMAL" || t.ThinkingBudget != nil):
		return badRequest("Thinking level MINIMAL and thinking budgets are not supported for this model.")
	}
	p.Thinks = level != "MINIMAL" && (t.ThinkingBudget == nil || *t.ThinkingBudget != 0)
	return nil
}
