package apitest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/apierr"
)

const (
	okConnection = `{"id":"conn_1","app_id":"app_1","user_account_id":"wac_1","reserved_allocation_mc":500000000,` +
		`"reserved_allocation_display":"$5.00","allocation_mc":500000000,"allocation_display":"$5.00",` +
		`"consumed_mc":80000000,"consumed_display":"$0.80","held_mc":0,"held_display":"$0.00",` +
		`"allocation_remaining_mc":420000000,"allocation_remaining_display":"$4.20","velocity_limit_mc":null,` +
		`"velocity_limit_display":null,"status":"active","freeze":null,"created_at":"2026-11-21T10:15:00.000Z"}`
	okSvc = `{"feature":null,"hold_amount_mc":4200,"provider_cost_mc":2000,"svc_fee_mc":100,` +
		`"dev_margin_mc":300,"user_charge_mc":2400,"user_charge_display":"$0.000024",` +
		`"allocation_remaining_mc":100000000,"allocation_remaining_display":"$1.00"}`
	okUsage  = `{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}`
	okAnswer = `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,` +
		`"message":{"role":"assistant","content":"Blue"},"finish_reason":"stop"}],` +
		`"usage":` + okUsage + `,"svc":` + okSvc + `}`
	okNotFound = `{"error":{"code":"not_found","message":"no such thing","type":"invalid_request",` +
		`"connection_id":null,"increase_url":null,"review_url":null}}`
	okChunk = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m",` +
		`"choices":[{"index":0,"delta":{"content":"Blue"},"finish_reason":null}]}` + "\n\n"
	okFinal = `data: {"svc_final":{"settlement":"settled","usage":` + okUsage + `,"svc":` + okSvc + `}}` + "\n\n"
	noUsage = `{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}`
	okStart = "event: message_start\n" + `data: {"type":"message_start","message":{"id":"msg_1","type":"message",` +
		`"role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":` + noUsage +
		`}}` + "\n\n"
	okBlock = "event: content_block_start\n" + `data: {"type":"content_block_start","index":0,"content_block":` +
		`{"type":"text","text":""}}` + "\n\n" + "event: content_block_stop\n" +
		`data: {"type":"content_block_stop","index":0}` + "\n\n"
	okMessage = "event: message_delta\n" + `data: {"type":"message_delta","delta":{"stop_reason":"end_turn",` +
		`"stop_sequence":null},"usage":` + noUsage + `,"svc_final":{"settlement":"settled","usage":` + okUsage +
		`,"svc":` + okSvc + `}}` + "\n\nevent: message_stop\n" + `data: {"type":"message_stop"}` + "\n\n"
	contentStream = "POST /google/v1beta/models/m:streamGenerateContent 200 Content-Type=text/event-stream"
	okContent     = `data: {"candidates":[{"content":{"parts":[{"text":"Hi"}],"role":"model"},"index":0}]}` + "\n\n"
	okContentEnd  = `data: {"candidates":[{"content":{"parts":[{"text":""}],"role":"model"},"finishReason":"STOP",` +
		`"index":0}],"usageMetadata":null,"svc_final":{"settlement":"settled","usage":` + okUsage + `,"svc":` + okSvc +
		`}}` + "\n\n"
	failed = `data: {"error":{"code":"provider_error","message":"the provider broke off",` +
		`"type":"provider_error","connection_id":null,"increase_url":null,"review_url":null}}` + "\n\n"
	end = "data: [DONE]\n\n"
)

