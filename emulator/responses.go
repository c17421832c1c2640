package emulator

import (
	"encoding/base64"
	"time"
)

// responses is a request to POST /v1/responses (wire A.10).
type responses struct {
	openAIDialect
	emulator *Emulator
	request  responsesRequest
	effort   string
}

type responseObject struct {
	ID                string         `json:"id"`
	Object            string         `json:"object"`
	CreatedAt         int64          `json:"created_at"`
	Status            string         `json:"status"`
	Background        bool           `json:"background"`
	Error             any            `json:"error"`
	IncompleteDetails any            `json:"incomplete_details"`
	Instructions      *string        `json:"instructions"`
	MaxOutputTokens   *int           `json:"max_output_tokens"`
	Metadata          map[string]any `json:"metadata"`
	Model             string         `json:"model"`
	Output            []any          `json:"output"`
	ParallelToolCalls bool           `json:"parallel_tool_calls"`
	PreviousID        *string        `json:"previous_response_id"`
	Reasoning         map[string]any `json:"reasoning"`
	ServiceTier       string         `json:"service_tier"`
	Store             bool           `json:"store"`
	Temperature       float64        `json:"temperature"`
	Text              any            `json:"text"`
	ToolChoice        raw            `json:"tool_choice"`
	Tools             []any          `json:"tools"`
	TopP              float64        `json:"top_p"`
	Truncation        string         `json:"truncation"`
	Usage             raw            `json:"usage,omitzero"`
}

