package emulator

import (
	"net/http"
	"strings"
)

// messages is a request to POST /v1/messages (wire B).
type messages struct {
	emulator *Emulator
	request  claudeRequest
	id       string // of the request
	counting bool   // it is one to count_tokens
	beta     bool   // it may control what thinking is bound to

	model        Model
	instructions []claudeBlock
	turns        []claudeTurn
	pictures     []picture
	dropped      []map[string]string
}

func (*messages) authorize(r *http.Request) *refusal {
	switch key := r.Header.Get("X-Api-Key"); {
	case key == "" && bearer(r) == "":
		return &refusal{status: 401, message: "x-api-key header is required"}
	case key == "bad-key":
		return &refusal{status: 401, message: "invalid x-api-key"}
	case key == "no-quota":
		return &refusal{status: 400, message: "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."}
	case key == "no-permission":
		return &refusal{status: 403, message: "Your API key does not have permission to use the specified resource."}
	}
	switch version := r.Header.Get("Anthropic-Version"); version {
	case "2023-06-01", "2023-01-01":
		return nil
	case "":
		return badClaude("anthropic-version: header is required")
	default:
		return badClaude("anthropic-version: \"%s\" is not a valid version", version)
	}
}

func (c *messages) headers(h http.Header, stream bool) {
	h.Set("Content-Type", "application/json")
	if stream {
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		h.Set("Cache-Control", "no-cache")
	}
	c.id = "req_011C" + random(20)
	h.Set("Request-Id", c.id)
	h.Set("Anthropic-Organization-Id", "emulated-org")
	h.Set("Anthropic-Ratelimit-Requests-Limit", "4000")
	h.Set("Anthropic-Ratelimit-Requests-Remaining", "3999")
	h.Set("Anthropic-Ratelimit-Requests-Reset", "2026-11-21T00:00:00Z")
}

