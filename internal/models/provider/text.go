package provider

import (
	"bytes"
	"encoding/json"
	"strings"
)

// spoken is what of a chunk or a message the model generated.
type spoken struct {
	Content   string `json:"content"`
	Refusal   string `json:"refusal"`
	ToolCalls []struct {
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

func (s *spoken) appendTo(b *strings.Builder) {
	b.WriteString(s.Content)
	b.WriteString(s.Refusal)
	for _, c := range s.ToolCalls {
		b.WriteString(c.Function.Name)
		b.WriteString(c.Function.Arguments)
	}
}

// Text joins everything that the model generated in a stream's frames, so that
// the output of a cut stream can be counted.
func Text(frames []byte) string {
	var out strings.Builder
	for r := stored(frames); ; {
		e, ok := r.take()
		if !ok {
			return out.String()
		}
		var c struct {
			Choices []struct {
				Delta spoken `json:"delta"`
			} `json:"choices"`
		}
		if json.Unmarshal(e.Payload, &c) != nil {
			continue // what the app cannot read either is not counted
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
	frame := frames
	if i := bytes.LastIndex(body, []byte("\n\n")); i >= 0 {
		frame = frames[i+2:]
	}
	e, ok := stored(frame).take()
	if !ok {
		return nil
	}
	if kind, _ := Classify(e.Payload); kind != UsageOnly {
		return nil
	}
	return frame
}

// stored reads events that are in memory already.
func stored(frames []byte) *SSE { return &SSE{buf: frames, eof: true, open: true} }
