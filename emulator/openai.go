package emulator

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// openAIDialect is what the two APIs of OpenAI have in common.
type openAIDialect struct{}

func (openAIDialect) authorize(r *http.Request) *refusal { return openAIKey(r) }

func openAIKey(r *http.Request) *refusal {
	switch key := bearer(r); key {
	case "":
		return &refusal{status: 401, message: "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY)."}
	case "bad-key":
		return &refusal{status: 401, code: "invalid_api_key", message: "Incorrect API key provided: bad-key. You can find your API key at https://platform.openai.com/account/api-keys."}
	case "no-quota":
		return &refusal{status: 429, code: "insufficient_quota", message: "You exceeded your current quota, please check your plan and billing details."}
	case "no-permission":
		return &refusal{status: 403, code: "unsupported_country_region_territory", message: "Country, region, or territory not supported"}
	}
	return nil
}

func (openAIDialect) headers(h http.Header, stream bool) {
	h.Set("Content-Type", "application/json")
	if stream {
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
	}
	h.Set("X-Request-Id", "req_"+random(32))
	h.Set("Openai-Version", "2020-10-01")
	h.Set("Openai-Processing-Ms", "12")
	h.Set("Openai-Organization", "emulated-org")
	h.Set("X-Ratelimit-Limit-Requests", "10000")
	h.Set("X-Ratelimit-Remaining-Requests", "9999")
	h.Set("X-Ratelimit-Reset-Requests", "6ms")
	h.Set("X-Ratelimit-Limit-Tokens", "2000000")
	h.Set("X-Ratelimit-Remaining-Tokens", "1999000")
	h.Set("X-Ratelimit-Reset-Tokens", "30ms")
}

// An openAIError has members that may be null.
type openAIError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

func (f *refusal) openAI() openAIError {
	e := openAIError{Message: f.message, Type: f.kind, Param: &f.param, Code: &f.code}
	if e.Type == "" {
		e.Type = "invalid_request_error"
		switch {
		case f.code == "insufficient_quota":
			e.Type = "insufficient_quota"
		case f.status == 429:
			e.Type = "requests"
		case f.status >= 500:
			e.Type = "server_error"
		}
	}
	if f.param == "" {
		e.Param = nil
	}
	if f.code == "" {
		e.Code = nil
		if code := map[int]string{401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}[f.status]; code != "" {
			e.Code = &code
		}
	}
	return e
}

func (openAIDialect) refuse(f *refusal, _ *script) []byte {
	return encode(struct {
		Error openAIError `json:"error"`
	}{f.openAI()})
}

// badParam is a 400 that names the parameter.
func badParam(code, param, format string, args ...any) *refusal {
	return &refusal{status: 400, code: code, param: param, message: fmt.Sprintf(format, args...)}
}

// openAIBody decodes a request, and refuses what is not known.
func openAIBody(body []byte, v any) *refusal {
	pointer, unknown, err := strict(body, v)
	switch param := dotted(pointer); {
	case err == nil:
		return nil
	case unknown:
		return badParam("unknown_parameter", param, "Unknown parameter: '%s'.", param)
	case param != "":
		return badParam("invalid_type", param, "Invalid type for '%s'.", param)
	}
	return badParam("", "", "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP library correctly. The OpenAI API expects a JSON payload, but what was sent was not valid JSON.)")
}

// dotted writes /messages/0/role as messages[0].role.
func dotted(pointer string) (path string) {
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		switch {
		case path == "":
			path = part
		case strings.Trim(part, "0123456789") == "":
			path += "[" + part + "]"
		default:
			path += "." + part
		}
	}
	return path
}

func (e *Emulator) openAIModel(id string) (Model, *refusal) {
	if id == "" {
		return Model{}, badParam("", "", "you must provide a model parameter")
	}
	m, ok := e.model(openAI, id)
	if !ok {
		return m, &refusal{status: 404, code: "model_not_found", message: "The model `" + id + "` does not exist or you do not have access to it."}
	}
	return m, nil
}

// effort is the level at which a model reasons.
func (m Model) effort(asked, param string) (string, *refusal) {
	switch {
	case asked == "" && len(m.Efforts) == 0:
		return "none", nil
	case asked == "":
		return m.Efforts[0], nil
	case len(m.Efforts) == 0:
		return "", badParam("unsupported_parameter", param, "Unsupported parameter: '%s' is not supported with this model.", param)
	case !slices.Contains(m.Efforts, asked):
		return "", badParam("unsupported_value", param, "Unsupported value: '%s' does not support '%s' with this model. Supported values are: '%s'.", param, asked, strings.Join(m.Efforts, "', '"))
	}
	return asked, nil
}

// temperature refuses all but 1 where a model takes nothing else.
func (m Model) temperature(t *float64, effort string) *refusal {
	if t == nil {
		return nil
	}
	if *t < 0 || *t > 2 {
		return badParam("decimal_above_max_value", "temperature", "Invalid 'temperature': must be between 0 and 2.")
	}
	if *t != 1 && m.Fixed && effort != "none" {
		return badParam("unsupported_value", "temperature", "Unsupported value: 'temperature' does not support %v with this model. Only the default (1) value is supported.", *t)
	}
	return nil
}

