package openai

import (
	"strings"
	"time"

	"github.com/purserhq/purser/emulator/exchange"
	"github.com/purserhq/purser/emulator/script"
)

// chat is a request to POST /v1/chat/completions (provider notes A).
type chat struct {
	Common
	api     *API
	request chatRequest
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

// object is what answer and chunks have in common.
func (c *chat) object(a *exchange.Answer, kind string) chatObject {
	for i := range a.Calls {
		a.Calls[i].ID = "call_" + exchange.RandomID(24)
	}
	tier := c.request.ServiceTier
	if tier == "" || tier == "auto" {
		tier = "default"
	}
	return chatObject{
		ID:          "chatcmpl-" + exchange.RandomID(29),
		Object:      kind,
		Created:     unixNow(),
		Model:       snapshotName(c.model()),
		ServiceTier: tier,
	}
}

func (c *chat) model() exchange.Model {
	m, _ := c.api.server.FindModel(exchange.OpenAI, c.request.Model)
	return m
}

// chatUsage is usage as Chat Completions says it.
func chatUsage(a *exchange.Answer, s *script.Script) raw {
	if s.NoUsage {
		return nil
	} else if s.UsageRaw != "" {
		return raw(s.UsageRaw)
	}
	u := a.Usage
	type m = map[string]int
	return exchange.Encode(struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
		PromptWas  m   `json:"prompt_tokens_details"`
		Was        m   `json:"completion_tokens_details"`
	}{u.Input, u.Output, u.Input + u.Output,
		m{"cached_tokens": u.Cached, "cache_write_tokens": u.Written, "audio_tokens": 0},
		m{
			"reasoning_tokens":           u.Reasoning,
			"audio_tokens":               0,
			"accepted_prediction_tokens": 0,
			"rejected_prediction_tokens": 0,
		}})
}

// finish is the finish_reason.
func finishReason(a *exchange.Answer, s *script.Script) *string {
	reason := "stop" // also of refusals
	switch a.End {
	case exchange.EndLength:
		reason = "length"
	case exchange.EndToolCalls, exchange.EndMalformed:
		reason = "tool_calls"
	case exchange.EndSafety:
		reason = "content_filter"
	}
	if s.Stop != "" {
		reason = s.Stop
	}
	return &reason
}

func (c *chat) choice(a *exchange.Answer, s *script.Script) chatChoice {
	m := &chatSaid{Role: "assistant", Annotations: []raw{}}
	if a.End == exchange.EndRefusal {
		m.Refusal = &a.Text
	} else if a.Text != "" || len(a.Calls) == 0 {
		m.Content = &a.Text
	}
	for _, call := range a.Calls {
		t := chatCall{ID: call.ID, Type: "function"}
		t.Function.Name, t.Function.Arguments = call.Name, call.Args
		m.ToolCalls = append(m.ToolCalls, t)
	}
	return chatChoice{Message: m, Logprobs: null, FinishReason: finishReason(a, s)}
}

func (c *chat) EncodeAnswer(a *exchange.Answer, s *script.Script) []byte {
	o := c.object(a, "chat.completion")
	o.Choices, o.Usage = []chatChoice{c.choice(a, s)}, chatUsage(a, s)
	c.storeAnswer(o, a, s)
	return exchange.Encode(o)
}

// storeAnswer stores the record of the call, if asked to (provider notes A.9).
func (c *chat) storeAnswer(o chatObject, a *exchange.Answer, s *script.Script) {
	if !c.request.Store || s.Unstored {
		return
	}
	o.Object, o.Choices, o.Metadata = "chat.completion", []chatChoice{c.choice(a, s)}, c.request.Metadata
	u := a.Usage // the record has the totals only
	o.Usage = exchange.Encode(map[string]int{
		"prompt_tokens":     u.Input,
		"completion_tokens": u.Output,
		"total_tokens":      u.Input + u.Output,
	})
	c.api.storeAnswer(&storedAnswer{
		id:       o.ID,
		model:    o.Model,
		metadata: o.Metadata,
		from:     time.Now().Add(s.StoredAfter),
		body:     exchange.Encode(o),
	})
}

// deltas are the chunks' choices, in the order of provider notes A.4.
func (c *chat) deltas(a *exchange.Answer, whole bool) (list []chatDelta) {
	first := chatDelta{Role: "assistant", Content: raw(`""`), Refusal: null}
	if a.Text == "" && len(a.Calls) > 0 {
		first.Content = null
	}
	list = append(list, first)
	for _, piece := range exchange.SplitWords(a.Text, 1) {
		if a.End == exchange.EndRefusal {
			list = append(list, chatDelta{Refusal: exchange.Encode(piece)})
		} else {
			list = append(list, chatDelta{Content: exchange.Encode(piece)})
		}
	}
	for i, call := range a.Calls {
		d := chatDeltaCall{Index: i, ID: call.ID, Type: "function"}
		d.Function.Name = call.Name
		if whole {
			d.Function.Arguments, call.Args = call.Args, ""
		}
		list = append(list, chatDelta{ToolCalls: []chatDeltaCall{d}})
		for _, piece := range exchange.SplitArguments(call.Args) {
			d := chatDeltaCall{Index: i}
			d.Function.Arguments = piece
			list = append(list, chatDelta{ToolCalls: []chatDeltaCall{d}})
		}
	}
	return append(list, chatDelta{})
}

func (c *chat) EncodeEvents(a *exchange.Answer, s *script.Script) (list [][]byte) {
	o := c.object(a, "chat.completion.chunk")
	c.storeAnswer(o, a, s)
	options := c.request.StreamOptions
	if options == nil {
		options = &streamOptions{}
	}
	if options.IncludeUsage {
		o.Usage = null
	}
	deltas := c.deltas(a, s.Whole)
	for i := range deltas {
		chunk := o
		chunk.Choices = []chatChoice{{Delta: &deltas[i], Logprobs: null}}
		if i == len(deltas)-1 {
			chunk.Choices[0].FinishReason = finishReason(a, s)
		}
		if options.IncludeObfuscation == nil || *options.IncludeObfuscation {
			chunk.Obfuscation = exchange.RandomID(4 + i%12)
		}
		list = append(list, exchange.EncodeData(chunk))
	}
	if options.IncludeUsage && !s.NoUsage {
		o.Choices, o.Usage = []chatChoice{}, chatUsage(a, s)
		list = append(list, exchange.EncodeData(o))
	}
	return append(list, []byte("data: [DONE]\n\n"))
}

// EncodeErrorEvent is a data line with the member error.
func (Common) EncodeErrorEvent(f *exchange.Refusal, _ *script.Script) []byte {
	return []byte("data: " + strings.TrimSpace(string(Common{}.EncodeError(f, nil))) + "\n\n")
}
