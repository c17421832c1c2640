package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/purserhq/purser/internal/models/provider"
)

const (
	callFrame     = `data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"now","arguments":""}}]},"finish_reason":null}],"usage":null}` + "\n\n"
	pieceFrame    = `data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"finish_reason\":\"stop\"}"}}]},"finish_reason":null}],"obfuscation":"x"}` + "\n\n"
	noCallsFrame  = `data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"\"tool_calls\":[1]","tool_calls":[]},"finish_reason":null}]}` + "\n\n"
	oddStopFrame  = `data: {"moderation":{"finish_reason":"stop"},"choices":[{"index":0,"delta":{},"logprobs":null, "finish_reason" : "stop" ,"n":1.50}],"usage":null}` + "\n\n"
	oddCallsFrame = `data: {"moderation":{"finish_reason":"stop"},"choices":[{"index":0,"delta":{},"logprobs":null, "finish_reason" : "tool_calls" ,"n":1.50}],"usage":null}` + "\n\n"
)

// withTools serves a request that has a tool, and gives what the app gets.
func withTools(body func() io.Reader) relayed {
	c := served(func(context.Context) io.Reader { return body() })
	r := request(true)
	r.Tools = []provider.Tool{{Name: "now"}}
	return relayRequest(c, r)
}

// TestStreamsWithCallsEndWithToolCalls: where a call was forced by name, older
// models say stop. That word is changed; every other byte is as it came.
func TestStreamsWithCallsEndWithToolCalls(t *testing.T) {
	t.Parallel()
	mended := strings.Replace(finishFrame, `"stop"`, `"tool_calls"`, 1)
	both := strings.Replace(callFrame, `"finish_reason":null`, `"finish_reason":"stop"`, 1)
	for what, c := range map[string]struct{ frames, want string }{
		"stop":              {callFrame + pieceFrame + finishFrame, callFrame + pieceFrame + mended},
		"in the same chunk": {both, strings.Replace(both, `"stop"`, `"tool_calls"`, 1)},
		"other members":     {callFrame + oddStopFrame, callFrame + oddCallsFrame},
		"chunks behind it": {callFrame + finishFrame + textFrame + finishFrame,
			callFrame + mended + textFrame + mended},
		"right already": {callFrame + pieceFrame + mended, callFrame + pieceFrame + mended},
		"length": {callFrame + strings.Replace(finishFrame, "stop", "length", 1),
			callFrame + strings.Replace(finishFrame, "stop", "length", 1)},
		"no calls":               {roleFrame + textFrame + finishFrame, roleFrame + textFrame + finishFrame},
		"calls only by the text": {noCallsFrame + finishFrame, noCallsFrame + finishFrame},
	} {
		text := c.frames + usageFrame + doneFrame
		check := func(how string, body func() io.Reader) {
			out := withTools(body)
			if out.frames != c.want || out.usageFrame != usageFrame || out.usage == nil || !errors.Is(out.err, io.EOF) {
				t.Errorf("%s, %s: %+v, want %s", what, how, out, c.want)
			}
		}
		check("byte by byte", func() io.Reader { return iotest.OneByteReader(strings.NewReader(text)) })
		for i := range len(text) {
			check("in two parts", func() io.Reader {
				return io.MultiReader(strings.NewReader(text[:i]), strings.NewReader(text[i:]))
			})
		}
		check("CRLF", func() io.Reader { return strings.NewReader(strings.ReplaceAll(text, "\n", "\r\n")) })
	}
	if out := withTools(func() io.Reader {
		return strings.NewReader(callFrame + finishFrame)
	}); out.frames != callFrame+mended || !errors.Is(out.err, io.EOF) {
		t.Errorf("the connection ends behind it: %+v", out)
	}
}

// TestAnswersWithCallsEndWithToolCalls is the same for whole answers.
func TestAnswersWithCallsEndWithToolCalls(t *testing.T) {
	t.Parallel()
	const whole = ` {"x":{"finish_reason":"stop"},"choices":[{"finish_reason":%s,"message":{"content":null,"tool_calls":%s},"y":1.0}],"usage":` + sampleUsage + "}\n"
	const calls = `[{"id":"c","type":"function","function":{"name":"now","arguments":"{}"}}]`
	for what, c := range map[string]struct{ reason, calls, want string }{
		"stop":     {`"stop"`, calls, `"tool_calls"`},
		"right":    {`"tool_calls"`, calls, `"tool_calls"`},
		"length":   {`"length"`, calls, `"length"`},
		"no calls": {`"stop"`, `[]`, `"stop"`},
		"null":     {`"stop"`, `null`, `"stop"`},
		"odd":      {`5`, calls, `5`},
	} {
		r := request(false)
		r.Tools = []provider.Tool{{Name: "now"}}
		got, err := serve(t, answers(200, fmt.Sprintf(whole, c.reason, c.calls))).Complete(t.Context(), r)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if want := strings.TrimSpace(fmt.Sprintf(whole, c.want, c.calls)); string(got.Body) != want ||
			got.Usage == nil || *got.Usage != wantUsage {
			t.Errorf("%s: %s %+v", what, got.Body, got.Usage)
		}
	}
}

