// Package openai emulates OpenAI's text APIs: Chat Completions and Responses with their stored records, and Embeddings.
package openai

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/emulator/exchange"
	"github.com/purserhq/purser/emulator/script"
)

// An API emulates OpenAI's text APIs.
type API struct {
	server *exchange.Server

	mu     sync.Mutex
	stored []*storedAnswer // the latest, oldest first
}

// New returns an API.
func New(s *exchange.Server) *API { return &API{server: s} }

// Mount adds the API's paths to mux, but for GET /v1/models.
func (e *API) Mount(mux *http.ServeMux) {
	mux.HandleFunc("POST /v1/chat/completions", e.server.Handler(func() exchange.Dialect { return &chat{api: e} }))
	mux.HandleFunc("POST /v1/responses", e.server.Handler(func() exchange.Dialect { return &responses{api: e} }))
	mux.HandleFunc("POST /v1/embeddings", e.server.Handler(func() exchange.Dialect { return &embeddings{api: e} }))
	mux.HandleFunc("GET /v1/responses/{id}", e.getStored)
	mux.HandleFunc("GET /v1/chat/completions/{id}", e.getStored)
	mux.HandleFunc("DELETE /v1/chat/completions/{id}", e.deleteStored)
	mux.HandleFunc("GET /v1/chat/completions", e.listStored)
}

// Common is the common part of OpenAI's two text APIs.
type Common struct{}

// CheckKey refuses a key, and the client's name of a request, as OpenAI does.
func (Common) CheckKey(r *http.Request) *exchange.Refusal {
	if f := CheckKey(r); f != nil {
		return f
	}
	name := r.Header.Get("X-Client-Request-Id")
	if len(name) > 512 || strings.ContainsFunc(name, func(c rune) bool { return c >= 0x80 }) {
		return BadParam("", "", "Invalid 'X-Client-Request-Id': expected at most 512 ASCII characters.")
	}
	return nil
}

// CheckKey refuses a missing key and the keys that the emulator gives a meaning.
func CheckKey(r *http.Request) *exchange.Refusal {
	switch key := exchange.BearerToken(r); key {
	case "":
		return &exchange.Refusal{
			Status: 401,
			Message: "You didn't provide an API key. You need to provide your API key in an Authorization header " +
				"using Bearer auth (i.e. Authorization: Bearer YOUR_KEY).",
		}
	case "bad-key":
		return &exchange.Refusal{
			Status: 401,
			Code:   "invalid_api_key",
			Message: "Incorrect API key provided: bad-key. You can find your API key at " +
				"https://platform.openai.com/account/api-keys.",
		}
	case "no-quota":
		return &exchange.Refusal{
			Status:  429,
			Code:    "insufficient_quota",
			Message: "You exceeded your current quota, please check your plan and billing details.",
		}
	case "no-permission":
		return &exchange.Refusal{
			Status:  403,
			Code:    "unsupported_country_region_territory",
			Message: "Country, region, or territory not supported",
		}
	}
	return nil
}

