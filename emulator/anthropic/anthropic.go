// Package anthropic emulates Anthropic's Messages API.
package anthropic

import (
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/emulator/exchange"
	"github.com/purserhq/purser/emulator/script"
)

// An API emulates Anthropic's API.
type API struct{ server *exchange.Server }

// New returns an API.
func New(s *exchange.Server) *API { return &API{s} }

// Mount adds the API's paths to mux, but for GET /v1/models.
func (e *API) Mount(mux *http.ServeMux) {
	mux.HandleFunc("POST /v1/messages", e.server.Handler(func() exchange.Dialect { return &messages{api: e} }))
	mux.HandleFunc("POST /v1/messages/count_tokens", e.countTokens)
}

// messages is a request to POST /v1/messages (provider notes B).
type messages struct {
	api      *API
	request  messagesRequest
	id       string // of the request
	counting bool   // it is one to count_tokens
	beta     bool   // it may control what thinking is bound to

	model        exchange.Model
	instructions []inputBlock
	turns        []inputTurn
	pictures     []exchange.Image
	dropped      []map[string]string
}

func (*messages) CheckKey(r *http.Request) *exchange.Refusal {
	switch key := r.Header.Get("X-Api-Key"); {
	case key == "" && exchange.BearerToken(r) == "":
		return &exchange.Refusal{Status: 401, Message: "x-api-key header is required"}
	case key == "bad-key":
		return &exchange.Refusal{Status: 401, Message: "invalid x-api-key"}
	case key == "no-quota":
		return &exchange.Refusal{
			Status: 400,
			Message: "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to " +
				"upgrade or purchase credits.",
		}
	case key == "no-permission":
		return &exchange.Refusal{
			Status:  403,
			Message: "Your API key does not have permission to use the specified resource.",
		}
	}
	switch version := r.Header.Get("Anthropic-Version"); version {
	case "2023-06-01", "2023-01-01":
		return nil
	case "":
		return badRequest("anthropic-version: header is required")
	default:
		return badRequest("anthropic-version: \"%s\" is not a valid version", version)
	}
}

func (c *messages) SetHeaders(h http.Header, stream bool) {
	h.Set("Content-Type", "application/json")
	if stream {
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		h.Set("Cache-Control", "no-cache")
	}
	c.id = "req_011C" + exchange.RandomID(20)
	h.Set("Request-Id", c.id)
	h.Set("Anthropic-Organization-Id", "emulated-org")
	h.Set("Anthropic-Ratelimit-Requests-Limit", "4000")
	h.Set("Anthropic-Ratelimit-Requests-Remaining", "3999")
	h.Set("Anthropic-Ratelimit-Requests-Reset", "2026-11-21T00:00:00Z")
}

// claudeType is the type of an error by its status.
func errorType(f *exchange.Refusal) string {
	if f.Kind != "" {
		return f.Kind
	} else if f.Code != "" {
		return f.Code
	}
	kinds := map[int]string{
		400: "invalid_request_error",
		401: "authentication_error",
		402: "billing_error",
		403: "permission_error",
		404: "not_found_error",
		413: "request_too_large",
		429: "rate_limit_error",
		504: "timeout_error",
		529: "overloaded_error",
	}
	if kind := kinds[f.Status]; kind != "" {
		return kind
	} else if f.Status < 500 {
		return "invalid_request_error"
	}
	return "api_error"
}

type apiError struct {
	Type  string `json:"type"`
	Error struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
	RequestID string `json:"request_id,omitzero"`
}

func apiErrorOf(f *exchange.Refusal) apiError {
	e := apiError{Type: "error"}
	e.Error.Type, e.Error.Message = errorType(f), f.Message
	return e
}

func (c *messages) EncodeError(f *exchange.Refusal, _ *script.Script) []byte {
	e := apiErrorOf(f)
	e.RequestID = c.id
	return exchange.Encode(e)
}

func (*messages) EncodeErrorEvent(f *exchange.Refusal, _ *script.Script) []byte {
	return exchange.EncodeEvent("error", apiErrorOf(f))
}

type messageObject struct {
	ID              string        `json:"id"`
	Type            string        `json:"type"`
	Role            string        `json:"role"`
	Model           string        `json:"model"`
	Content         []outputBlock `json:"content"`
	StopReason      *string       `json:"stop_reason"`
	StopSequence    *string       `json:"stop_sequence"`
	StopDetails     *stopDetails  `json:"stop_details"`
	Container       raw           `json:"container"`
	Diagnostics     raw           `json:"diagnostics"`
	Usage           raw           `json:"usage,omitzero"`
	Transformations any           `json:"input_transformations,omitzero"`
}