// TestEdge36ErrorInPlaceOfAnAnswer: a 200 that carries an error means what its
// status would, as long as nothing came.
func TestEdge36ErrorInPlaceOfAnAnswer(t *testing.T) {
	t.Parallel()
	for object, want := range map[string]provider.Error{
		`{"message":"m","type":"server_error","code":null}`:            {Status: 503, Retry: true},
		`{"message":"m","type":null,"code":"server_is_overloaded"}`:    {Status: 503, Retry: true},
		`{"message":"m","type":"tokens","code":"rate_limit_exceeded"}`: {Status: 429, Retry: true},
		`{"message":"m","type":"insufficient_quota","code":"insufficient_quota"}`: {
			Status: 429,
			Alarm:  "the account is out of quota",
		},
		`{"message":"m","type":"invalid_request_error","code":"invalid_api_key"}`: {
			Status: 401,
			Alarm:  "the key is refused",
		},
		`{"message":"m","type":"invalid_request_error","code":"model_not_found"}`: {
			Status: 404,
			Alarm:  "the model or address is unknown",
		},
		`{"message":"m at ` + sampleKey + `","type":"invalid_request_error","code":null}`: {
			Status:  400,
			Kind:    provider.Rejected,
			Message: "the provider refused the request: m at [removed]",
		},
		`{"message":"m","type":"never heard of","code":7}`: {Status: 200},
		`"overloaded"`: {Status: 200},
	} {
		if want.Kind == provider.Failed {
			want.Message = "the provider failed"
		}
		check := func(how string, err error, want provider.Error) {
			var e *provider.Error
			if !errors.As(err, &e) || e.Status != want.Status || e.Kind != want.Kind || e.Retry != want.Retry ||
				e.Alarm != want.Alarm || e.Message != want.Message ||
				strings.Contains(e.Error(), sampleKey) && want.Kind == provider.Failed {
				t.Errorf("%s %s: %+v", how, object, err)
			}
		}
		frame := `data: {"error":` + object + "}\n\n"
		check("first event", run(serve(t, answers(200, frame)), true), want)
		check("whole", run(serve(t, answers(200, `{"error":`+object+`}`)), false), want)
		later := want
		later.Kind, later.Retry, later.Message = provider.Failed, false, "the provider failed"
		out := relay(serve(t, answers(200, roleFrame+frame)))
		check("later", out.err, later)
		if out.frames != roleFrame {
			t.Errorf("%s: what came before it: %s", object, out.frames)
		}
	}
	var e *provider.Error
	if err := run(serve(t, answers(200, "event: error\ndata: {\"code\":\"server_error\",\"message\":\"m\"}\n\n")),
		true); !errors.As(err, &e) || !e.Retry {
		t.Errorf("an event named error: %v", err)
	}
}

// TestRetryTruth holds what each refusal means in a table (provider notes A.6).
func TestRetryTruth(t *testing.T) {
	t.Parallel()
	const refusedKey, unknown, quota = "the key is refused", "the model or address is unknown", "the account is out of quota"
	for _, c := range []struct {
		status            int
		kind, code, param string
		retry             bool
		alarm             string
	}{
		{400, "invalid_request_error", "null", "tools", false, ""},
		{400, "invalid_request_error", `"unsupported_parameter"`, "max_tokens", false, ""},
		{400, "invalid_request_error", `"unsupported_value"`, "temperature", false, ""},
		{400, "invalid_request_error", `"context_length_exceeded"`, "messages", false, ""},
		{400, "invalid_request_error", `"invalid_image_url"`, "messages", false, ""},
		{400, "invalid_request_error", `"billing_hard_limit_reached"`, "", false, quota},
		{401, "invalid_request_error", `"invalid_api_key"`, "", false, refusedKey},
		{402, "billing_error", "null", "", false, quota},
		{403, "invalid_request_error", `"unsupported_country_region_territory"`, "", false, refusedKey},
		{404, "invalid_request_error", `"model_not_found"`, "model", false, unknown},
		{408, "server_error", "null", "", true, ""},
		{409, "server_error", "null", "", true, ""},
		{413, "invalid_request_error", "null", "", false, ""},
		{422, "invalid_request_error", "null", "", false, ""},
		{429, "requests", `"rate_limit_exceeded"`, "", true, ""},
		{429, "tokens", `"rate_limit_exceeded"`, "", true, ""},
		{429, "insufficient_quota", `"insufficient_quota"`, "", false, quota},
		{500, "server_error", "null", "", true, ""},
		{502, "server_error", "null", "", true, ""},
		{503, "server_error", `"server_is_overloaded"`, "", true, ""},
		{504, "server_error", "null", "", true, ""},
		{529, "server_error", "null", "", true, ""},
	} {
		body := fmt.Sprintf(`{"error":{"message":"m","type":%q,"param":%q,"code":%s}}`, c.kind, c.param, c.code)
		for _, should := range []string{"", "true", "false"} {
			want := c.retry && should != "false" || should == "true"
			h := func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Should-Retry", should)
				answers(c.status, body, "Retry-After", "1.5")(w, r)
			}
			for _, stream := range []bool{false, true} {
				err := run(serve(t, h), stream)
				var e *provider.Error
				if !errors.As(err, &e) || e.Retry != want || e.Alarm != c.alarm ||
					e.RetryAfter.Milliseconds() != 1500 || e.Status != c.status {
					t.Errorf("%d %s, X-Should-Retry %q: %+v", c.status, c.code, should, err)
				} else if rejected := c.alarm == "" && !c.retry; rejected != (e.Kind == provider.Rejected) {
					t.Errorf("%d %s: kind %v", c.status, c.code, e.Kind)
				}
			}
		}
	}
	for what, c := range map[string]struct {
		h     http.HandlerFunc
		retry bool
	}{
		"reset before the headers": {cuts(""), true},
		"cut before the answer":    {cuts("HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n"), true},
		"nothing in the answer":    {answers(200, ""), true},
		"cut within the first": {cuts("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1000\r\n" +
			roleFrame[:20]), true},
		"a page": {answers(200, "data: <html>\n\n"), false},
	} {
		var e *provider.Error
		if err := run(serve(t, c.h), true); !errors.As(err, &e) || e.Retry != c.retry {
			t.Errorf("%s: %+v", what, err)
		}
	}
}