// An answer is written "METHOD /path status [Header=value …]", and its body.
var answers = []struct {
	name, answer, body, want string // want is a part of the complaint, "" = none
}{
	{"a connection", "GET /v1/connection 200", okConnection, ""},
	{"additive members", "GET /v1/connection 200", strings.Replace(okConnection, `{`, `{"new":1,`, 1), ""},
	{"a member is missing", "GET /v1/connection 200", strings.Replace(okConnection, `"held_mc":0,`, ``, 1), "held_mc"},
	{"a fraction", "GET /v1/connection 200", strings.Replace(okConnection, `"held_mc":0`, `"held_mc":0.5`, 1),
		"integer"},
	{"null where there is a number", "GET /v1/connection 200",
		strings.Replace(okConnection, `"held_mc":0`, `"held_mc":null`, 1), "held_mc"},
	{"an id of another kind", "GET /v1/connection 200", strings.Replace(okConnection, `"wac_1"`, `"app_1"`, 1),
		"user_account_id"},
	{"a time that is none", "GET /v1/connection 200", strings.Replace(okConnection, `2026-11-21`, `2026-21-21`, 1),
		"date-time"},
	{"a time that is not UTC", "GET /v1/connection 200", strings.Replace(okConnection, `00.000Z`, `00.000+01:00`, 1),
		"created_at"},
	{"a twin that says something else", "GET /v1/connection 200", strings.Replace(okConnection, `$0.80`, `$0.81`, 1),
		"consumed_display"},
	{"a remainder that does not add up", "GET /v1/connection 200",
		strings.NewReplacer("420000000", "430000000", "$4.20", "$4.30").Replace(okConnection),
		"allocation_remaining_mc"},
	{"a status that is not documented", "GET /v1/connection 202", okConnection, "not documented"},
	{"the wrong content type", "GET /v1/connection 200 Content-Type=text/plain", okConnection, "content type"},
	{"no version", "GET /v1/connection 200 Svc-Version=", okConnection, "Svc-Version"},
	{"another version", "GET /v1/connection 200 Svc-Version=0.2.0", okConnection, "Svc-Version"},
	{"no request id", "GET /v1/connection 200 X-Request-Id=", okConnection, "X-Request-Id"},
	{"not JSON", "GET /v1/connection 200", okConnection + "x", "JSON"},
	{"recent_ledger is missing", "GET /v1/connections/conn_1 200", okConnection, "recent_ledger"},
	{"recent_ledger is there", "GET /v1/connections/conn_1 200",
		strings.Replace(okConnection, `{`, `{"recent_ledger":[],`, 1), ""},
	{"an answer", "POST /v1/ai/m 200", okAnswer, ""},
	{"a replayed answer", "POST /v1/ai/m 200 Idempotent-Replayed=true", okAnswer, ""},
	{"a replay that says false", "POST /v1/ai/m 200 Idempotent-Replayed=false", okAnswer, "Idempotent-Replayed"},
	{"an answer without svc", "POST /v1/ai/m 200", strings.Replace(okAnswer, `"svc"`, `"xsvc"`, 1), "svc"},
	{"a charge that does not add up", "POST /v1/ai/m 200", strings.NewReplacer(":2000", ":2001").Replace(okAnswer),
		"user_charge_mc"},
	{"tool calls of OpenAI's shape", "POST /v1/ai/features/s 200",
		strings.Replace(okAnswer, `"content":"Blue"`,
			`"content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{}"}}]`,
			1), ""},
	{"tool calls of another shape", "POST /v1/ai/features/s 200",
		strings.Replace(okAnswer, `"content":"Blue"`,
			`"content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":{}}}]`,
			1), "arguments"},
	{"nothing there", "GET /nowhere 404", okNotFound, ""},
	{"nothing there, told in plain text", "GET /nowhere 404 Content-Type=text/plain", "404 page not found\n",
		"envelope"},
	{"an envelope without all its members", "GET /nowhere 404",
		strings.Replace(okNotFound, `"review_url":null`, `"review":null`, 1), "review_url"},
	{"the wrong type of a code", "GET /nowhere 404",
		strings.Replace(okNotFound, `"type":"invalid_request"`, `"type":"forbidden"`, 1), "type must be"},
	{"a code on another status", "GET /nowhere 405 Allow=GET", okNotFound, "belongs to status 404"},
	{"a final error that invites a retry", "GET /nowhere 404 X-Should-Retry=", okNotFound, "x-should-retry"},
	{"review_url on another code", "GET /nowhere 404",
		strings.Replace(okNotFound, `"review_url":null`, `"review_url":"https://a.example/"`, 1), "review_url"},
	{"a page of ours", "GET /sign-in 200 Content-Type=text/html", "<p>", ""},
	{"a JSON answer that is not in the file", "GET /v1/secret 200", `{}`, "does not have"},
	{"a documented address that is not there", "DELETE /v1/models 404", okNotFound, "has this address"},
	{"the wrong method", "DELETE /v1/models 405 Allow=GET",
		strings.Replace(okNotFound, "not_found", "method_not_allowed", 1), ""},
	{"the wrong method, without Allow", "DELETE /v1/models 405",
		strings.Replace(okNotFound, "not_found", "method_not_allowed", 1), "Allow"},
	{"a code that is not documented here", "GET /v1/connections 400",
		strings.Replace(okNotFound, "not_found", "invalid_grant", 1), "code"},
	{"an empty body where there is none", "GET /oauth/authorize 303 Content-Type= Location=/sign-in", "", ""},
	{"a body where there is none", "GET /oauth/authorize 303 Location=/sign-in", "{}", "no body"},
	{"a stream", "POST /v1/ai/m 200 Content-Type=text/event-stream", okChunk + ": still here\n\n" + okFinal + end, ""},
	{"a stream without svc_final", "POST /v1/ai/m 200 Content-Type=text/event-stream", okChunk + end, "svc_final"},
	{"a stream without an end", "POST /v1/ai/m 200 Content-Type=text/event-stream", okChunk + okFinal, "[DONE]"},
	{"a stream with more after its end", "POST /v1/ai/m 200 Content-Type=text/event-stream",
		okChunk + okFinal + end + okChunk, "after [DONE]"},
	{"a chunk after svc_final", "POST /v1/ai/m 200 Content-Type=text/event-stream", okFinal + okChunk + end,
		"after svc_final"},
	{"a stream that broke", "POST /v1/ai/m 200 Content-Type=text/event-stream", okChunk + failed + end, ""},
	{"a cut event", "POST /v1/ai/m 200 Content-Type=text/event-stream", okChunk + okFinal + end + "data: {",
		"within an event"},
	{"a chunk of another shape", "POST /v1/ai/m 200 Content-Type=text/event-stream",
		strings.Replace(okChunk, "choices", "answers", 1) + okFinal + end, "choices"},
	{"a pending stream", "POST /v1/ai/m 200 Content-Type=text/event-stream",
		okChunk + `data: {"svc_final":{"settlement":"pending","usage":null,"svc":null}}` + "\n\n" + end, ""},
	{"svc_final in the last chunk", "POST /v1/chat/completions 200 Content-Type=text/event-stream",
		okChunk + strings.Replace(okFinal, `{"svc_final"`,
			`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":`+okUsage+
				`,"svc_final"`, 1) + end, ""},
	{"no svc_final when it was not asked for", "POST /v1/chat/completions 200 Content-Type=text/event-stream",
		okChunk + end, ""},
	{"a streamed message", "POST /anthropic/v1/messages 200 Request-Id=req_1 Content-Type=text/event-stream",
		okStart + okBlock + okMessage, ""},
	{"a block twice", "POST /anthropic/v1/messages 200 Request-Id=req_1 Content-Type=text/event-stream",
		okStart + okBlock + okBlock + okMessage, "one after the other"},
	{"a message without an end", "POST /anthropic/v1/messages 200 Request-Id=req_1 Content-Type=text/event-stream",
		okStart + okBlock, "ends without"},
	{"a message without its charge", "POST /anthropic/v1/messages 200 Request-Id=req_1 Content-Type=text/event-stream",
		okStart + strings.Replace(okMessage, "svc_final", "final", 1), "svc_final"},
	{"the type of another shape", "POST /anthropic/v1/messages 401 WWW-Authenticate=Bearer",
		strings.NewReplacer("not_found", "unauthorized", "invalid_request", "authentication").Replace(okNotFound),
		"authentication_error"},
	{"streamed content", contentStream, okContent + okContentEnd, ""},
	{"a comment among chunks", contentStream, ": waiting\n\n" + okContentEnd, "one line of data"},
	{"content without its charge", contentStream, okContent + strings.Replace(okContentEnd, "svc_final", "final", 1),
		"svc_final"},
	{"content without an end", contentStream, okContent, "ends without"},
	{"content after its end", contentStream, okContentEnd + okContent, "after the end"},
	{"content that fails", contentStream, okContent + `data: {"error":{"code":502,"message":"m","status":"INTERNAL",` +
		`"details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"PROVIDER_ERROR",` +
		`"domain":"purser"}],"svc":{"code":"provider_error","message":"m","type":"provider_error"}}}` + "\n\n", ""},
	{"svc_final alone confuses SDKs", "POST /v1/chat/completions 200 Content-Type=text/event-stream",
		okChunk + okFinal + end, "choices"},
}

