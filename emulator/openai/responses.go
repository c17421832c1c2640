package openai

import (
	"encoding/base64"
	"time"

	"github.com/purserhq/purser/emulator/exchange"
	"github.com/purserhq/purser/emulator/script"
)

// responses is a request to POST /v1/responses (provider notes A.10).
type responses struct {
	Common
	api     *API
	request responsesRequest
	effort  string
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

// reasoningPrefix begins what the emulated encrypted reasoning holds.
const reasoningPrefix = "emulated thought of "

// Items of the output.
type (
	reasoningItem struct {
		ID        string        `json:"id"`
		Type      string        `json:"type"`
		Summary   []summaryPart `json:"summary"`
		Encrypted *string       `json:"encrypted_content,omitzero"`
	}
	summaryPart struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	messageItem struct {
		ID      string        `json:"id"`
		Type    string        `json:"type"`
		Status  string        `json:"status"`
		Role    string        `json:"role"`
		Phase   string        `json:"phase,omitzero"`
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
	o := responseObject{
		ID:                "resp_" + exchange.RandomID(48),
		Object:            "response",
		CreatedAt:         unixNow(),
		Status:            "in_progress",
		Model:             snapshotName(c.model()),
		Metadata:          map[string]any{},
		Output:            []any{},
		ParallelToolCalls: q.ParallelToolCalls == nil || *q.ParallelToolCalls,
		ServiceTier:       "default",
		Store:             q.isStored(),
		Temperature:       1,
		TopP:              1,
		Truncation:        "disabled",
		ToolChoice:        q.ToolChoice,
		Tools:             []any{},
		MaxOutputTokens:   q.MaxOutputTokens,
		Reasoning:         map[string]any{"effort": c.effort, "summary": nil},
		Text:              map[string]any{"format": map[string]string{"type": "text"}, "verbosity": "medium"},
	}
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

func (c *responses) model() exchange.Model {
	m, _ := c.api.server.FindModel(exchange.OpenAI, c.request.Model)
	return m
}

// outputItems are the output. Where there are several messages, each says its phase.
func (c *responses) outputItems(a *exchange.Answer) (list []any) {
	status := "completed"
	if a.End == exchange.EndLength || a.End == exchange.EndSafety {
		status = "incomplete"
	}
	blocks := a.Blocks()
	for _, b := range blocks {
		switch b.Kind {
		case 'r':
			list = append(list, c.reasoning())
		case 't':
			m := messageItem{ID: "msg_" + exchange.RandomID(48), Type: "message", Status: status, Role: "assistant"}
			m.Content = []messagePart{{Type: "output_text", Text: &b.Text, Annotations: []any{}, Logprobs: []any{}}}
			if a.End == exchange.EndRefusal {
				m.Content = []messagePart{{Type: "refusal", Refusal: &b.Text}}
			}
			switch {
			case b.Text == a.Text: // the only one
			case b.Last:
				m.Phase = "final_answer"
			default:
				m.Phase = "commentary"
			}
			list = append(list, m)
		case 'c':
			list = append(list, callItem{"fc_" + exchange.RandomID(48), "function_call", status,
				"call_" + exchange.RandomID(24), b.Call.Name, b.Call.Args})
		}
	}
	return list
}

// reasoning is an item of reasoning.
func (c *responses) reasoning() reasoningItem {
	item := reasoningItem{ID: "rs_" + exchange.RandomID(48), Type: "reasoning", Summary: []summaryPart{}}
	if r := c.request.Reasoning; r != nil && r.Summary != "" {
		item.Summary = append(item.Summary,
			summaryPart{"summary_text", "**Reading** what the user says."},
			summaryPart{"summary_text", "**Choosing** how to answer it."})
	}
	if c.request.includes("reasoning.encrypted_content") {
		text := base64.StdEncoding.EncodeToString([]byte(reasoningPrefix + c.request.Model))
		item.Encrypted = &text
	}
	return item
}

// finishObject fills in how the answer ended.
func (c *responses) finishObject(o *responseObject, a *exchange.Answer, s *script.Script) {
	o.Status = "completed"
	if reason := map[string]string{
		exchange.EndLength: "max_output_tokens",
		exchange.EndSafety: "content_filter",
	}[a.End]; reason != "" {
		o.Status, o.IncompleteDetails = "incomplete", map[string]string{"reason": reason}
	}
	if s.Stop != "" {
		o.Status, o.IncompleteDetails = "incomplete", map[string]string{"reason": s.Stop}
	}
	o.Usage = responsesUsage(a, s)
	if c.request.isStored() && !s.Unstored {
		full := *o
		full.Usage = responsesUsage(a, &script.Script{}) // the record knows what was used
		c.api.storeAnswer(&storedAnswer{
			id:    o.ID,
			model: o.Model,
			from:  time.Now().Add(s.StoredAfter),
			body:  exchange.Encode(full),
		})
	}
}

func responsesUsage(a *exchange.Answer, s *script.Script) raw {
	if s.NoUsage {
		return nil
	} else if s.UsageRaw != "" {
		return raw(s.UsageRaw)
	}
	u := a.Usage
	type m = map[string]int
	return exchange.Encode(struct {
		Input     int `json:"input_tokens"`
		InputWas  m   `json:"input_tokens_details"`
		Output    int `json:"output_tokens"`
		OutputWas m   `json:"output_tokens_details"`
		Total     int `json:"total_tokens"`
	}{u.Input, m{"cached_tokens": u.Cached, "cache_write_tokens": u.Written}, u.Output,
		m{"reasoning_tokens": u.Reasoning}, u.Input + u.Output})
}

func (c *responses) EncodeAnswer(a *exchange.Answer, s *script.Script) []byte {
	o := c.object()
	o.Output = append(o.Output, c.outputItems(a)...)
	c.finishObject(&o, a, s)
	return exchange.Encode(o)
}

// A responseStream numbers the events of a stream.
type responseStream struct {
	list [][]byte
	pad  bool // deltas carry obfuscation
}

func (r *responseStream) addEvent(name string, members map[string]any) {
	members["sequence_number"] = len(r.list)
	if _, delta := members["delta"]; delta && r.pad {
		members["obfuscation"] = exchange.RandomID(4 + len(r.list)%12)
	}
	r.list = append(r.list, exchange.EncodeEvent(name, exchange.EncodeTyped(name, members)))
}

func (c *responses) EncodeEvents(a *exchange.Answer, s *script.Script) [][]byte {
	type object = map[string]any
	o := c.object()
	options := c.request.StreamOptions
	r := &responseStream{pad: options == nil || options.IncludeObfuscation == nil || *options.IncludeObfuscation}
	r.addEvent("response.created", object{"response": o})
	r.addEvent("response.in_progress", object{"response": o})
	items := c.outputItems(a)
	for i, item := range items {
		switch item := item.(type) {
		case reasoningItem:
			r.addReasoning(i, item)
		case messageItem:
			r.addMessage(i, item)
		case callItem:
			r.addCall(i, item, s.Whole)
		}
		r.addEvent("response.output_item.done", object{"output_index": i, "item": item})
	}
	o.Output = append(o.Output, items...)
	c.finishObject(&o, a, s)
	r.addEvent("response."+o.Status, object{"response": o})
	return r.list
}

// addReasoning adds the events of reasoning with its summary, if there is one.
func (r *responseStream) addReasoning(i int, item reasoningItem) {
	type object = map[string]any
	open := item
	open.Summary = []summaryPart{}
	r.addEvent("response.output_item.added", object{"output_index": i, "item": open})
	for n, part := range item.Summary {
		at := func(more object) object {
			more["item_id"], more["output_index"], more["summary_index"] = item.ID, i, n
			return more
		}
		r.addEvent("response.reasoning_summary_part.added", at(object{"part": summaryPart{Type: part.Type}}))
		for _, piece := range exchange.SplitWords(part.Text, 1) {
			r.addEvent("response.reasoning_summary_text.delta", at(object{"delta": piece}))
		}
		r.addEvent("response.reasoning_summary_text.done", at(object{"text": part.Text}))
		r.addEvent("response.reasoning_summary_part.done", at(object{"part": part}))
	}
}

// addMessage adds the events of a message.
func (r *responseStream) addMessage(i int, item messageItem) {
	type object = map[string]any
	part, open, empty := item.Content[0], item, ""
	open.Status, open.Content = "in_progress", []messagePart{}
	r.addEvent("response.output_item.added", object{"output_index": i, "item": open})
	at := func(more object) object {
		more["item_id"], more["output_index"], more["content_index"] = item.ID, i, 0
		return more
	}
	begun := part
	if part.Text != nil {
		begun.Text = &empty
		r.addEvent("response.content_part.added", at(object{"part": begun}))
		for _, piece := range exchange.SplitWords(*part.Text, 1) {
			r.addEvent("response.output_text.delta", at(object{"delta": piece, "logprobs": []any{}}))
		}
		r.addEvent("response.output_text.done", at(object{"text": *part.Text, "logprobs": []any{}}))
	} else {
		begun.Refusal = &empty
		r.addEvent("response.content_part.added", at(object{"part": begun}))
		for _, piece := range exchange.SplitWords(*part.Refusal, 1) {
			r.addEvent("response.refusal.delta", at(object{"delta": piece}))
		}
		r.addEvent("response.refusal.done", at(object{"refusal": *part.Refusal}))
	}
	r.addEvent("response.content_part.done", at(object{"part": part}))
}

// addCall adds the events of a call. A whole one has its arguments in its first event, and no others.
func (r *responseStream) addCall(i int, item callItem, whole bool) {
	type object = map[string]any
	open := item
	if open.Status = "in_progress"; !whole {
		open.Arguments = ""
	}
	r.addEvent("response.output_item.added", object{"output_index": i, "item": open})
	if whole {
		return
	}
	for _, piece := range exchange.SplitArguments(item.Arguments) {
		r.addEvent("response.function_call_arguments.delta", object{
			"item_id":      item.ID,
			"output_index": i,
			"delta":        piece,
		})
	}
	r.addEvent("response.function_call_arguments.done", object{
		"item_id":      item.ID,
		"output_index": i,
		"name":         item.Name,
		"arguments":    item.Arguments,
	})
}

// EncodeErrorEvent is an event named error, with the members at the top or in error, or a response that has failed.
func (c *responses) EncodeErrorEvent(f *exchange.Refusal, s *script.Script) []byte {
	type object = map[string]any
	e := apiErrorOf(f)
	code := "server_error"
	if e.Code != nil {
		code = *e.Code
	}
	switch s.ErrorForm {
	case "nested":
		return exchange.EncodeEvent("error", exchange.EncodeTyped("error", object{
			"error":           object{"type": e.Type, "code": code, "message": e.Message, "param": nil},
			"sequence_number": 0,
		}))
	case "failed":
		o := c.object()
		o.Status, o.Error = "failed", object{"code": code, "message": e.Message}
		return exchange.EncodeEvent("response.failed", exchange.EncodeTyped("response.failed", object{
			"response": o, "sequence_number": 0,
		}))
	}
	return exchange.EncodeEvent("error", exchange.EncodeTyped("error", object{
		"code": code, "message": e.Message, "param": nil, "sequence_number": 0,
	}))
}
