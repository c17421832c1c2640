package emulator

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

type googleRequest struct {
	Model             string          `json:"model"`
	Contents          []googleContent `json:"contents"`
	SystemInstruction *googleContent  `json:"systemInstruction"`
	Tools             []struct {
		FunctionDeclarations []googleFunction `json:"functionDeclarations"`
	} `json:"tools"`
	ToolConfig *struct {
		FunctionCallingConfig *struct {
			Mode                 string   `json:"mode"`
			AllowedFunctionNames []string `json:"allowedFunctionNames"`
		} `json:"functionCallingConfig"`
	} `json:"toolConfig"`
	GenerationConfig *googleConfig `json:"generationConfig"`
	SafetySettings   raw           `json:"safetySettings"`
	CachedContent    raw           `json:"cachedContent"`
	Store            raw           `json:"store"`
}

type googleConfig struct {
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

type googleContent struct {
	Role  string       `json:"role"`
	Parts []googlePart `json:"parts"`
}

type googlePart struct {
	Text             *string         `json:"text"`
	Thought          bool            `json:"thought"`
	ThoughtSignature string          `json:"thoughtSignature"`
	InlineData       *googleBlob     `json:"inlineData"`
	FileData         raw             `json:"fileData"`
	FunctionCall     *googleCall     `json:"functionCall"`
	FunctionResponse *googleResponse `json:"functionResponse"`
	MediaResolution  raw             `json:"mediaResolution"`
}

type googleBlob struct {
	MIMEType string `json:"mimeType"`
	Data     string `json:"data"`
}

type googleCall struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Args raw    `json:"args"`
}

type googleResponse struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Response raw    `json:"response"`
}

type googleFunction struct {
	Name                 string        `json:"name"`
	Description          string        `json:"description"`
	Parameters           *googleSchema `json:"parameters"`
	ParametersJSONSchema raw           `json:"parametersJsonSchema"`
	Response             raw           `json:"response"`
	ResponseJSONSchema   raw           `json:"responseJsonSchema"`
	Behavior             string        `json:"behavior"`
}

// A googleSchema is the part of OpenAPI that Google takes; anything else is an
// unknown name.
type googleSchema struct {
	Type             string                  `json:"type,omitzero"`
	Format           string                  `json:"format,omitzero"`
	Title            string                  `json:"title,omitzero"`
	Description      string                  `json:"description,omitzero"`
	Nullable         bool                    `json:"nullable,omitzero"`
	Enum             []string                `json:"enum,omitempty"`
	Items            *googleSchema           `json:"items,omitzero"`
	MinItems         raw                     `json:"minItems,omitzero"`
	MaxItems         raw                     `json:"maxItems,omitzero"`
	Properties       map[string]googleSchema `json:"properties,omitempty"`
	Required         []string                `json:"required,omitempty"`
	PropertyOrdering []string                `json:"propertyOrdering,omitempty"`
	MinProperties    raw                     `json:"minProperties,omitzero"`
	MaxProperties    raw                     `json:"maxProperties,omitzero"`
	Minimum          raw                     `json:"minimum,omitzero"`
	Maximum          raw                     `json:"maximum,omitzero"`
	MinLength        raw                     `json:"minLength,omitzero"`
	MaxLength        raw                     `json:"maxLength,omitzero"`
	Pattern          string                  `json:"pattern,omitzero"`
	AnyOf            []googleSchema          `json:"anyOf,omitempty"`
	Default          raw                     `json:"default,omitzero"`
	Example          raw                     `json:"example,omitzero"`
}

func badGoogle(format string, args ...any) *refusal {
	return &refusal{status: 400, message: fmt.Sprintf(format, args...)}
}

// googleBody decodes a request, and refuses what is not known.
func googleBody(body []byte, v any) *refusal {
	pointer, unknown, err := strict(body, v)
	path := snake(dotted(pointer))
	switch {
	case err == nil:
		return nil
	case unknown:
		at, name := "", path
		if i := strings.LastIndexByte(path, '.'); i >= 0 {
			at, name = " at '"+path[:i]+"'", path[i+1:]
		}
		return badGoogle("Invalid JSON payload received. Unknown name \"%s\"%s: Cannot find field.", camel(pointer, name), at)
	case path != "":
		return badGoogle("Invalid value at '%s'", path)
	}
	return badGoogle("Invalid JSON payload received. Unexpected token.")
}

// camel is the last name of a pointer as it was sent.
func camel(pointer, name string) string {
	if i := strings.LastIndexByte(pointer, '/'); i >= 0 {
		return pointer[i+1:]
	}
	return name
}