func TestCheckTellsGoodAnswersFromBad(t *testing.T) {
	t.Parallel()
	for _, c := range answers {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			req, resp := written(t, c.answer)
			err := checkAnswer(req, resp, []byte(c.body), true)
			switch {
			case c.want == "" && err != nil:
				t.Errorf("complains: %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("complains %v; want it to mention %q", err, c.want)
			}
		})
	}
}

func TestEventTellsGoodFromBad(t *testing.T) {
	t.Parallel()
	for event, want := range map[string]string{
		`{"type":"svc.session.ending","session_id":"rts_1","reason":"max_cost"}`:            "",
		`{"type":"svc.session.ending","session_id":"rts_1"}`:                                "reason",
		`{"type":"svc.session.ending","session_id":"rts_1","cause":"x","reason":"y"}`:       "cause",
		`{"type":"svc.session.ending","session_id":"conn_1","reason":"max_cost"}`:           "session_id",
		`{"type":"svc.session.vanished","session_id":"rts_1"}`:                              "no event",
		`{"type":"response.created","response":{"id":"resp_1"}}`:                            "",
		`{"type":"response.output_audio.delta","response":{"id":"resp_1"}}`:                 "no event",
		`{"type":"error","error":{"code":null,"message":"no such item","param":"item_id"}}`: "",
		`{"type":"error"}`: "error",
		`{`:                "JSON",
	} {
		err := checkEvent([]byte(event))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: complains %v; want it to mention %q", event, err, want)
		}
	}
}

