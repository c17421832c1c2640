package emulator

import (
	"strings"
	"time"
)

// chat is a request to POST /v1/chat/completions (wire A).
type chat struct {
	openAIDialect
	emulator *Emulator
	request  chatRequest
}

type chatObject struct {
	ID                string            `json:"id"`
	Object            string            `json:"object"`
	Created           int64             `json:"created"`
	Model             string            `json:"model"`
	Choices           []chatChoice      `json:"choices"`
	Usage             raw               `json:"usage,omitzero"`
	ServiceTier       string            `json:"service_tier"`
	SystemFingerprint *string           `json:"system_fingerprint"`
	Obfuscation       string            `json:"obfuscation,omitzero"`
	Metadata          map[string]string `json:"metadata,omitzero"`
}

type chatChoice struct {
	Index        int        `json:"index"`
	Message      *chatSaid  `json:"message,omitzero"`
	Delta        *chatDelta `json:"delta,omitzero"`
	Logprobs     raw        `json:"logprobs"`
	FinishReason *string    `json:"finish_reason"`
}

type chatSaid struct {
	Role        string     `json:"role"`
	Content     *string    `json:"content"`
	Refusal     *string    `json:"refusal"`
	Annotations []raw      `json:"annotations"`
	ToolCalls   []chatCall `json:"tool_calls,omitempty"`
}

type chatDelta struct {
	Role      string          `json:"role,omitzero"`
	Content   raw             `json:"content,omitzero"`
	Refusal   raw             `json:"refusal,omitzero"`
	ToolCalls []chatDeltaCall `json:"tool_calls,omitempty"`
}

type chatDeltaCall struct {
	Index    int    `json:"index"`
	ID       string `json:"id,omitzero"`
	Type     string `json:"type,omitzero"`
	Function struct {
		Name      string `json:"name,omitzero"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

var null = raw("null")

// object is what answer and chunks have in common.
func (c *chat) object(a *answer, kind string) chatObject {
	for i := range a.calls {
		a.calls[i].id = "call_" + random(24)
	}
	tier := c.request.ServiceTier
	if tier == "" || tier == "auto" {
		tier = "default"
	}
	return chatObject{ID: "chatcmpl-" + random(29), Object: kind, Created: now(), Model: snapshot(c.model()), ServiceTier: tier}
}

func (c *chat) model() Model { m, _ := c.emulator.model(openAI, c.request.Model); return m }

// openAIUsage is usage as Chat Completions says it.
func openAIUsage(a *answer, s *script) raw {
	if s.noUsage {
		return nil
	} else if s.usageRaw != "" {
		return raw(s.usageRaw)
	}
	u := a.usage
	type m = map[string]int
	return encode(struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
		PromptWas  m   `json:"prompt_tokens_details"`
		Was        m   `json:"completion_tokens_details"`
	}{u.input, u.output, u.input + u.output,
		m{"cached_tokens": u.cached, "cache_write_tokens": u.written, "audio_tokens": 0},
		m{"reasoning_tokens": u.reasoning, "audio_tokens": 0, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}})
}

// finish is the finish_reason.
func (a *answer) finish(s *script) *string {
	reason := "stop" // also of refusals
	switch a.end {
	case cutShort:
		reason = "length"
	case calling, malformed:
		reason = "tool_calls"
	case filtered:
		reason = "content_filter"
	}
	if s.stop != "" {
		reason = s.stop
	}
	return &reason
}

func (c *chat) said(a *answer, s *script) chatChoice {
	m := &chatSaid{Role: "assistant", Annotations: []raw{}}
	if a.end == refused {
		m.Refusal = &a.text
	} else if a.text != "" || len(a.calls) == 0 {
		m.Content = &a.text
	}
	for _, call := range a.calls {
		t := chatCall{ID: call.id, Type: "function"}
		t.Function.Name, t.Function.Arguments = call.name, call.args
		m.ToolCalls = append(m.ToolCalls, t)
	}
	return chatChoice{Message: m, Logprobs: null, FinishReason: a.finish(s)}
}

func (c *chat) whole(a *answer, s *script) []byte {
	o := c.object(a, "chat.completion")
	o.Choices, o.Usage = []chatChoice{c.said(a, s)}, openAIUsage(a, s)
	c.keep(o, a, s)
	return encode(o)
}

// keep stores the record of the call, if asked to (wire A.9).
func (c *chat) keep(o chatObject, a *answer, s *script) {
	if !c.request.Store || s.unstored {
		return
	}
	o.Object, o.Choices, o.Metadata = "chat.completion", []chatChoice{c.said(a, s)}, c.request.Metadata
	u := a.usage // the record has the totals only
	o.Usage = encode(map[string]int{"prompt_tokens": u.input, "completion_tokens": u.output, "total_tokens": u.input + u.output})
	c.emulator.keep(&stored{id: o.ID, model: o.Model, metadata: o.Metadata, from: time.Now().Add(s.storedAfter), body: encode(o)})
}

// deltas are the chunks' choices, in the order of wire A.4.
func (c *chat) deltas(a *answer) (list []chatDelta) {
	first := chatDelta{Role: "assistant", Content: raw(`""`), Refusal: null}
	if a.text == "" && len(a.calls) > 0 {
		first.Content = null
	}
	list = append(list, first)
	for _, piece := range pieces(a.text, 1) {
		if a.end == refused {
			list = append(list, chatDelta{Refusal: encode(piece)})
		} else {
			list = append(list, chatDelta{Content: encode(piece)})
		}
	}
	for i, call := range a.calls {
		d := chatDeltaCall{Index: i, ID: call.id, Type: "function"}
		d.Function.Name = call.name
		list = append(list, chatDelta{ToolCalls: []chatDeltaCall{d}})
		for _, piece := range crumbs(call.args) {
			d := chatDeltaCall{Index: i}
			d.Function.Arguments = piece
			list = append(list, chatDelta{ToolCalls: []chatDeltaCall{d}})
		}
	}
	return append(list, chatDelta{})
}

func (c *chat) events(a *answer, s *script) (list [][]byte) {
	o := c.object(a, "chat.completion.chunk")
	c.keep(o, a, s)
	options := c.request.StreamOptions
	if options == nil {
		options = &streamOptions{}
	}
	if options.IncludeUsage {
		o.Usage = null
	}
	deltas := c.deltas(a)
	for i := range deltas {
		chunk := o
		chunk.Choices = []chatChoice{{Delta: &deltas[i], Logprobs: null}}
		if i == len(deltas)-1 {
			chunk.Choices[0].FinishReason = a.finish(s)
		}
		if options.IncludeObfuscation == nil || *options.IncludeObfuscation {
			chunk.Obfuscation = random(4 + i%12)
		}
		list = append(list, data(chunk))
	}
	if options.IncludeUsage && !s.noUsage {
		o.Choices, o.Usage = []chatChoice{}, openAIUsage(a, s)
		list = append(list, data(o))
	}
	return append(list, []byte("data: [DONE]\n\n"))
}

// data is one event without a name.
func data(v any) []byte { return append(append([]byte("data: "), encode(v)...), "\n\n"...) }

func (openAIDialect) errorEvent(f *refusal) []byte {
	return []byte("data: " + strings.TrimSpace(string(openAIDialect{}.refuse(f, nil))) + "\n\n")
}
