package google

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

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

// decodeBody decodes a request, and refuses what is not known.
func decodeBody(body []byte, v any) *exchange.Refusal {
	pointer, unknown, err := exchange.DecodeStrict(body, v)
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

func (c *generate) Read(_ *http.Request, body []byte) (*exchange.Prompt, *exchange.Refusal) {
	q := &c.request
	m, ok := c.api.server.Model(exchange.Google, c.name)
	if !ok {
		return nil, &exchange.Refusal{
			Status: 404,
			Message: "models/" + c.name +
				" is not found for API version v1beta, or is not supported for generateContent. Call " +
				"ModelService.ListModels to see the list of available models and their supported methods.",
		}
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

var toolName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}$`)

func (q *generateRequest) readTools(p *exchange.Prompt) *exchange.Refusal {
	if len(q.Tools) > 1 {
		return badRequest("Multiple tools are supported only when they are all search tools.")
	}
	for _, t := range q.Tools {
		for i, f := range t.FunctionDeclarations {
			at := fmt.Sprintf("GenerateContentRequest.tools[0].function_declarations[%d]", i)
			switch {
			case !toolName.MatchString(f.Name):
				return badRequest(
					"* %s.name: [FIELD_INVALID] Invalid function name. Must start with a letter or an underscore. "+
						"Must be alphanumeric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or dashes (-), "+
						"with a maximum length of 128.\n", at)
			case slices.ContainsFunc(p.Tools, func(o exchange.Tool) bool { return o.Name == f.Name }):
				return badRequest("Duplicate function declaration found: %s", f.Name)
			case f.Parameters != nil && len(f.ParametersJSONSchema) > 0:
				return badRequest("* %s: parameters and parameters_json_schema are mutually exclusive.\n", at)
			case f.Parameters != nil && strings.EqualFold(f.Parameters.Type, "object") &&
				len(f.Parameters.Properties) == 0 && !p.Model.Signatures:
				return badRequest("* %s.parameters.properties: should be non-empty for OBJECT type\n", at)
			}
			schema := f.ParametersJSONSchema
			if f.Parameters != nil {
				schema = exchange.Encode(f.Parameters)
			}
			p.Tools = append(p.Tools, exchange.Tool{Name: f.Name, Schema: schema})
			p.Input.AddTexts(f.Name, f.Description, string(schema))
		}
	}
	return q.readToolConfig(p)
}

func (q *generateRequest) readToolConfig(p *exchange.Prompt) *exchange.Refusal {
	if q.ToolConfig == nil || q.ToolConfig.FunctionCallingConfig == nil {
		return nil
	}
	c := q.ToolConfig.FunctionCallingConfig
	choice, ok := map[string]string{
		"":                 "auto",
		"MODE_UNSPECIFIED": "auto",
		"AUTO":             "auto",
		"ANY":              "required",
		"NONE":             "none",
		"VALIDATED":        "auto",
	}[strings.ToUpper(c.Mode)]
	switch {
	case !ok:
		return badRequest(
			"Invalid value at 'tool_config.function_calling_config.mode' "+
				"(type.googleapis.com/google.ai.generativelanguage.v1beta.FunctionCallingConfig.Mode), \"%s\"", c.Mode)
	case len(p.Tools) == 0 && choice == "required":
		return badRequest("Function calling config is set without function_declarations.")
	case len(c.AllowedFunctionNames) > 0 && choice != "required":
		return badRequest("Allowed function names should only be set when function calling mode is ANY.")
	}
	p.Choice = choice
	for _, name := range c.AllowedFunctionNames {
		if !slices.ContainsFunc(p.Tools, func(t exchange.Tool) bool { return t.Name == name }) {
			return badRequest("Allowed function name %s is not declared.", name)
		}
		p.Choice, p.Named = "named", name
	}
	return nil
}

// readContents reads the contents.
func (q *generateRequest) readContents(p *exchange.Prompt) *exchange.Refusal {
	if len(q.Contents) == 0 {
		return badRequest("* GenerateContentRequest.contents: contents is not specified\n")
	}
	if q.SystemInstruction != nil {
		if _, f := q.SystemInstruction.readParts("system_instruction", p); f != nil {
			return f
		}
	}
	for i := range q.Contents {
		c := &q.Contents[i]
		if c.Role == "" && len(q.Contents) == 1 {
			c.Role = "user"
		}
		if c.Role != "user" && c.Role != "model" {
			return badRequest("Please use a valid role: user, model.")
		}
		text, f := c.readParts(fmt.Sprintf("contents[%d]", i), p)
		if f != nil {
			return f
		}
		p.Input.AddMessage()
		switch {
		case c.Role == "user" && text != "":
			p.Text, p.Rounds, p.Results = text, 0, nil
		case c.Role == "user":
			for _, part := range c.Parts {
				if part.FunctionResponse != nil {
					p.Results = append(p.Results, string(part.FunctionResponse.Response))
				}
			}
		case c.countCalls() > 0:
			p.Rounds++
		}
	}
	return nil
}

// readParts checks the parts of a content and returns its text.
func (c *inputContent) readParts(at string, p *exchange.Prompt) (string, *exchange.Refusal) {
	if len(c.Parts) == 0 {
		return "", badRequest("* GenerateContentRequest.%s.parts: contents.parts must not be empty.\n", at)
	}
	var texts []string
	for i, part := range c.Parts {
		at := fmt.Sprintf("GenerateContentRequest.%s.parts[%d]", at, i)
		set := 0
		for _, has := range []bool{part.Text != nil, part.InlineData != nil, len(part.FileData) > 0,
			part.FunctionCall != nil, part.FunctionResponse != nil} {
			if has {
				set++
			}
		}
		if set != 1 {
			return "", badRequest("* %s.data: required oneof field 'data' must have one initialized field\n", at)
		}
		if part.Text != nil && *part.Text != "" && !part.Thought {
			texts = append(texts, *part.Text)
		}
		if f := part.checkPart(at, c.Role, p); f != nil {
			return "", f
		}
	}
	text := strings.Join(texts, "\n")
	p.Input.AddTexts(text)
	return text, nil
}

// checkPart checks one part that is no text, and counts it.
func (part *inputPart) checkPart(at, role string, p *exchange.Prompt) *exchange.Refusal {
	switch {
	case part.InlineData != nil:
		return part.InlineData.checkImage(p)
	case len(part.FileData) > 0:
		return badRequest("Cannot fetch content from the provided URL.")
	case part.FunctionCall != nil:
		if role != "model" {
			return badRequest("* %s: function_call is only for role model.\n", at)
		} else if !toolName.MatchString(part.FunctionCall.Name) {
			return badRequest("* %s.function_call.name: Name cannot be empty.\n", at)
		} else if kind := part.FunctionCall.Args.Kind(); kind != 0 && kind != '{' {
			return badRequest("Invalid value at '%s.function_call.args' (type.googleapis.com/google.protobuf.Struct)",
				at)
		}
		p.Input.AddTexts(part.FunctionCall.Name, string(part.FunctionCall.Args))
	case part.FunctionResponse != nil:
		if role != "user" {
			return badRequest("* %s: function_response is only for role user.\n", at)
		} else if part.FunctionResponse.Name == "" {
			return badRequest("* %s.function_response.name: Name cannot be empty.\n", at)
		} else if part.FunctionResponse.Response.Kind() != '{' {
			return badRequest(
				"Invalid value at '%s.function_response.response' (type.googleapis.com/google.protobuf.Struct)", at)
		}
		p.Input.AddTexts(part.FunctionResponse.Name, string(part.FunctionResponse.Response))
	}
	return nil
}

// checkImage checks an image (provider notes C.6).
func (b *inlineData) checkImage(p *exchange.Prompt) *exchange.Refusal {
	kinds := []string{"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"}
	if !slices.Contains(kinds, b.MIMEType) {
		return badRequest("Unsupported MIME type: %s", b.MIMEType)
	}
	pic, err := exchange.DecodeImage(b.Data)
	if err != nil {
		return badRequest("Invalid value at 'contents.parts.inline_data.data' (TYPE_BYTES), Base64 decoding failed")
	}
	if pic.Kind != b.MIMEType && b.MIMEType != "image/heic" && b.MIMEType != "image/heif" {
		return badRequest(
			"Unable to process input image. Please retry or report in " +
				"https://developers.generativeai.google/guide/troubleshooting")
	}
	if p.Model.Signatures {
		p.Input.Images += 1_120
	} else {
		p.Input.Images += 258 * pic.Patches(768, 16)
	}
	return nil
}

func (c *inputContent) countCalls() (n int) {
	for _, part := range c.Parts {
		if part.FunctionCall != nil {
			n++
		}
	}
	return n
}

func (c *inputContent) countResponses() (n int) {
	for _, part := range c.Parts {
		if part.FunctionResponse != nil {
			n++
		}
	}
	return n
}

// checkOrder checks that calls and responses stand side by side (provider notes C.3).
func (q *generateRequest) checkOrder() *exchange.Refusal {
	for i := range q.Contents {
		c := &q.Contents[i]
		if c.countCalls() > 0 && (i == 0 || q.Contents[i-1].Role != "user") {
			return badRequest(
				"Please ensure that function call turn comes immediately after a user turn or after a function " +
					"response turn.")
		}
		if n := c.countResponses(); n > 0 && (i == 0 || q.Contents[i-1].countCalls() == 0) {
			return badRequest("Please ensure that function response turn comes immediately after a function call turn.")
		} else if i > 0 && q.Contents[i-1].countCalls() != n {
			return badRequest(
				"Please ensure that the number of function response parts is equal to the number of function call " +
					"parts of the function call turn.")
		}
	}
	if q.Contents[len(q.Contents)-1].countCalls() > 0 {
		return badRequest(
			"Please ensure that the number of function response parts is equal to the number of function call parts " +
				"of the function call turn.")
	}
	return nil
}

// Thought signatures: ours begin with this, and these others are taken too.
const thoughtPrefix = "emulated thought of "

var placeholderSignatures = []string{"skip_thought_signature_validator", "context_engineering_is_the_way_to_go"}

// checkSignatures checks the calls since the last text of the user: the first of each
// step must have what the model gave it (provider notes C.4).
func (q *generateRequest) checkSignatures(m exchange.Model) *exchange.Refusal {
	if !m.Signatures {
		return nil
	}
	start := 0
	for i, c := range q.Contents {
		if c.Role == "user" && c.countResponses() == 0 {
			start = i
		}
	}
	for i, c := range q.Contents {
		first := true
		for j, part := range c.Parts {
			if f := part.checkSignature(); f != nil {
				return f
			}
			if part.FunctionCall == nil {
				continue
			}
			if first && i >= start && part.ThoughtSignature == "" {
				return badRequest(
					"Function call is missing a thought_signature in functionCall parts. This is required for tools "+
						"to work correctly, and missing thought_signature may lead to degraded model performance. "+
						"Additional data, function call `default_api:%s` , position %d. Please refer to "+
						"https://ai.google.dev/gemini-api/docs/thought-signatures for more "+
						"details.", part.FunctionCall.Name, j+1)
			}
			first = false
		}
	}
	return nil
}

// checkSignature checks that a signature is one that a model gave.
func (part *inputPart) checkSignature() *exchange.Refusal {
	text := part.ThoughtSignature
	if text == "" || slices.Contains(placeholderSignatures, text) {
		return nil
	}
	b, err := base64.StdEncoding.DecodeString(text)
	if err == nil && slices.Contains(placeholderSignatures, string(b)) {
		return nil // the SDK encodes it once more
	}
	if err != nil || !strings.HasPrefix(string(b), thoughtPrefix) {
		return badRequest("Corrupted thought signature.")
	}
	return nil
}