// room refuses more tokens than a model has.
func (m Model) room(limit *int, param string, input tally) *refusal {
	if limit != nil && *limit < 1 {
		return badParam("integer_below_min_value", param, "Invalid '%s': integer below minimum value. Expected a value >= 1, but got %d instead.", param, *limit)
	}
	if limit != nil && *limit > m.MaxOutput {
		return badParam("invalid_value", param, "%s is too large: %d. This model supports at most %d completion tokens, whereas you provided %d.", param, *limit, m.MaxOutput, *limit)
	}
	if n := input.text + input.images; n > m.Context {
		return badParam("context_length_exceeded", "messages", "This model's maximum context length is %d tokens. However, your messages resulted in %d tokens. Please reduce the length of the messages.", m.Context, n)
	}
	return nil
}

// openAIImage checks an image and counts it.
func openAIImage(url, detail, param string, input *tally) *refusal {
	most := 30_000
	if detail == "low" {
		most = 256
	}
	if !slices.Contains([]string{"", "auto", "low", "high", "original"}, detail) {
		return badParam("invalid_value", param, "Invalid value: '%s'. Supported values are: 'auto', 'low', 'high', and 'original'.", detail)
	}
	if strings.HasPrefix(url, "https://") || strings.HasPrefix(url, "http://") {
		input.images += 765 // it would be fetched
		return nil
	}
	_, data, ok := dataURL(url)
	if !ok {
		return badParam("invalid_image_url", param, "Invalid image_url: expected a valid URL or base64 data URL.")
	}
	p, err := look(data)
	if err != nil {
		return badParam("invalid_base64", param, "Invalid base64 image_url.")
	}
	if p.kind == "" {
		return badParam("invalid_image_format", param, "You uploaded an unsupported image. Please make sure your image is of one of the following formats: ['png', 'jpeg', 'gif', 'webp'].")
	}
	if p.width > 0 && p.patches(32, 1<<30) > 30_000 && detail != "high" && detail != "low" {
		return badParam("invalid_image", param, "The image is too large.")
	}
	input.images += (p.patches(32, most)*12 + 9) / 10
	return nil
}

var openAIName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// openAITools checks the names of tools.
func openAITools(tools []tool, param string, input *tally) *refusal {
	if len(tools) > 128 {
		return badParam("array_above_max_length", "tools", "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length %d instead.", len(tools))
	}
	for i, t := range tools {
		if !openAIName.MatchString(t.name) {
			return badParam("invalid_value", fmt.Sprintf(param, i), "Invalid '"+param+"': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.", i)
		}
		if len(t.schema) > 0 && t.schema.Kind() != '{' && t.schema.Kind() != 'n' {
			return badParam("invalid_function_parameters", "tools", "Invalid schema for function '%s': it is not an object.", t.name)
		}
		input.add(t.name, string(t.schema))
	}
	return nil
}

// openAIChoice reads tool_choice: a word, or the name of a function.
func openAIChoice(raw jsontext.Value, named string, p *prompt) *refusal {
	p.choice = "auto"
	switch raw.Kind() {
	case 0, 'n':
		return nil
	case '"':
		word, err := jsontext.AppendUnquote(nil, raw)
		if err != nil || !slices.Contains([]string{"none", "auto", "required"}, string(word)) {
			return badParam("invalid_value", "tool_choice", "Invalid value: %s. Supported values are: 'none', 'auto', and 'required'.", raw)
		}
		p.choice = string(word)
	default:
		p.choice, p.named = "named", named
		if !slices.ContainsFunc(p.tools, func(t tool) bool { return t.name == named }) {
			return badParam("", "tool_choice", "Invalid value for 'tool_choice': no function named '%s' was specified in the 'tools' parameter.", named)
		}
	}
	if len(p.tools) == 0 {
		return badParam("", "tool_choice", "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.")
	}
	return nil
}

// listModels serves GET /v1/models, which OpenAI and Anthropic both have.
func (e *Emulator) listModels(w http.ResponseWriter, r *http.Request) {
	rec := e.record(r, nil)
	if r.Header.Get("X-Api-Key") != "" {
		e.listClaude(w, r, rec)
		return
	}
	if f := openAIKey(r); f != nil {
		e.refuse(w, rec, &chat{emulator: e}, f, &script{})
		return
	}
	list := []any{}
	for _, m := range e.modelsOf(openAI) {
		list = append(list, map[string]any{"id": m.ID, "object": "model", "created": 1_780_000_000, "owned_by": "system"})
	}
	sendJSON(w, http.StatusOK, encode(map[string]any{"object": "list", "data": list}))
	e.ended(rec, http.StatusOK, nil)
}

// snapshot is the name by which OpenAI answers.
func snapshot(m Model) string { return m.ID + "-2026-06-01" }

func now() int64 { return time.Now().Unix() }
