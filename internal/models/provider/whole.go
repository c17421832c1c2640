package provider

import (
	"encoding/json"
	"errors"
	"io"
)

// wholeStream is a stream of one chunk.
type wholeStream struct {
	chunk Chunk
	read  bool
}

// NewWholeStream returns a stream of a response that came whole although it was asked for in parts. It fails if the
// response has no message.
func NewWholeStream(r *Response) (Stream, error) {
	var whole map[string]json.RawMessage
	var choices []struct {
		Index   int64                      `json:"index"`
		Message map[string]json.RawMessage `json:"message"`
		Finish  json.RawMessage            `json:"finish_reason"`
	}
	err := errors.Join(json.Unmarshal(r.Body, &whole), json.Unmarshal(whole["choices"], &choices))
	if err != nil || len(choices) == 0 || choices[0].Message == nil {
		return nil, &Error{Status: 200, Message: "the provider failed", Cause: errors.New("the answer has no message")}
	}
	type delta map[string]any
	var list []delta
	for _, c := range choices {
		d := delta{"index": c.Index, "finish_reason": c.Finish}
		var calls []map[string]json.RawMessage
		if json.Unmarshal(c.Message["tool_calls"], &calls) == nil && len(calls) > 0 {
			for i := range calls {
				calls[i]["index"], _ = json.Marshal(i) // a number has no error
			}
			c.Message["tool_calls"], _ = json.Marshal(calls) // it was JSON before
		}
		d["delta"] = c.Message
		list = append(list, d)
	}
	chunk := map[string]any{
		"id": whole["id"], "object": "chat.completion.chunk", "created": whole["created"], "model": whole["model"],
		"choices": list,
	}
	payload, err := json.Marshal(chunk)
	if err != nil {
		return nil, err
	}
	s := &wholeStream{chunk: Chunk{Frames: AppendFrame(nil, payload), Usage: r.Usage}}
	if whole["usage"] != nil && r.Usage != nil {
		chunk["choices"], chunk["usage"] = []delta{}, whole["usage"]
		if payload, err = json.Marshal(chunk); err != nil {
			return nil, err
		}
		s.chunk.UsageFrame = AppendFrame(nil, payload)
	}
	return s, nil
}

// Next returns the whole response, and then io.EOF.
func (s *wholeStream) Next() (Chunk, error) {
	if s.read {
		return Chunk{}, io.EOF
	}
	s.read = true
	return s.chunk, nil
}

// BodyEnded reports that the body was read.
func (*wholeStream) BodyEnded() bool { return true }

// Close does nothing.
func (*wholeStream) Close() error { return nil }