type stopDetails struct {
	Type        string `json:"type"`
	Category    string `json:"category"`
	Explanation string `json:"explanation"`
}

// An outputBlock is a block of an answer, with the members of its type.
type outputBlock struct {
	Type      string  `json:"type"`
	Text      *string `json:"text,omitzero"`
	Citations raw     `json:"citations,omitzero"`
	ID        string  `json:"id,omitzero"`
	Name      string  `json:"name,omitzero"`
	Input     raw     `json:"input,omitzero"`
	Thinking  *string `json:"thinking,omitzero"`
	Signature *string `json:"signature,omitzero"`
	Data      string  `json:"data,omitzero"`
}

// object is the answer without its content.
func (c *messages) object() messageObject {
	o := messageObject{ID: "msg_01" + exchange.RandomID(22), Type: "message", Role: "assistant", Model: c.model.ID,
		Content: []outputBlock{}, Container: null, Diagnostics: null}
	if c.beta {
		o.Transformations = append([]map[string]string{}, c.dropped...)
	}
	return o
}

// outputBlocks are the content.
func (c *messages) outputBlocks(a *exchange.Answer, s *script.Script) (list []outputBlock) {
	for _, b := range a.Blocks() {
		switch {
		case b.Kind == 'r' && s.Redacted:
			list = append(list, outputBlock{Type: "redacted_thinking", Data: c.signThought(len(c.turns), "")})
		case b.Kind == 'r':
			thought := b.Text
			if t := c.request.Thinking; thought == "" && t != nil && t.Display == "summarized" {
				thought = "A summary of what the model thought."
			}
			signature := c.signThought(len(c.turns), thought)
			list = append(list, outputBlock{Type: "thinking", Thinking: &thought, Signature: &signature})
		case b.Kind == 't' && a.End != exchange.EndRefusal:
			list = append(list, outputBlock{Type: "text", Text: &b.Text, Citations: null})
		case b.Kind == 'c':
			list = append(list, outputBlock{
				Type:  "tool_use",
				ID:    "toolu_01" + exchange.RandomID(22),
				Name:  b.Call.Name,
				Input: raw(b.Call.Args),
			})
		}
	}
	return list
}

// stop is the stop_reason and its details.
func stopReason(a *exchange.Answer, s *script.Script) (*string, *stopDetails) {
	reason := map[string]string{
		exchange.EndStop:      "end_turn",
		exchange.EndLength:    "max_tokens",
		exchange.EndToolCalls: "tool_use",
		exchange.EndMalformed: "tool_use",
		exchange.EndRefusal:   "refusal",
		exchange.EndSafety:    "refusal",
	}[a.End]
	var details *stopDetails
	if reason == "refusal" {
		details = &stopDetails{"refusal", "general_harms", "I cannot help with that."}
	}
	if s.Stop != "" {
		reason = s.Stop
	}
	return &reason, details
}

// encodeUsage is what was used, so far if output is less than all.
func (c *messages) encodeUsage(a *exchange.Answer, s *script.Script, output int, final bool) raw {
	if s.NoUsage {
		return nil
	} else if s.UsageRaw != "" {
		return raw(s.UsageRaw)
	}
	u := a.Usage
	m := map[string]any{
		"input_tokens":                max(u.Input-u.Cached-u.Written, 0),
		"cache_creation_input_tokens": u.Written,
		"cache_read_input_tokens":     u.Cached,
		"output_tokens":               output,
		"server_tool_use":             nil,
	}
	if final {
		m["output_tokens_details"] = map[string]int{"thinking_tokens": u.Reasoning}
	}
	if !final || !c.request.Stream {
		m["cache_creation"] = map[string]int{"ephemeral_5m_input_tokens": u.Written, "ephemeral_1h_input_tokens": 0}
		m["service_tier"], m["speed"], m["inference_geo"] = "standard", nil, "not_available"
	}
	return exchange.Encode(m)
}

func (c *messages) EncodeAnswer(a *exchange.Answer, s *script.Script) []byte {
	o := c.object()
	o.Content = append(o.Content, c.outputBlocks(a, s)...)
	for i, b := range o.Content {
		if b.Type == "tool_use" && !b.Input.IsValid() {
			o.Content[i].Input = raw("{}") // broken arguments show in streams only
		}
	}
	o.StopReason, o.StopDetails = stopReason(a, s)
	o.Usage = c.encodeUsage(a, s, a.Usage.Output, true)
	return exchange.Encode(o)
}

