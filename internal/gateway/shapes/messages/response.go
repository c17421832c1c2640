package messages

import (
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/models/provider"
)

// A completion is a whole canonical response.
type completion struct {
	ID      string `json:"id"`
	Model   string `json:"model"`
	Choices []struct {
		Message struct {
			Content      string         `json:"content"`
			Refusal      string         `json:"refusal"`
			Reasoning    string         `json:"reasoning_content"`
			ExtraContent jsontext.Value `json:"extra_content"`
			ToolCalls    []struct {
				ID       string `json:"id"`
				Function struct {
					Name      string `json:"name"`
					Arguments string `json:"arguments"`
				} `json:"function"`
				ExtraContent jsontext.Value `json:"extra_content"`
			} `json:"tool_calls"`
		} `json:"message"`
		FinishReason string  `json:"finish_reason"`
		StopSequence *string `json:"stop_sequence"`
	} `json:"choices"`
	Usage jsontext.Value `json:"usage"`
	Svc   jsontext.Value `json:"svc"`
}

// Body translates a whole response (see shapes.Call).
func (c *Call) Body(canonical []byte) []byte {
	var in completion
	if json.Unmarshal(canonical, &in) != nil {
		return canonical // cannot happen: we have written it
	}
	w := content{}
	reason, stop := "end_turn", []byte(nil)
	if len(in.Choices) > 0 {
		m := &in.Choices[0].Message
		if c.request.WantReasoning {
			w.addReasoning(m.Reasoning, opaque{extra: m.ExtraContent})
		}
		w.addText(m.Content)
		w.addText(m.Refusal)
		for _, call := range m.ToolCalls {
			w.addReasoning("", opaque{call: true, extra: call.ExtraContent})
			w.addCall(call.ID, call.Function.Name, call.Function.Arguments)
		}
		if sequence := in.Choices[0].StopSequence; sequence != nil {
			stop = escape(*sequence)
		}
		reason = stopReason(in.Choices[0].FinishReason, m.Refusal != "", len(m.ToolCalls) > 0)
	}
	b := appendHead(make([]byte, 0, len(canonical)+512), escape(in.ID), escape(in.Model))
	b = appendStop(append(append(append(b, `"content":[`...), w.b...), "],"...), reason, stop)
	b = appendUsage(append(b, `,"usage":`...), in.Usage)
	if len(in.Svc) > 0 {
		b = append(append(b, `,"svc":`...), in.Svc...)
	}
	return append(b, '}', '\n')
}

// escape returns a text as a raw JSON string without the quotes.
func escape(text string) []byte {
	quoted := provider.AppendQuote(nil, text)
	return quoted[1 : len(quoted)-1]
}

// content writes the blocks of a whole message.
type content struct{ b []byte }

func (w *content) begin(kind string) {
	if len(w.b) > 0 {
		w.b = append(w.b, ',')
	}
	w.b = append(append(append(w.b, `{"type":"`...), kind...), '"')
}

func (w *content) addText(text string) {
	if text != "" {
		w.begin("text")
		w.b = append(provider.AppendQuote(append(w.b, `,"text":`...), text), '}')
	}
}

// addCall writes a tool_use block. Arguments that were cut off are no object; the stop reason says so.
func (w *content) addCall(id, name, arguments string) {
	w.begin("tool_use")
	w.b = provider.AppendQuote(append(w.b, `,"id":`...), id)
	w.b = provider.AppendQuote(append(w.b, `,"name":`...), name)
	if !isObject([]byte(arguments)) {
		arguments = "{}"
	}
	w.b = append(append(append(w.b, `,"input":`...), arguments...), '}')
}

// addReasoning writes thinking blocks for the readable reasoning and the extra_content. Blocks of Anthropic contain
// what is readable.
func (w *content) addReasoning(readable string, o opaque) {
	thoughts, native := nativeThoughts(o.extra)
	switch {
	case native:
		for _, t := range thoughts {
			if t.data != nil {
				w.begin("redacted_thinking")
				w.b = append(append(append(w.b, `,"data":"`...), t.data...), `"}`...)
				continue
			}
			w.addThinking(t.text, t.signature)
		}
	case len(o.extra) > 0 && o.extra[0] == '{':
		w.addThinking(escape(readable), appendOpaque(nil, o))
	case readable != "":
		w.addThinking(escape(readable), nil)
	}
}

func (w *content) addThinking(text, signature []byte) {
	w.begin("thinking")
	w.b = append(append(append(w.b, `,"thinking":"`...), text...), `","signature":"`...)
	w.b = append(append(w.b, signature...), `"}`...)
}