// Items of the output.
type (
	reasoningItem struct {
		ID        string  `json:"id"`
		Type      string  `json:"type"`
		Summary   []any   `json:"summary"`
		Encrypted *string `json:"encrypted_content,omitzero"`
	}
	messageItem struct {
		ID      string        `json:"id"`
		Type    string        `json:"type"`
		Status  string        `json:"status"`
		Role    string        `json:"role"`
		Content []messagePart `json:"content"`
	}
	messagePart struct {
		Type        string  `json:"type"`
		Text        *string `json:"text,omitzero"`
		Annotations []any   `json:"annotations,omitzero"`
		Logprobs    []any   `json:"logprobs,omitzero"`
		Refusal     *string `json:"refusal,omitzero"`
	}
	callItem struct {
		ID        string `json:"id"`
		Type      string `json:"type"`
		Status    string `json:"status"`
		CallID    string `json:"call_id"`
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
)

// object is the answer before it has begun.
func (c *responses) object() responseObject {
	q := &c.request
	o := responseObject{ID: "resp_" + random(48), Object: "response", CreatedAt: now(), Status: "in_progress", Model: snapshot(c.model()),
		Metadata: map[string]any{}, Output: []any{}, ParallelToolCalls: q.ParallelToolCalls == nil || *q.ParallelToolCalls,
		ServiceTier: "default", Store: q.stores(), Temperature: 1, TopP: 1, Truncation: "disabled", ToolChoice: q.ToolChoice, Tools: []any{},
		MaxOutputTokens: q.MaxOutputTokens, Reasoning: map[string]any{"effort": c.effort, "summary": nil},
		Text: map[string]any{"format": map[string]string{"type": "text"}, "verbosity": "medium"}}
	if q.Instructions != "" {
		o.Instructions = &q.Instructions
	}
	if q.Temperature != nil {
		o.Temperature = *q.Temperature
	}
	for k, v := range q.Metadata {
		o.Metadata[k] = v
	}
	for _, t := range q.Tools {
		o.Tools = append(o.Tools, t)
	}
	if len(o.ToolChoice) == 0 {
		o.ToolChoice = raw(`"auto"`)
	}
	return o
}

func (c *responses) model() Model { m, _ := c.emulator.model(openAI, c.request.Model); return m }

// items are the output: reasoning, then a message, then calls.
func (c *responses) items(a *answer) (list []any) {
	if a.thoughts {
		item := reasoningItem{ID: "rs_" + random(48), Type: "reasoning", Summary: []any{}}
		if c.request.includes("reasoning.encrypted_content") {
			text := base64.StdEncoding.EncodeToString([]byte(signed + c.request.Model))
			item.Encrypted = &text
		}
		list = append(list, item)
	}
	status := "completed"
	if a.end == cutShort || a.end == filtered {
		status = "incomplete"
	}
	if a.text != "" {
		part := messagePart{Type: "output_text", Text: &a.text, Annotations: []any{}, Logprobs: []any{}}
		if a.end == refused {
			part = messagePart{Type: "refusal", Refusal: &a.text}
		}
		list = append(list, messageItem{ID: "msg_" + random(48), Type: "message", Status: status, Role: "assistant", Content: []messagePart{part}})
	}
	for _, call := range a.calls {
		list = append(list, callItem{"fc_" + random(48), "function_call", status, "call_" + random(24), call.name, call.args})
	}
	return list
}

// finish fills in how the answer ended.
func (c *responses) finish(o *responseObject, a *answer, s *script) {
	o.Status = "completed"
	if reason := map[string]string{cutShort: "max_output_tokens", filtered: "content_filter"}[a.end]; reason != "" {
		o.Status, o.IncompleteDetails = "incomplete", map[string]string{"reason": reason}
	}
	if s.stop != "" {
		o.Status, o.IncompleteDetails = "incomplete", map[string]string{"reason": s.stop}
	}
	o.Usage = responsesUsage(a, s)
	if c.request.stores() && !s.unstored {
		full := *o
		full.Usage = responsesUsage(a, &script{}) // the record knows what was used
		c.emulator.keep(&stored{id: o.ID, model: o.Model, from: time.Now().Add(s.storedAfter), body: encode(full)})
	}
}

func responsesUsage(a *answer, s *script) raw {
	if s.noUsage {
		return nil
	} else if s.usageRaw != "" {
		return raw(s.usageRaw)
	}
	u := a.usage
	type m = map[string]int
	return encode(struct {
		Input     int `json:"input_tokens"`
		InputWas  m   `json:"input_tokens_details"`
		Output    int `json:"output_tokens"`
		OutputWas m   `json:"output_tokens_details"`
		Total     int `json:"total_tokens"`
	}{u.input, m{"cached_tokens": u.cached, "cache_write_tokens": u.written}, u.output, m{"reasoning_tokens": u.reasoning}, u.input + u.output})
}

func (c *responses) whole(a *answer, s *script) []byte {
	o := c.object()
	o.Output = append(o.Output, c.items(a)...)
	c.finish(&o, a, s)
	return encode(o)
}

// A responseStream numbers the events of a stream.
type responseStream struct {
	list [][]byte
	pad  bool // deltas carry obfuscation
}

func (r *responseStream) add(name string, members map[string]any) {
	members["sequence_number"] = len(r.list)
	if _, delta := members["delta"]; delta && r.pad {
		members["obfuscation"] = random(4 + len(r.list)%12)
	}
	r.list = append(r.list, named(name, typed(name, members)))
}

func (c *responses) events(a *answer, s *script) [][]byte {
	type object = map[string]any
	o := c.object()
	options := c.request.StreamOptions
	r := &responseStream{pad: options == nil || options.IncludeObfuscation == nil || *options.IncludeObfuscation}
	r.add("response.created", object{"response": o})
	r.add("response.in_progress", object{"response": o})
	items := c.items(a)
	for i, item := range items {
		switch item := item.(type) {
		case reasoningItem:
			r.add("response.output_item.added", object{"output_index": i, "item": item})
		case messageItem:
			r.message(i, item)
		case callItem:
			r.call(i, item)
		}
		r.add("response.output_item.done", object{"output_index": i, "item": item})
	}
	o.Output = append(o.Output, items...)
	c.finish(&o, a, s)
	r.add("response."+o.Status, object{"response": o})
	return r.list
}

// message adds the events of a message.
func (r *responseStream) message(i int, item messageItem) {
	type object = map[string]any
	part, open, empty := item.Content[0], item, ""
	open.Status, open.Content = "in_progress", []messagePart{}
	r.add("response.output_item.added", object{"output_index": i, "item": open})
	at := func(more object) object {
		more["item_id"], more["output_index"], more["content_index"] = item.ID, i, 0
		return more
	}
	begun := part
	if part.Text != nil {
		begun.Text = &empty
		r.add("response.content_part.added", at(object{"part": begun}))
		for _, piece := range pieces(*part.Text, 1) {
			r.add("response.output_text.delta", at(object{"delta": piece, "logprobs": []any{}}))
		}
		r.add("response.output_text.done", at(object{"text": *part.Text, "logprobs": []any{}}))
	} else {
		begun.Refusal = &empty
		r.add("response.content_part.added", at(object{"part": begun}))
		for _, piece := range pieces(*part.Refusal, 1) {
			r.add("response.refusal.delta", at(object{"delta": piece}))
		}
		r.add("response.refusal.done", at(object{"refusal": *part.Refusal}))
	}
	r.add("response.content_part.done", at(object{"part": part}))
}

// call adds the events of a call.
func (r *responseStream) call(i int, item callItem) {
	type object = map[string]any
	open := item
	open.Status, open.Arguments = "in_progress", ""
	r.add("response.output_item.added", object{"output_index": i, "item": open})
	for _, piece := range crumbs(item.Arguments) {
		r.add("response.function_call_arguments.delta", object{"item_id": item.ID, "output_index": i, "delta": piece})
	}
	r.add("response.function_call_arguments.done", object{"item_id": item.ID, "output_index": i, "name": item.Name, "arguments": item.Arguments})
}

// errorEvent is an event named error, with the members at the top.
func (c *responses) errorEvent(f *refusal) []byte {
	e := f.openAI()
	code := "server_error"
	if e.Code != nil {
		code = *e.Code
	}
	return named("error", typed("error", map[string]any{"code": code, "message": e.Message, "param": nil, "sequence_number": 0}))
}