func written(t *testing.T, answer string) (*http.Request, *http.Response) {
	t.Helper()
	words := strings.Fields(answer)
	w := httptest.NewRecorder()
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Svc-Version", "0.1.0")
	h.Set("X-Request-Id", "req_1")
	if strings.HasPrefix(words[2], "4") {
		h.Set("X-Should-Retry", "false")
	}
	for _, set := range words[3:] {
		name, value, _ := strings.Cut(set, "=")
		h.Set(name, value)
		if value == "" {
			h.Del(name)
		}
	}
	status, err := strconv.Atoi(words[2])
	if err != nil {
		t.Fatal(err)
	}
	w.WriteHeader(status)
	return httptest.NewRequest(words[0], words[1], nil), w.Result()
}

// silent is a test that keeps what is reported instead of failing.
type silent struct {
	testing.TB
	errors []string
}

func (s *silent) Helper() {}
func (s *silent) Errorf(format string, args ...any) {
	s.errors = append(s.errors, format)
}

func TestTransportChecksWhatPasses(t *testing.T) {
	t.Parallel()
	bodies := map[string]string{
		"/v1/connection": okConnection,
		"/v1/account":    okConnection,
		"/v1/ai/good":    okChunk + okFinal + end,
		"/v1/ai/bad":     okChunk + end,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Svc-Version", "0.1.0")
		h.Set("X-Request-Id", "req_1")
		h.Set("Content-Type", "application/json")
		if strings.HasPrefix(r.URL.Path, "/v1/ai") {
			h.Set("Content-Type", "text/event-stream")
		}
		if _, err := io.WriteString(w, bodies[r.URL.Path]); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	for _, c := range []struct {
		method, path string
		read         bool
		wrong        int
	}{
		{"GET", "/v1/connection", true, 0},
		{"HEAD", "/v1/connection", true, 0},
		{"GET", "/v1/account", true, 1},
		{"POST", "/v1/ai/good", true, 0},
		{"POST", "/v1/ai/bad", true, 1},
		{"POST", "/v1/ai/bad", false, 0},
	} {
		s := &silent{TB: t}
		req, err := http.NewRequestWithContext(t.Context(), c.method, server.URL+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := Transport(s, nil).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if c.read {
			body, err := io.ReadAll(resp.Body)
			if err != nil || c.method != "HEAD" && string(body) != bodies[c.path] {
				t.Errorf("%s %s: the body that came through is %q (%v)", c.method, c.path, body, err)
			}
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
		if len(s.errors) != c.wrong {
			t.Errorf("%s %s, read %t: %d complaints, want %d: %q", c.method, c.path, c.read, len(s.errors), c.wrong,
				s.errors)
		}
	}
}

// Every operation lists its errors with their codes, and every code of the table
// is listed by some operation, HTTP's own method_not_allowed aside.
func TestEveryCodeIsDocumented(t *testing.T) {
	t.Parallel()
	c, err := loadContract()
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]int{}
	for path, item := range c.doc.Paths.Map() {
		for method, operation := range item.Operations() {
			for status, ref := range operation.Responses.Map() {
				media := ref.Value.Content["application/json"]
				if status < "400" || media == nil || media.Schema.Ref == "#"+schemaOf("OAuthError") ||
					media.Schema.Ref == "#"+schemaOf("GoogleError") { // which has the envelope of other routes in it
					continue
				}
				envelope := media.Schema.Value
				if len(envelope.OneOf) > 0 { // the other form is that of a device's errors
					envelope = envelope.OneOf[0].Value
				}
				if len(envelope.AllOf) < 2 {
					t.Errorf("%s %s %s: lists no codes", method, path, status)
					continue
				}
				properties := envelope.AllOf[1].Value.Properties["error"].Value.Properties
				for _, name := range properties["code"].Value.Enum {
					listed[name.(string)]++
					if code, ok := apierr.ByName(name.(string)); !ok || status != strconv.Itoa(code.Status) {
						t.Errorf("%s %s %s: lists %v", method, path, status, name)
					}
				}
			}
		}
	}
	for _, code := range apierr.All {
		if listed[code.Name] == 0 && code.Name != apierr.MethodNotAllowed.Name {
			t.Errorf("no operation lists %s", code.Name)
		}
	}
}

func TestRoutesAreWrittenLikePatterns(t *testing.T) {
	t.Parallel()
	routes := Routes()
	if !slices.Contains(routes, "POST /v1/ai/{model}") ||
		!slices.Contains(routes, "PATCH /v1/apps/{id}/features/{slug}") {
		t.Errorf("routes are missing from %q", routes)
	}
	mux := http.NewServeMux()
	for _, route := range routes {
		if !regexp.MustCompile(`^[A-Z]+ /`).MatchString(route) {
			t.Errorf("%q is not a pattern", route)
		}
		mux.Handle(route, http.NotFoundHandler()) // panics if two patterns conflict
	}
}
