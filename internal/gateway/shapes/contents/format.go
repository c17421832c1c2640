package contents

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/shapes"
	"github.com/purserhq/purser/internal/models/provider"
)

// format is the form of Google's answers.
type format struct{}

const firstChunk = `data: {"candidates":`

// FormatOf returns the form of Google's answers if a stream is one of them, and otherwise nil.
func FormatOf(stream []byte) shapes.Format {
	if bytes.HasPrefix(stream, []byte(firstChunk)) {
		return format{}
	}
	return nil
}

// AppendUsage appends usageMetadata (see shapes.Format).
func (format) AppendUsage(b, usage []byte) []byte {
	if usage == nil {
		return append(b, "null"...)
	}
	u := shapes.ReadUsage(usage)
	b = strconv.AppendInt(append(b, `{"promptTokenCount":`...), u.Prompt, 10)
	if u.Cached > 0 {
		b = strconv.AppendInt(append(b, `,"cachedContentTokenCount":`...), u.Cached, 10)
	}
	b = strconv.AppendInt(append(b, `,"candidatesTokenCount":`...), max(u.Output-u.Reasoning, 0), 10)
	if u.Reasoning > 0 {
		b = strconv.AppendInt(append(b, `,"thoughtsTokenCount":`...), u.Reasoning, 10)
	}
	return append(strconv.AppendInt(append(b, `,"totalTokenCount":`...), u.Prompt+u.Output, 10), '}')
}

// Fail returns the chunk with an error (see shapes.Format).
func (format) Fail(_, failure []byte) []byte {
	b := appendError([]byte("data: "), failure, statusOf(shapes.ReadFailure(failure).Code), []byte(shapes.FinalHole))
	return append(b, "\n\n"...)
}

// ErrorBody encodes an error as Google's clients read it. Our error object is its member svc.
func ErrorBody(e *apierr.Error, l web.Links, _ string) ([]byte, error) {
	envelope, err := web.Envelope(e, l)
	if err != nil {
		return nil, err
	}
	var members struct {
		Error json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(envelope, &members); err != nil {
		return nil, err
	}
	return append(appendError(nil, members.Error, e.Code.Status, nil), '\n'), nil
}

// statusOf returns the HTTP status of an error code.
func statusOf(code string) int {
	if c, ok := apierr.ByName(code); ok {
		return c.Status
	}
	return 500
}

// appendError appends an error response for the error object of an envelope. final is the member with the bill of a
// stream that was cut; nil = none.
func appendError(b, failure []byte, status int, final []byte) []byte {
	f := shapes.ReadFailure(failure)
	if f.TooLong { // what Google says, for which agents look
		f.Message = "The input token count exceeds the maximum number of tokens allowed: " + f.Message
	}
	b = strconv.AppendInt(append(b, `{"error":{"code":`...), int64(status), 10)
	b = provider.AppendQuote(append(b, `,"message":`...), f.Message)
	b = append(append(append(b, `,"status":"`...), canonicalStatus(status)...), `","details":[`...)
	b = provider.AppendQuote(append(b, `{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":`...),
		strings.ToUpper(f.Code))
	b = append(b, `,"domain":"purser"}],"svc":`...)
	b = append(append(b, failure...), '}')
	return append(append(b, final...), '}')
}

// canonicalStatus returns Google's name of an HTTP status.
func canonicalStatus(status int) string {
	switch status {
	case 401:
		return "UNAUTHENTICATED"
	case 402:
		return "FAILED_PRECONDITION"
	case 403:
		return "PERMISSION_DENIED"
	case 404:
		return "NOT_FOUND"
	case 409:
		return "ABORTED"
	case 429:
		return "RESOURCE_EXHAUSTED"
	case 501:
		return "UNIMPLEMENTED"
	case 503:
		return "UNAVAILABLE"
	case 504:
		return "DEADLINE_EXCEEDED"
	}
	if status < 500 {
		return "INVALID_ARGUMENT"
	}
	return "INTERNAL"
}

// generated is what a model generated in a response or a chunk.
type generated struct {
	Candidates []struct {
		Content struct {
			Parts []struct {
				Text         string `json:"text"`
				FunctionCall *struct {
					Name string         `json:"name"`
					Args jsontext.Value `json:"args"`
				} `json:"functionCall"`
			} `json:"parts"`
		} `json:"content"`
	} `json:"candidates"`
}

// KeepAlive returns a chunk that says nothing: clients of Google's take a comment for a fault (see shapes.Format).
func (format) KeepAlive() []byte {
	return []byte(firstChunk + `[{"content":{"parts":[{"text":""}],"role":"model"},"index":0}]}` + "\n\n")
}

// Text returns what the model generated (see shapes.Format).
func (format) Text(answer []byte) string {
	var b strings.Builder
	add := func(data []byte) {
		var g generated
		if json.Unmarshal(data, &g) != nil { // what cannot be read the app cannot read either
			return
		}
		for _, c := range g.Candidates {
			for _, p := range c.Content.Parts {
				b.WriteString(p.Text)
				if f := p.FunctionCall; f != nil {
					b.WriteString(f.Name)
					if len(f.Args) > len("{}") {
						b.Write(f.Args)
					}
				}
			}
		}
	}
	answer = shapes.WithoutBill(answer)
	if len(answer) > 0 && answer[0] == '{' {
		add(answer)
		return b.String()
	}
	for len(answer) > 0 {
		var event []byte
		event, answer, _ = bytes.Cut(answer, []byte("\n\n"))
		add(bytes.TrimPrefix(event, []byte("data: ")))
	}
	return b.String()
}