// claudeType is the type of an error by its status.
func (f *refusal) claudeType() string {
	if f.kind != "" {
		return f.kind
	} else if f.code != "" {
		return f.code
	}
	kinds := map[int]string{400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error",
		404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error", 504: "timeout_error", 529: "overloaded_error"}
	if kind := kinds[f.status]; kind != "" {
		return kind
	} else if f.status < 500 {
		return "invalid_request_error"
	}
	return "api_error"
}

type claudeError struct {
	Type  string `json:"type"`
	Error struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
	RequestID string `json:"request_id,omitzero"`
}

func (f *refusal) claude() claudeError {
	e := claudeError{Type: "error"}
	e.Error.Type, e.Error.Message = f.claudeType(), f.message
	return e
}

func (c *messages) refuse(f *refusal, _ *script) []byte {
	e := f.claude()
	e.RequestID = c.id
	return encode(e)
}

func (*messages) errorEvent(f *refusal) []byte { return named("error", f.claude()) }

// named is one event with its name.
func named(name string, v any) []byte {
	return append([]byte("event: "+name+"\n"), data(v)...)
}

type claudeMessageObject struct {
	ID              string        `json:"id"`
	Type            string        `json:"type"`
	Role            string        `json:"role"`
	Model           string        `json:"model"`
	Content         []claudeSaid  `json:"content"`
	StopReason      *string       `json:"stop_reason"`
	StopSequence    *string       `json:"stop_sequence"`
	StopDetails     *claudeReason `json:"stop_details"`
	Container       raw           `json:"container"`
	Diagnostics     raw           `json:"diagnostics"`
	Usage           raw           `json:"usage,omitzero"`
	Transformations any           `json:"input_transformations,omitzero"`
}

type claudeReason struct {
	Type        string `json:"type"`
	Category    string `json:"category"`
	Explanation string `json:"explanation"`
}

// A claudeSaid is a block of an answer, with the members of its type.
type claudeSaid struct {
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
func (c *messages) object() claudeMessageObject {
	o := claudeMessageObject{ID: "msg_01" + random(22), Type: "message", Role: "assistant", Model: c.model.ID,
		Content: []claudeSaid{}, Container: null, Diagnostics: null}
	if c.beta {
		o.Transformations = append([]map[string]string{}, c.dropped...)
	}
	return o
}

// blocks are the content: thoughts first, then text, then calls.
func (c *messages) blocks(a *answer, s *script) (list []claudeSaid) {
	if a.thoughts && s.redacted {
		list = append(list, claudeSaid{Type: "redacted_thinking", Data: c.sign(len(c.turns), "")})
	} else if a.thoughts {
		thought := a.thought
		if t := c.request.Thinking; thought == "" && t != nil && t.Display == "summarized" {
			thought = "A summary of what the model thought."
		}
		signature := c.sign(len(c.turns), thought)
		list = append(list, claudeSaid{Type: "thinking", Thinking: &thought, Signature: &signature})
	}
	if a.text != "" && a.end != refused {
		list = append(list, claudeSaid{Type: "text", Text: &a.text, Citations: null})
	}
	for _, call := range a.calls {
		list = append(list, claudeSaid{Type: "tool_use", ID: "toolu_01" + random(22), Name: call.name, Input: raw(call.args)})
	}
	return list
}

// stop is the stop_reason and its details.
func (a *answer) stop(s *script) (*string, *claudeReason) {
	reason := map[string]string{ended: "end_turn", cutShort: "max_tokens", calling: "tool_use", malformed: "tool_use", refused: "refusal", filtered: "refusal"}[a.end]
	var details *claudeReason
	if reason == "refusal" {
		details = &claudeReason{"refusal", "general_harms", "I cannot help with that."}
	}
	if s.stop != "" {
		reason = s.stop
	}
	return &reason, details
}

// usage is what was used, so far if output is less than all.
func (c *messages) usage(a *answer, s *script, output int, final bool) raw {
	if s.noUsage {
		return nil
	} else if s.usageRaw != "" {
		return raw(s.usageRaw)
	}
	u := a.usage
	m := map[string]any{
		"input_tokens": max(u.input-u.cached-u.written, 0), "cache_creation_input_tokens": u.written, "cache_read_input_tokens": u.cached,
		"output_tokens": output, "server_tool_use": nil,
	}
	if final {
		m["output_tokens_details"] = map[string]int{"thinking_tokens": u.reasoning}
	}
	if !final || !c.request.Stream {
		m["cache_creation"] = map[string]int{"ephemeral_5m_input_tokens": u.written, "ephemeral_1h_input_tokens": 0}
		m["service_tier"], m["speed"], m["inference_geo"] = "standard", nil, "not_available"
	}
	return encode(m)
}

func (c *messages) whole(a *answer, s *script) []byte {
	o := c.object()
	o.Content = append(o.Content, c.blocks(a, s)...)
	for i, b := range o.Content {
		if b.Type == "tool_use" && !b.Input.IsValid() {
			o.Content[i].Input = raw("{}") // broken arguments show in streams only
		}
	}
	o.StopReason, o.StopDetails = a.stop(s)
	o.Usage = c.usage(a, s, a.usage.output, true)
	return encode(o)
}

// events are a stream, in the order of wire B.10.
func (c *messages) events(a *answer, s *script) (list [][]byte) {
	type object = map[string]any
	add := func(name string, members object) { list = append(list, named(name, typed(name, members))) }
	start := c.object()
	start.Usage = c.usage(a, s, 1, false)
	add("message_start", object{"message": start})
	for i, b := range c.blocks(a, s) {
		deltas := b.deltas()
		add("content_block_start", object{"index": i, "content_block": b.opening()})
		if i == 0 {
			add("ping", object{})
		}
		for _, d := range deltas {
			add("content_block_delta", object{"index": i, "delta": d})
		}
		add("content_block_stop", object{"index": i})
	}
	reason, details := a.stop(s)
	last := object{"delta": object{"stop_reason": reason, "stop_sequence": nil, "stop_details": details, "container": nil}}
	if usage := c.usage(a, s, a.usage.output, true); usage != nil {
		last["usage"] = usage
	}
	add("message_delta", last)
	add("message_stop", object{})
	return list
}

// typed is an object whose type stands first, as Anthropic writes it.
func typed(kind string, members map[string]any) raw {
	head, rest := []byte(`{"type":"`+kind+`"`), encode(members)
	if len(members) > 0 {
		head = append(head, ',')
	}
	return append(head, rest[1:]...)
}

// opening is a block as content_block_start shows it.
func (b claudeSaid) opening() claudeSaid {
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
func (b claudeSaid) deltas() (list []raw) {
	add := func(kind, name, text string) { list = append(list, typed(kind, map[string]any{name: text})) }
	switch b.Type {
	case "text":
		for _, piece := range pieces(*b.Text, 3) {
			add("text_delta", "text", piece)
		}
	case "thinking":
		for _, piece := range pieces(*b.Thinking, 3) {
			add("thinking_delta", "thinking", piece)
		}
		add("signature_delta", "signature", *b.Signature)
	case "tool_use":
		add("input_json_delta", "partial_json", "")
		if string(b.Input) == "{}" {
			break // no arguments, no more deltas
		}
		for _, piece := range crumbs(string(b.Input)) {
			add("input_json_delta", "partial_json", piece)
		}
	}
	return list
}

// countClaude serves POST /v1/messages/count_tokens.
func (e *Emulator) countClaude(w http.ResponseWriter, r *http.Request) {
	d := &messages{emulator: e, counting: true}
	body, rec, f := e.receive(w, r, d)
	var p *prompt
	if f == nil {
		p, f = d.read(r, body)
	}
	if f != nil {
		e.refuse(w, rec, d, f, &script{})
		return
	}
	d.headers(w.Header(), false)
	_, err := w.Write(encode(map[string]int{"input_tokens": p.input.reported(e.ppm)}))
	e.ended(rec, http.StatusOK, err)
}

// listClaude serves GET /v1/models to who has Anthropic's key.
func (e *Emulator) listClaude(w http.ResponseWriter, r *http.Request, rec *record) {
	d := &messages{emulator: e}
	if f := d.authorize(r); f != nil {
		e.refuse(w, rec, d, f, &script{})
		return
	}
	list := []any{}
	for _, m := range e.modelsOf(anthropic) {
		list = append(list, map[string]any{"type": "model", "id": m.ID, "display_name": strings.ToUpper(m.ID[:1]) + m.ID[1:],
			"created_at": "2026-01-01T00:00:00Z", "max_input_tokens": m.Context, "max_tokens": m.MaxOutput, "lifecycle": "active", "retires_at": nil})
	}
	d.headers(w.Header(), false)
	_, err := w.Write(encode(map[string]any{"data": list, "has_more": false, "first_id": nil, "last_id": nil}))
	e.ended(rec, http.StatusOK, err)
}
