package responses

import (
	"strconv"

	"github.com/purserhq/purser/internal/gateway/shapes"
	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

// status returns the status of a response that has ended, and why it is incomplete; "" = it is not.
func (s *stream) status() (status, reason string) {
	switch s.reason {
	case conversation.Cut:
		return "incomplete", "max_output_tokens"
	case conversation.Filtered:
		return "incomplete", "content_filter"
	}
	return "completed", ""
}

// appendResponse appends the response object.
func (s *stream) appendResponse(b []byte, status string) []byte {
	b = append(append(append(b, `{"id":"resp_`...), s.id...), `","object":"response","created_at":`...)
	b = appendOr(b, s.made, "0")
	b = append(append(append(b, `,"status":"`...), status...), `","error":`...)
	if status == "failed" {
		code, message := readFailure(s.failure)
		b = append(append(append(b, `{"code":`...), code...), `,"message":`...)
		b = append(append(b, message...), '}')
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"incomplete_details":`...)
	if _, reason := s.status(); status == "incomplete" {
		b = append(append(append(b, `{"reason":"`...), reason...), `"}`...)
	} else {
		b = append(b, "null"...)
	}
	b = appendOr(append(b, `,"model":`...), s.model, `""`)
	b = append(append(b, s.echo...), `,"output":[`...)
	if status != "in_progress" {
		for i := range s.items {
			if i > 0 {
				b = append(b, ',')
			}
			b = s.appendItem(b, i)
		}
	}
	if status == "in_progress" {
		return append(b, `],"usage":null}`...)
	}
	return append(b, `],"usage":`+shapes.UsageHole+shapes.BlockHole+"}"...)
}

func appendOr(b, value []byte, otherwise string) []byte {
	if value == nil {
		return append(b, otherwise...)
	}
	return append(b, value...)
}

// appendItem appends item i as it is now.
func (s *stream) appendItem(b []byte, i int) []byte {
	it := &s.items[i]
	if it.done != nil {
		return append(b, it.done...)
	}
	b = append(s.appendItemID(append(b, `{"id":"`...), i), `","type":`...)
	status := "in_progress"
	switch {
	case it.cut:
		status = "incomplete"
	case it.closed:
		status = "completed"
	}
	switch it.kind {
	case reasoningItem:
		b = append(b, `"reasoning","summary":[`...)
		if it.closed && len(it.summary) > 0 {
			b = append(append(append(b, `{"type":"summary_text","text":"`...), it.summary...), `"}`...)
		}
		if b = append(b, ']'); it.encrypted != nil {
			b = append(append(append(b, `,"encrypted_content":"`...), it.encrypted...), '"')
		}
		return append(b, '}')
	case callItem, customItem:
		kind, text, content := "function_call", `","arguments":"`, it.arguments
		if it.kind == customItem {
			kind, text, content = "custom_tool_call", `","input":"`, unwrapInput(it.arguments)
		}
		b = append(append(append(b, '"'), kind...), `","status":"`...)
		b = append(append(b, status...), `","call_id":"`...)
		b = append(append(append(b, it.callID...), `","name":"`...), it.name...)
		if it.namespace != "" {
			b = append(append(b, `","namespace":"`...), it.namespace...)
		}
		return append(append(append(b, text...), content...), `"}`...)
	}
	b = append(append(append(b, `"message","status":"`...), status...), `","role":"assistant",`...)
	if len(it.phase) > 0 {
		b = append(append(append(b, `"phase":"`...), it.phase...), `",`...)
	}
	b = append(b, `"content":[`...)
	for n := range it.parts {
		if n > 0 {
			b = append(b, ',')
		}
		b = appendPart(b, &it.parts[n])
	}
	return append(b, "]}"...)
}

// appendItemID appends the id of item i, without quotes. It depends on the response alone, so a replay has the same.
func (s *stream) appendItemID(b []byte, i int) []byte {
	prefixes := [...]string{messageItem: "msg_", reasoningItem: "rs_", callItem: "fc_", customItem: "ctc_"}
	b = append(b, prefixes[s.items[i].kind]...)
	return strconv.AppendInt(append(append(b, s.id...), '_'), int64(i), 10)
}

func appendPart(b []byte, p *part) []byte {
	if p.refusal {
		return append(append(append(b, `{"type":"refusal","refusal":"`...), p.text...), `"}`...)
	}
	b = append(append(b, `{"type":"output_text","text":"`...), p.text...)
	return append(b, `","annotations":[],"logprobs":[]}`...)
}

// appendUsage appends canonical usage with the names of the Responses API.
func appendUsage(b, usage []byte) []byte {
	if usage == nil {
		return append(b, "null"...)
	}
	counts := map[string][]byte{}
	details := func(name, value []byte) bool {
		if string(value) != "null" {
			counts[string(name)] = value
		}
		return true
	}
	provider.Members(usage, func(name, value []byte) bool {
		switch string(name) {
		case "prompt_tokens", "completion_tokens", "total_tokens":
			return details(name, value)
		case "prompt_tokens_details", "completion_tokens_details":
			provider.Members(value, details)
		}
		return true
	})
	for _, m := range [...]struct{ text, name string }{
		{`{"input_tokens":`, "prompt_tokens"},
		{`,"input_tokens_details":{"cached_tokens":`, "cached_tokens"},
		{`,"cache_write_tokens":`, "cache_write_tokens"},
		{`},"output_tokens":`, "completion_tokens"},
		{`,"output_tokens_details":{"reasoning_tokens":`, "reasoning_tokens"},
		{`},"total_tokens":`, "total_tokens"},
	} {
		b = appendOr(append(b, m.text...), counts[m.name], "0")
	}
	return append(b, '}')
}