var capital = regexp.MustCompile(`[A-Z]`)

// snake writes generationConfig as generation_config.
func snake(path string) string {
	return capital.ReplaceAllStringFunc(path, func(c string) string { return "_" + strings.ToLower(c) })
}

func (c *generate) read(_ *http.Request, body []byte) (*prompt, *refusal) {
	q := &c.request
	m, ok := c.emulator.model(google, c.name)
	if !ok {
		return nil, &refusal{status: 404, message: "models/" + c.name + " is not found for API version v1beta, or is not supported for generateContent. Call ModelService.ListModels to see the list of available models and their supported methods."}
	}
	if f := googleBody(body, q); f != nil {
		return nil, f
	}
	c.model = m
	p := &prompt{model: m, stream: c.stream, parallel: true, choice: "auto", thinks: true}
	for _, check := range []func() *refusal{
		func() *refusal { return q.config(p) },
		func() *refusal { return q.tools(p) },
		func() *refusal { return q.converse(p) },
		func() *refusal { return q.order() },
		func() *refusal { return q.signatures(m) },
	} {
		if f := check(); f != nil {
			return nil, f
		}
	}
	if n := p.input.text + p.input.images; n > m.Context {
		return nil, badGoogle("The input token count (%d) exceeds the maximum number of tokens allowed (%d).", n, m.Context)
	}
	return p, nil
}

func (q *googleRequest) config(p *prompt) *refusal {
	g := q.GenerationConfig
	if g == nil {
		return nil
	}
	switch {
	case g.MaxOutputTokens != nil && (*g.MaxOutputTokens < 1 || *g.MaxOutputTokens > p.model.MaxOutput):
		return badGoogle("Unable to submit request because it has a maxOutputTokens value of %d but the supported range is from 1 (inclusive) to %d (exclusive). Update the value and try again.", *g.MaxOutputTokens, p.model.MaxOutput+1)
	case g.Temperature != nil && (*g.Temperature < 0 || *g.Temperature > 2):
		return badGoogle("* GenerateContentRequest.generation_config.temperature: temperature must be in the range [0.0, 2.0].\n")
	case g.CandidateCount != nil && *g.CandidateCount != 1:
		return badGoogle("Multiple candidates is not enabled for this model")
	}
	if g.MaxOutputTokens != nil {
		p.limit = *g.MaxOutputTokens
	}
	t := g.ThinkingConfig
	if t == nil {
		return nil
	}
	level := strings.ToUpper(t.ThinkingLevel)
	switch fourth := strings.HasPrefix(p.model.ID, "gemini-4"); {
	case level != "" && t.ThinkingBudget != nil:
		return badGoogle("You can only set one of thinking budget and thinking level.")
	case level != "" && p.model.Thinking != "level":
		return badGoogle("Thinking level is not supported for this model.")
	case !slices.Contains([]string{"", "MINIMAL", "LOW", "MEDIUM", "HIGH"}, level):
		return badGoogle("Invalid value at 'generation_config.thinking_config.thinking_level' (type.googleapis.com/google.ai.generativelanguage.v1beta.ThinkingConfig.ThinkingLevel), \"%s\"", t.ThinkingLevel)
	case fourth && (level == "MINIMAL" || t.ThinkingBudget != nil):
		return badGoogle("Thinking level MINIMAL and thinking budgets are not supported for this model.")
	}
	p.thinks = level != "MINIMAL" && (t.ThinkingBudget == nil || *t.ThinkingBudget != 0)
	return nil
}

