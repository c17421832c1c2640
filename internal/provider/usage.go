package provider

import (
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"strings"
)

// ParseUsage reads OpenAI's usage object into disjoint classes. It returns nil
// when the object cannot be true: a count is missing, negative, fractional,
// larger than 2^53, or smaller than its parts. Such usage counts as missing (F-13).
func ParseUsage(raw []byte) *Usage {
	var u struct {
		Prompt     *count `json:"prompt_tokens"`
		Completion *count `json:"completion_tokens"`
		Total      *count `json:"total_tokens"`
		PromptHas  *struct {
			Cached     count `json:"cached_tokens"`
			CacheWrite count `json:"cache_write_tokens"`
		} `json:"prompt_tokens_details"`
		CompletionHas *struct {
			Reasoning count `json:"reasoning_tokens"`
		} `json:"completion_tokens_details"`
	}
	if err := json.Unmarshal(raw, &u); err != nil || u.Prompt == nil || u.Completion == nil {
		return nil
	}
	if u.Total != nil && *u.Total != *u.Prompt+*u.Completion {
		return nil
	}
	out := &Usage{Input: int64(*u.Prompt), Output: int64(*u.Completion)}
	if d := u.PromptHas; d != nil {
		out.Cached, out.CacheWrite = int64(d.Cached), int64(d.CacheWrite)
		if out.Input -= out.Cached + out.CacheWrite; out.Input < 0 {
			return nil
		}
	}
	if d := u.CompletionHas; d != nil {
		if out.Reasoning = int64(d.Reasoning); out.Reasoning > out.Output {
			return nil
		}
	}
	return out
}

// count is a whole number between 0 and 2^53; null is 0.
type count int64

// UnmarshalJSON refuses everything that is no such number.
func (c *count) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	n, err := strconv.ParseUint(string(b), 10, 53)
	*c = count(n)
	return err
}

// spoken is what of a chunk or a message the model generated.
type spoken struct {
	Content   *string `json:"content"`
	Refusal   *string `json:"refusal"`
	ToolCalls []struct {
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

func (s *spoken) appendTo(b *strings.Builder) {
	for _, t := range []*string{s.Content, s.Refusal} {
		if t != nil {
			b.WriteString(*t)
		}
	}
	for _, c := range s.ToolCalls {
		b.WriteString(c.Function.Name)
		b.WriteString(c.Function.Arguments)
	}
}

// Text joins everything that the model generated in a stream's frames, so that
// the output of a cut stream can be counted.
func Text(frames []byte) string {
	var out strings.Builder
	for r := NewSSE(bytes.NewReader(frames), make([]byte, 0, 4096)); ; {
		e, err := r.Next()
		if err != nil { // io.EOF, or what is left is no event
			return out.String()
		}
		var c struct {
			Choices []struct {
				Delta spoken `json:"delta"`
			} `json:"choices"`
		}
		if json.Unmarshal(e.Payload, &c) != nil {
			continue
		}
		for i := range c.Choices {
			c.Choices[i].Delta.appendTo(&out)
		}
	}
}

// BodyText is Text for a whole answer.
func BodyText(body []byte) string {
	var c struct {
		Choices []struct {
			Message spoken `json:"message"`
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

// LastUsageFrame returns the last event of a stored stream if it carries only
// usage, else nil.
func LastUsageFrame(frames []byte) []byte {
	body := bytes.TrimSuffix(frames, []byte("\n\n"))
	i := bytes.LastIndex(body, []byte("\n\n"))
	frame := frames[min(i+2, len(frames)):]
	if i < 0 {
		frame = frames
	}
	e, err := NewSSE(bytes.NewReader(frame), make([]byte, 0, 1024)).Next()
	if err != nil && err != io.EOF {
		return nil
	}
	if kind, _ := Classify(e.Payload); kind == UsageOnly {
		return frame
	}
	return nil
}