// SetHeaders sets the headers of every answer.
func (Common) SetHeaders(h http.Header, stream bool) {
	h.Set("Content-Type", "application/json")
	if stream {
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
	}
	h.Set("X-Request-Id", "req_"+exchange.RandomID(32))
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

// An apiError has members that may be null.
type apiError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

func apiErrorOf(f *exchange.Refusal) apiError {
	e := apiError{Message: f.Message, Type: f.Kind, Param: &f.Param, Code: &f.Code}
	if e.Type == "" {
		e.Type = "invalid_request_error"
		switch {
		case f.Code == "insufficient_quota":
			e.Type = "insufficient_quota"
		case f.Status == 429:
			e.Type = "requests"
		case f.Status >= 500:
			e.Type = "server_error"
		}
	}
	if f.Param == "" {
		e.Param = nil
	}
	if f.Code == "" {
		e.Code = nil
		if code := map[int]string{
			401: "invalid_api_key",
			404: "model_not_found",
			429: "rate_limit_exceeded",
		}[f.Status]; code != "" {
			e.Code = &code
		}
	}
	return e
}

// EncodeError is the body of an error.
func (Common) EncodeError(f *exchange.Refusal, _ *script.Script) []byte {
	return exchange.Encode(struct {
		Error apiError `json:"error"`
	}{apiErrorOf(f)})
}

// BadParam is a 400 that names the parameter.
func BadParam(code, param, format string, args ...any) *exchange.Refusal {
	return &exchange.Refusal{Status: 400, Code: code, Param: param, Message: fmt.Sprintf(format, args...)}
}

// checkCacheKey refuses a prompt_cache_key that is too long.
func checkCacheKey(key string) *exchange.Refusal {
	if len(key) > 64 {
		return BadParam("string_above_max_length", "prompt_cache_key", "Invalid 'prompt_cache_key': string too long.")
	}
	return nil
}

// readSchema returns the schema of a structured answer from its format: {} if it may be any object,
// and nil if it may be any text.
func readSchema(format raw) raw {
	var f struct {
		Type       string `json:"type"`
		Schema     raw    `json:"schema"` // Responses
		JSONSchema struct {
			Schema raw `json:"schema"` // Chat Completions
		} `json:"json_schema"`
	}
	switch {
	case len(format) == 0 || json.Unmarshal(format, &f) != nil || f.Type == "text":
		return nil
	case f.Type == "json_object":
		return raw("{}")
	case len(f.Schema) > 0:
		return f.Schema
	}
	return f.JSONSchema.Schema
}

// decodeBody decodes a request, and refuses what is not known.
func decodeBody(body []byte, v any) *exchange.Refusal {
	pointer, unknown, err := exchange.DecodeStrict(body, v)
	switch param := exchange.DottedPath(pointer); {
	case err == nil:
		return nil
	case unknown:
		return BadParam("unknown_parameter", param, "Unknown parameter: '%s'.", param)
	case param != "":
		return BadParam("invalid_type", param, "Invalid type for '%s'.", param)
	}
	return BadParam("", "",
		"We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP "+
			"library correctly. The OpenAI API expects a JSON payload, but what was sent was not valid JSON.)")
}

// findModel returns a model that writes text.
func (e *API) findModel(id string) (exchange.Model, *exchange.Refusal) {
	if id == "" {
		return exchange.Model{}, BadParam("", "", "you must provide a model parameter")
	}
	m, ok := e.server.FindModel(exchange.OpenAI, id)
	if !ok {
		return m, &exchange.Refusal{
			Status:  404,
			Code:    "model_not_found",
			Message: "The model `" + id + "` does not exist or you do not have access to it.",
		}
	}
	if m.Dimensions > 0 {
		return m, &exchange.Refusal{
			Status:  404,
			Param:   "model",
			Message: "This is not a chat model and thus not supported in the v1/chat/completions endpoint.",
		}
	}
	return m, nil
}

// effort is the level at which a model reasons.
func checkEffort(m exchange.Model, asked, param string) (string, *exchange.Refusal) {
	switch {
	case asked == "" && len(m.Efforts) == 0:
		return "none", nil
	case asked == "":
		return m.Efforts[0], nil
	case len(m.Efforts) == 0:
		return "", BadParam("unsupported_parameter", param,
			"Unsupported parameter: '%s' is not supported with this model.", param)
	case !slices.Contains(m.Efforts, asked):
		return "", BadParam("unsupported_value", param,
			"Unsupported value: '%s' does not support '%s' with this model. Supported values are: '%s'.", param, asked,
			strings.Join(m.Efforts, "', '"))
	}
	return asked, nil
}

// temperature refuses all but 1 where a model takes nothing else.
func checkTemperature(m exchange.Model, t *float64, effort string) *exchange.Refusal {
	if t == nil {
		return nil
	}
	if *t < 0 || *t > 2 {
		return BadParam("decimal_above_max_value", "temperature", "Invalid 'temperature': must be between 0 and 2.")
	}
	if *t != 1 && m.Fixed && effort != "none" {
		return BadParam("unsupported_value", "temperature",
			"Unsupported value: 'temperature' does not support %v with this model. Only the default (1) value is "+
				"supported.", *t)
	}
	return nil
}

// room refuses more tokens than a model has.
func checkRoom(m exchange.Model, limit *int, param string, input exchange.InputTokens) *exchange.Refusal {
	if limit != nil && *limit < 1 {
		return BadParam("integer_below_min_value", param,
			"Invalid '%s': integer below minimum value. Expected a value >= 1, but got %d instead.", param, *limit)
	}
	if limit != nil && *limit > m.MaxOutput {
		return BadParam("invalid_value", param,
			"%s is too large: %d. This model supports at most %d completion tokens, whereas you provided %d.", param,
			*limit, m.MaxOutput, *limit)
	}
	if n := input.Text + input.Images; n > m.Context {
		return BadParam("context_length_exceeded", "messages",
			"This model's maximum context length is %d tokens. However, your messages resulted in %d tokens. Please "+
				"reduce the length of the messages.", m.Context, n)
	}
	return nil
}

// checkImage checks an image and counts it.
func checkImage(url, detail, param string, input *exchange.InputTokens) *exchange.Refusal {
	most := 30_000
	if detail == "low" {
		most = 256
	}
	if !slices.Contains([]string{"", "auto", "low", "high", "original"}, detail) {
		return BadParam("invalid_value", param,
			"Invalid value: '%s'. Supported values are: 'auto', 'low', 'high', and 'original'.", detail)
	}
	if strings.HasPrefix(url, "https://") || strings.HasPrefix(url, "http://") {
		input.Images += 765 // it would be fetched
		return nil
	}
	_, data, ok := exchange.ParseDataURL(url)
	if !ok {
		return BadParam("invalid_image_url", param, "Invalid image_url: expected a valid URL or base64 data URL.")
	}
	p, err := exchange.DecodeImage(data)
	if err != nil {
		return BadParam("invalid_base64", param, "Invalid base64 image_url.")
	}
	if p.Kind == "" {
		return BadParam("invalid_image_format", param,
			"You uploaded an unsupported image. Please make sure your image is of one of the following formats: "+
				"['png', 'jpeg', 'gif', 'webp'].")
	}
	if p.Width > 0 && p.Patches(32, 1<<30) > 30_000 && detail != "high" && detail != "low" {
		return BadParam("invalid_image", param, "The image is too large.")
	}
	input.Images += (p.Patches(32, most)*12 + 9) / 10
	return nil
}

var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// CheckTools checks the names of tools.
func CheckTools(tools []exchange.Tool, param string, input *exchange.InputTokens) *exchange.Refusal {
	if len(tools) > 128 {
		return BadParam("array_above_max_length", "tools",
			"Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with "+
				"length %d instead.", len(tools))
	}
	for i, t := range tools {
		if !toolName.MatchString(t.Name) {
			return BadParam("invalid_value", fmt.Sprintf(param, i),
				"Invalid '"+param+
					"': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.",
				i)
		}
		if len(t.Schema) > 0 && t.Schema.Kind() != '{' && t.Schema.Kind() != 'n' {
			return BadParam("invalid_function_parameters", "tools",
				"Invalid schema for function '%s': it is not an object.", t.Name)
		}
		input.AddTexts(t.Name, string(t.Schema))
	}
	return nil
}

// ReadToolChoice reads tool_choice: a word, or the name of a function.
func ReadToolChoice(raw jsontext.Value, named string, p *exchange.Prompt) *exchange.Refusal {
	p.Choice = "auto"
	switch raw.Kind() {
	case 0, 'n':
		return nil
	case '"':
		word, err := jsontext.AppendUnquote(nil, raw)
		if err != nil || !slices.Contains([]string{"none", "auto", "required"}, string(word)) {
			return BadParam("invalid_value", "tool_choice",
				"Invalid value: %s. Supported values are: 'none', 'auto', and 'required'.", raw)
		}
		p.Choice = string(word)
	default:
		p.Choice, p.Named = "named", named
		if !slices.ContainsFunc(p.Tools, func(t exchange.Tool) bool { return t.Name == named }) {
			return BadParam("", "tool_choice",
				"Invalid value for 'tool_choice': no function named '%s' was specified in the 'tools' parameter.",
				named)
		}
	}
	if len(p.Tools) == 0 {
		return BadParam("", "tool_choice",
			"Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.")
	}
	return nil
}

// ListModels serves GET /v1/models.
func (e *API) ListModels(w http.ResponseWriter, r *http.Request) {
	rec := e.server.RecordRequest(r, nil)
	if f := CheckKey(r); f != nil {
		e.server.RefuseRequest(w, rec, Common{}, f, &script.Script{})
		return
	}
	list := []any{}
	for _, m := range e.server.ListModels(exchange.OpenAI) {
		list = append(list, map[string]any{
			"id":       m.ID,
			"object":   "model",
			"created":  1_780_000_000,
			"owned_by": "system",
		})
	}
	exchange.SendJSON(w, http.StatusOK, exchange.Encode(map[string]any{"object": "list", "data": list}))
	e.server.FinishRecord(rec, http.StatusOK, nil)
}

// snapshotName is the name by which OpenAI answers.
func snapshotName(m exchange.Model) string { return m.ID + "-2026-06-01" }

func unixNow() int64 { return time.Now().Unix() }

// raw is a JSON value that is passed on as it is.
type raw = jsontext.Value

var null = raw("null")