var googleName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}$`)

func (q *googleRequest) tools(p *prompt) *refusal {
	if len(q.Tools) > 1 {
		return badGoogle("Multiple tools are supported only when they are all search tools.")
	}
	for _, t := range q.Tools {
		for i, f := range t.FunctionDeclarations {
			at := fmt.Sprintf("GenerateContentRequest.tools[0].function_declarations[%d]", i)
			switch {
			case !googleName.MatchString(f.Name):
				return badGoogle("* %s.name: [FIELD_INVALID] Invalid function name. Must start with a letter or an underscore. Must be alphanumeric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 128.\n", at)
			case slices.ContainsFunc(p.tools, func(o tool) bool { return o.name == f.Name }):
				return badGoogle("Duplicate function declaration found: %s", f.Name)
			case f.Parameters != nil && len(f.ParametersJSONSchema) > 0:
				return badGoogle("* %s: parameters and parameters_json_schema are mutually exclusive.\n", at)
			case f.Parameters != nil && strings.EqualFold(f.Parameters.Type, "object") && len(f.Parameters.Properties) == 0 && !p.model.Signatures:
				return badGoogle("* %s.parameters.properties: should be non-empty for OBJECT type\n", at)
			}
			schema := f.ParametersJSONSchema
			if f.Parameters != nil {
				schema = encode(f.Parameters)
			}
			p.tools = append(p.tools, tool{f.Name, schema})
			p.input.add(f.Name, f.Description, string(schema))
		}
	}
	return q.choose(p)
}

func (q *googleRequest) choose(p *prompt) *refusal {
	if q.ToolConfig == nil || q.ToolConfig.FunctionCallingConfig == nil {
		return nil
	}
	c := q.ToolConfig.FunctionCallingConfig
	choice, ok := map[string]string{"": "auto", "MODE_UNSPECIFIED": "auto", "AUTO": "auto", "ANY": "required", "NONE": "none", "VALIDATED": "auto"}[strings.ToUpper(c.Mode)]
	switch {
	case !ok:
		return badGoogle("Invalid value at 'tool_config.function_calling_config.mode' (type.googleapis.com/google.ai.generativelanguage.v1beta.FunctionCallingConfig.Mode), \"%s\"", c.Mode)
	case len(p.tools) == 0 && choice == "required":
		return badGoogle("Function calling config is set without function_declarations.")
	case len(c.AllowedFunctionNames) > 0 && choice != "required":
		return badGoogle("Allowed function names should only be set when function calling mode is ANY.")
	}
	p.choice = choice
	for _, name := range c.AllowedFunctionNames {
		if !slices.ContainsFunc(p.tools, func(t tool) bool { return t.name == name }) {
			return badGoogle("Allowed function name %s is not declared.", name)
		}
		p.choice, p.named = "named", name
	}
	return nil
}

// converse reads the contents.
func (q *googleRequest) converse(p *prompt) *refusal {
	if len(q.Contents) == 0 {
		return badGoogle("* GenerateContentRequest.contents: contents is not specified\n")
	}
	if q.SystemInstruction != nil {
		if _, f := q.SystemInstruction.read("system_instruction", p); f != nil {
			return f
		}
	}
	for i := range q.Contents {
		c := &q.Contents[i]
		if c.Role == "" && len(q.Contents) == 1 {
			c.Role = "user"
		}
		if c.Role != "user" && c.Role != "model" {
			return badGoogle("Please use a valid role: user, model.")
		}
		text, f := c.read(fmt.Sprintf("contents[%d]", i), p)
		if f != nil {
			return f
		}
		p.input.message()
		switch {
		case c.Role == "user" && text != "":
			p.text, p.rounds, p.seen = text, 0, nil
		case c.Role == "user":
			for _, part := range c.Parts {
				if part.FunctionResponse != nil {
					p.seen = append(p.seen, string(part.FunctionResponse.Response))
				}
			}
		case c.calls() > 0:
			p.rounds++
		}
	}
	return nil
}

// read checks the parts of a content and returns its text.
func (c *googleContent) read(at string, p *prompt) (string, *refusal) {
	if len(c.Parts) == 0 {
		return "", badGoogle("* GenerateContentRequest.%s.parts: contents.parts must not be empty.\n", at)
	}
	var texts []string
	for i, part := range c.Parts {
		at := fmt.Sprintf("GenerateContentRequest.%s.parts[%d]", at, i)
		set := 0
		for _, has := range []bool{part.Text != nil, part.InlineData != nil, len(part.FileData) > 0, part.FunctionCall != nil, part.FunctionResponse != nil} {
			if has {
				set++
			}
		}
		if set != 1 {
			return "", badGoogle("* %s.data: required oneof field 'data' must have one initialized field\n", at)
		}
		if part.Text != nil && *part.Text != "" && !part.Thought {
			texts = append(texts, *part.Text)
		}
		if f := part.check(at, c.Role, p); f != nil {
			return "", f
		}
	}
	text := strings.Join(texts, "\n")
	p.input.add(text)
	return text, nil
}

// check checks one part that is no text, and counts it.
func (part *googlePart) check(at, role string, p *prompt) *refusal {
	switch {
	case part.InlineData != nil:
		return part.InlineData.check(p)
	case len(part.FileData) > 0:
		return badGoogle("Cannot fetch content from the provided URL.")
	case part.FunctionCall != nil:
		if role != "model" {
			return badGoogle("* %s: function_call is only for role model.\n", at)
		} else if !googleName.MatchString(part.FunctionCall.Name) {
			return badGoogle("* %s.function_call.name: Name cannot be empty.\n", at)
		} else if kind := part.FunctionCall.Args.Kind(); kind != 0 && kind != '{' {
			return badGoogle("Invalid value at '%s.function_call.args' (type.googleapis.com/google.protobuf.Struct)", at)
		}
		p.input.add(part.FunctionCall.Name, string(part.FunctionCall.Args))
	case part.FunctionResponse != nil:
		if role != "user" {
			return badGoogle("* %s: function_response is only for role user.\n", at)
		} else if part.FunctionResponse.Name == "" {
			return badGoogle("* %s.function_response.name: Name cannot be empty.\n", at)
		} else if part.FunctionResponse.Response.Kind() != '{' {
			return badGoogle("Invalid value at '%s.function_response.response' (type.googleapis.com/google.protobuf.Struct)", at)
		}
		p.input.add(part.FunctionResponse.Name, string(part.FunctionResponse.Response))
	}
	return nil
}

// check checks an image (wire C.6).
func (b *googleBlob) check(p *prompt) *refusal {
	kinds := []string{"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"}
	if !slices.Contains(kinds, b.MIMEType) {
		return badGoogle("Unsupported MIME type: %s", b.MIMEType)
	}
	pic, err := look(b.Data)
	if err != nil {
		return badGoogle("Invalid value at 'contents.parts.inline_data.data' (TYPE_BYTES), Base64 decoding failed")
	}
	if pic.kind != b.MIMEType && b.MIMEType != "image/heic" && b.MIMEType != "image/heif" {
		return badGoogle("Unable to process input image. Please retry or report in https://developers.generativeai.google/guide/troubleshooting")
	}
	if p.model.Signatures {
		p.input.images += 1_120
	} else {
		p.input.images += 258 * pic.patches(768, 16)
	}
	return nil
}

func (c *googleContent) calls() (n int) {
	for _, part := range c.Parts {
		if part.FunctionCall != nil {
			n++
		}
	}
	return n
}

func (c *googleContent) responses() (n int) {
	for _, part := range c.Parts {
		if part.FunctionResponse != nil {
			n++
		}
	}
	return n
}

// order checks that calls and responses stand side by side (wire C.3).
func (q *googleRequest) order() *refusal {
	for i := range q.Contents {
		c := &q.Contents[i]
		if c.calls() > 0 && (i == 0 || q.Contents[i-1].Role != "user") {
			return badGoogle("Please ensure that function call turn comes immediately after a user turn or after a function response turn.")
		}
		if n := c.responses(); n > 0 && (i == 0 || q.Contents[i-1].calls() == 0) {
			return badGoogle("Please ensure that function response turn comes immediately after a function call turn.")
		} else if i > 0 && q.Contents[i-1].calls() != n {
			return badGoogle("Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn.")
		}
	}
	if q.Contents[len(q.Contents)-1].calls() > 0 {
		return badGoogle("Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn.")
	}
	return nil
}

// Thought signatures: ours begin with this, and these others are taken too.
const signed = "emulated thought of "

var placeholders = []string{"skip_thought_signature_validator", "context_engineering_is_the_way_to_go"}

// signatures checks the calls since the last text of the user: the first of each
// step must have what the model gave it (wire C.4).
func (q *googleRequest) signatures(m Model) *refusal {
	if !m.Signatures {
		return nil
	}
	start := 0
	for i, c := range q.Contents {
		if c.Role == "user" && c.responses() == 0 {
			start = i
		}
	}
	for i, c := range q.Contents {
		first := true
		for j, part := range c.Parts {
			if f := part.signature(); f != nil {
				return f
			}
			if part.FunctionCall == nil {
				continue
			}
			if first && i >= start && part.ThoughtSignature == "" {
				return badGoogle("Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, and missing thought_signature may lead to degraded model performance. Additional data, function call `default_api:%s` , position %d. Please refer to https://ai.google.dev/gemini-api/docs/thought-signatures for more details.", part.FunctionCall.Name, j+1)
			}
			first = false
		}
	}
	return nil
}

// signature checks that a signature is one that a model gave.
func (part *googlePart) signature() *refusal {
	text := part.ThoughtSignature
	if text == "" || slices.Contains(placeholders, text) {
		return nil
	}
	b, err := base64.StdEncoding.DecodeString(text)
	if err == nil && slices.Contains(placeholders, string(b)) {
		return nil // the SDK encodes it once more
	}
	if err != nil || !strings.HasPrefix(string(b), signed) {
		return badGoogle("Corrupted thought signature.")
	}
	return nil
}
