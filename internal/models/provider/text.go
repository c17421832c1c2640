package provider

import (
	"bytes"
	"encoding/json"
	"strings"
)

// generated is the part of a chunk or message that the model generated.
type generated struct {
	Reasoning string `json:"reasoning_content"`
	Content   string `json:"content"`
	Refusal   string `json:"refusal"`
	ToolCalls []struct {
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
		ExtraContent json.RawMessage `json:"extra_content"`
	} `json:"tool_calls"`
}

func (s *generated) appendTo(b *strings.Builder) {
	b.WriteString(s.Reasoning)
	b.WriteString(s.Content)
	b.WriteString(s.Refusal)
	for _, c := range s.ToolCalls {
		b.WriteString(c.Function.Name)
		b.WriteString(c.Function.Arguments)
		appendThinking(b, c.ExtraContent)
	}
}

// appendThinking appends the readable reasoning that comes with a tool call, and not before it as reasoning_content.
// Other providers' extra_content has none.
func appendThinking(b *strings.Builder, extra []byte) {
	var e struct {
		Anthropic struct {
			Thinking []struct {
				Thinking string `json:"thinking"`
			} `json:"thinking"`
		} `json:"anthropic"`
	}
	if len(extra) == 0 || json.Unmarshal(extra, &e) != nil {
		return
	}
	for _, block := range e.Anthropic.Thinking {
		b.WriteString(block.Thinking)
	}
}

// GeneratedText returns all that the model generated in the frames of a stream, its readable reasoning too, so that the
// output of a cut stream can be counted.
func GeneratedText(frames []byte) string {
	var out strings.Builder
	for r := storedEvents(frames); ; {
		e, ok := r.parseNext()
		if !ok {
			return out.String()
		}
		var c struct {
			Choices []struct {
				Delta generated `json:"delta"`
			} `json:"choices"`
		}
		if json.Unmarshal(e.Payload, &c) != nil {
			continue // not counted, because the app cannot read it either
		}
		for i := range c.Choices {
			c.Choices[i].Delta.appendTo(&out)
		}
	}
}

// GeneratedBodyText is GeneratedText for a whole response.
func GeneratedBodyText(body []byte) string {
	var c struct {
		Choices []struct {
			Message generated `json:"message"`
		} `json:"choices"`
	}
	if json.Unmarshal(body, &c) != nil {
		return ""
	}
	var out strings.Builder
	for i := range c.Choices {
		c.Choices[i].Message.appendTo(&out)
	}
	return out.String()
}

// LastUsageFrame returns the last event of a stored stream if it has only usage, otherwise nil.
func LastUsageFrame(frames []byte) []byte {
	body := bytes.TrimSuffix(frames, []byte("\n\n"))
	frame := frames
	if i := bytes.LastIndex(body, []byte("\n\n")); i >= 0 {
		frame = frames[i+2:]
	}
	e, ok := storedEvents(frame).parseNext()
	if !ok {
		return nil
	}
	if kind, _ := Classify(e.Payload); kind != UsageOnly {
		return nil
	}
	return frame
}

// maxFinishReason bounds the bytes of a finish reason. Providers' own are shorter.
const maxFinishReason = 40

// LastFinishReason returns the last finish_reason in a whole response, or in the frames of a stream; "" if there is
// none. Inside JSON strings quotes are escaped, so that no text of the model is taken for one.
func LastFinishReason(output []byte) string {
	const member = `"finish_reason":`
	for {
		i := bytes.LastIndex(output, []byte(member))
		if i < 0 {
			return ""
		}
		value := bytes.TrimLeft(output[i+len(member):], " ")
		output = output[:i]
		if len(value) == 0 || value[0] != '"' {
			continue // null, as in all chunks but the last
		}
		reason, _, ok := bytes.Cut(value[1:], []byte{'"'})
		if !ok || len(reason) > maxFinishReason || bytes.IndexFunc(reason, isNotReason) >= 0 {
			return ""
		}
		return string(reason)
	}
}

// HasFinishReason reports whether a choice of a chunk has a finish reason. Inside JSON strings quotes are escaped, so
// that no text of the model is taken for one.
func HasFinishReason(payload []byte) bool {
	const name, space = `"finish_reason"`, " \t\r\n"
	for {
		i := bytes.Index(payload, []byte(name))
		if i < 0 {
			return false
		}
		payload = bytes.TrimLeft(payload[i+len(name):], space)
		value, ok := bytes.CutPrefix(payload, []byte{':'})
		if value = bytes.TrimLeft(value, space); ok && len(value) > 0 && value[0] == '"' {
			return true
		}
	}
}

// isNotReason reports whether a finish reason cannot have r.
func isNotReason(r rune) bool { return (r < 'a' || r > 'z') && r != '_' }

// maxEmptyAnswer bounds the bytes of an answer that can be empty: some frames around nothing.
const maxEmptyAnswer = 16 << 10

// IsEmptyAnswer reports whether a model ended its answer by itself and gave nothing that an app can read: no text,
// refusal, tool call or reasoning. output is a whole response, or all frames of a stream. An answer that its output cap
// cut off is not empty, and neither is one that cannot be parsed.
func IsEmptyAnswer(output []byte) bool {
	if len(output) > maxEmptyAnswer || LastFinishReason(output) != "stop" {
		return false
	}
	if bytes.HasPrefix(bytes.TrimSpace(output), []byte{'{'}) {
		return givesNothing(output)
	}
	for r := storedEvents(output); ; {
		e, ok := r.parseNext()
		if !ok {
			return true
		}
		if kind, _ := Classify(e.Payload); kind != Finish && !givesNothing(e.Payload) {
			return false
		}
	}
}

// givesNothing reports whether no choice of a response or chunk has a member with a content other than its role.
func givesNothing(payload []byte) bool {
	var c struct {
		Choices []struct {
			Message map[string]json.RawMessage `json:"message"`
			Delta   map[string]json.RawMessage `json:"delta"`
		} `json:"choices"`
	}
	if json.Unmarshal(payload, &c) != nil {
		return false
	}
	for _, choice := range c.Choices {
		for _, members := range []map[string]json.RawMessage{choice.Message, choice.Delta} {
			for name, value := range members {
				switch string(value) {
				case `null`, `""`, `[]`, `{}`:
				default:
					if name != "role" {
						return false
					}
				}
			}
		}
	}
	return true
}

// storedEvents returns an SSE over events in memory.
func storedEvents(frames []byte) *SSE { return &SSE{buf: frames, eof: true, started: true} }