// EncodeEvents are a stream, in the order of provider notes B.10.
func (c *messages) EncodeEvents(a *exchange.Answer, s *script.Script) (list [][]byte) {
	type object = map[string]any
	add := func(name string, members object) {
		list = append(list, exchange.EncodeEvent(name, exchange.EncodeTyped(name, members)))
	}
	start := c.object()
	start.Usage = c.encodeUsage(a, s, 1, false)
	add("message_start", object{"message": start})
	for i, b := range c.outputBlocks(a, s) {
		opening, deltas := b.opening(), b.deltas()
		if s.Whole && b.Type == "tool_use" {
			opening, deltas = b, nil
		}
		add("content_block_start", object{"index": i, "content_block": opening})
		if i == 0 {
			add("ping", object{})
		}
		for _, d := range deltas {
			add("content_block_delta", object{"index": i, "delta": d})
		}
		add("content_block_stop", object{"index": i})
	}
	reason, details := stopReason(a, s)
	last := object{"delta": object{
		"stop_reason":   reason,
		"stop_sequence": nil,
		"stop_details":  details,
		"container":     nil,
	}}
	if usage := c.encodeUsage(a, s, a.Usage.Output, true); usage != nil {
		last["usage"] = usage
	}
	add("message_delta", last)
	add("message_stop", object{})
	return list
}

// opening is a block as content_block_start shows it.
func (b outputBlock) opening() outputBlock {
	empty := ""
	switch b.Type {
	case "text":
		b.Text = &empty
	case "thinking":
		b.Thinking, b.Signature = &empty, &empty
	case "tool_use":
		b.Input = raw("{}")
	}
	return b
}

// deltas are what fills a block.
func (b outputBlock) deltas() (list []raw) {
	add := func(kind, name, text string) {
		list = append(list, exchange.EncodeTyped(kind, map[string]any{name: text}))
	}
	switch b.Type {
	case "text":
		for _, piece := range exchange.SplitWords(*b.Text, 3) {
			add("text_delta", "text", piece)
		}
	case "thinking":
		for _, piece := range exchange.SplitWords(*b.Thinking, 3) {
			add("thinking_delta", "thinking", piece)
		}
		add("signature_delta", "signature", *b.Signature)
	case "tool_use":
		add("input_json_delta", "partial_json", "")
		if string(b.Input) == "{}" {
			break // no arguments, no more deltas
		}
		for _, piece := range exchange.SplitArguments(string(b.Input)) {
			add("input_json_delta", "partial_json", piece)
		}
	}
	return list
}

// countTokens serves POST /v1/messages/count_tokens.
func (e *API) countTokens(w http.ResponseWriter, r *http.Request) {
	d := &messages{api: e, counting: true}
	body, rec, f := e.server.ReceiveRequest(w, r, d)
	var p *exchange.Prompt
	if f == nil {
		p, f = d.ReadPrompt(r, body)
	}
	if f != nil {
		e.server.RefuseRequest(w, rec, d, f, &script.Script{})
		return
	}
	d.SetHeaders(w.Header(), false)
	_, err := w.Write(exchange.Encode(map[string]int{"input_tokens": p.Input.ReportedCount(e.server.TokenPPM())}))
	e.server.FinishRecord(rec, http.StatusOK, err)
}

// ListModels serves GET /v1/models.
func (e *API) ListModels(w http.ResponseWriter, r *http.Request) {
	rec, d := e.server.RecordRequest(r, nil), &messages{api: e}
	if f := d.CheckKey(r); f != nil {
		e.server.RefuseRequest(w, rec, d, f, &script.Script{})
		return
	}
	list := []any{}
	for _, m := range e.server.ListModels(exchange.Anthropic) {
		list = append(list, map[string]any{
			"type":             "model",
			"id":               m.ID,
			"display_name":     strings.ToUpper(m.ID[:1]) + m.ID[1:],
			"created_at":       "2026-01-01T00:00:00Z",
			"max_input_tokens": m.Context,
			"max_tokens":       m.MaxOutput,
			"lifecycle":        "active",
			"retires_at":       nil,
		})
	}
	d.SetHeaders(w.Header(), false)
	_, err := w.Write(exchange.Encode(map[string]any{"data": list, "has_more": false, "first_id": nil, "last_id": nil}))
	e.server.FinishRecord(rec, http.StatusOK, err)
}

// raw is a JSON value that is passed on as it is.
type raw = jsontext.Value

var null = raw("null")
