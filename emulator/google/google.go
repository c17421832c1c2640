// Package google emulates Google's Gemini API: generateContent, streamGenerateContent, countTokens and
// batchEmbedContents.
package google

import (
	"encoding/base64"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/emulator/exchange"
	"github.com/purserhq/purser/emulator/script"
)

// An API emulates Google's API.
type API struct{ server *exchange.Server }

// New returns an API.
func New(s *exchange.Server) *API { return &API{s} }

// Mount adds the API's paths to mux.
func (e *API) Mount(mux *http.ServeMux) {
	mux.HandleFunc("POST /v1beta/models/{call}", e.serveCall)
	mux.HandleFunc("GET /v1beta/models", e.listModels)
}

// generate is a request to generateContent or streamGenerateContent (provider notes C).
type generate struct {
	api         *API
	request     generateRequest
	name        string
	stream, sse bool

	model exchange.Model
}

func (e *API) serveCall(w http.ResponseWriter, r *http.Request) {
	call := r.PathValue("call")
	i := strings.LastIndexByte(call, ':')
	d := &generate{api: e, name: call[:max(i, 0)], sse: r.URL.Query().Get("alt") == "sse"}
	switch call[i+1:] {
	case "streamGenerateContent":
		d.stream = true
		e.server.AnswerRequest(w, r, d)
	case "generateContent":
		e.server.AnswerRequest(w, r, d)
	case "batchEmbedContents":
		e.server.AnswerRequest(w, r, &embed{generate: *d})
	case "countTokens":
		e.countTokens(w, r, d)
	default:
		e.server.RefuseRequest(w, e.server.RecordRequest(r, nil), d,
			&exchange.Refusal{Status: 404, Message: "Method not found."},
			&script.Script{})
	}
}

func (*generate) CheckKey(r *http.Request) *exchange.Refusal {
	key := r.Header.Get("X-Goog-Api-Key")
	if key == "" {
		key = r.URL.Query().Get("key")
	}
	switch key {
	case "":
		return &exchange.Refusal{
			Status: 403,
			Message: "Method doesn't allow unregistered callers (callers without established identity). Please use " +
				"API Key or other form of API consumer identity to call this API.",
		}
	case "bad-key":
		return &exchange.Refusal{
			Status:  400,
			Code:    "API_KEY_INVALID",
			Message: "API key not valid. Please pass a valid API key.",
		}
	case "no-quota":
		return &exchange.Refusal{
			Status:  429,
			Code:    "daily",
			Message: "You exceeded your current quota, please check your plan and billing details.",
		}
	case "no-permission":
		return &exchange.Refusal{Status: 403, Message: "The caller does not have permission"}
	}
	return nil
}

func (c *generate) SetHeaders(h http.Header, stream bool) {
	h.Set("Content-Type", "application/json; charset=UTF-8")
	if stream && c.sse {
		h.Set("Content-Type", "text/event-stream")
	}
	h.Set("Server", "scaffolding on HTTPServer2")
	h.Set("X-Content-Type-Options", "nosniff")
}

type apiError struct {
	Error struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Status  string `json:"status"`
		Details []any  `json:"details,omitempty"`
	} `json:"error"`
}

// apiErrorOf returns the error with the details of its kind (provider notes C.9).
func apiErrorOf(f *exchange.Refusal, s *script.Script) (e apiError) {
	const kind = "type.googleapis.com/google.rpc."
	e.Error.Code, e.Error.Message = f.Status, f.Message
	e.Error.Status = map[int]string{
		400: "INVALID_ARGUMENT",
		401: "UNAUTHENTICATED",
		403: "PERMISSION_DENIED",
		404: "NOT_FOUND",
		429: "RESOURCE_EXHAUSTED",
		499: "CANCELLED",
		503: "UNAVAILABLE",
		504: "DEADLINE_EXCEEDED",
	}[f.Status]
	if e.Error.Status == "" {
		e.Error.Status = "INTERNAL"
	}
	switch {
	case f.Code == "API_KEY_INVALID":
		e.Error.Details = append(e.Error.Details, map[string]any{
			"@type":    kind + "ErrorInfo",
			"reason":   f.Code,
			"domain":   "googleapis.com",
			"metadata": map[string]string{"service": "generativelanguage.googleapis.com"},
		})
	case f.Code == "daily" || s != nil && s.Daily:
		e.Error.Details = append(e.Error.Details,
			map[string]any{"@type": kind + "QuotaFailure", "violations": []any{map[string]string{
				"quotaMetric": "generativelanguage.googleapis.com/generate_content_requests",
				"quotaId":     "GenerateRequestsPerDayPerProjectPerModel"}}})
	case f.Code != "":
		e.Error.Status = f.Code
	}
	if s != nil && s.RetryDelay > 0 {
		e.Error.Details = append(e.Error.Details, map[string]any{"@type": kind + "RetryInfo",
			"retryDelay": strconv.FormatFloat(s.RetryDelay.Seconds(), 'f', -1, 64) + "s"})
	}
	return e
}

func (*generate) EncodeError(f *exchange.Refusal, s *script.Script) []byte {
	return exchange.Encode(apiErrorOf(f, s))
}

func (c *generate) EncodeErrorEvent(f *exchange.Refusal, _ *script.Script) []byte {
	return c.frameChunk(exchange.Encode(apiErrorOf(f, nil)), false)
}

type responseObject struct {
	Candidates     []outputCandidate `json:"candidates,omitempty"`
	PromptFeedback any               `json:"promptFeedback,omitzero"`
	UsageMetadata  raw               `json:"usageMetadata,omitzero"`
	ModelVersion   string            `json:"modelVersion"`
	ResponseID     string            `json:"responseId"`
}

type outputCandidate struct {
	Content       outputContent `json:"content"`
	FinishReason  string        `json:"finishReason,omitzero"`
	FinishMessage string        `json:"finishMessage,omitzero"`
	Index         int           `json:"index"`
	SafetyRatings any           `json:"safetyRatings,omitzero"`
}

type outputContent struct {
	Parts []outputPart `json:"parts,omitempty"`
	Role  string       `json:"role,omitzero"`
}

type outputPart struct {
	Text             *string     `json:"text,omitzero"`
	Thought          bool        `json:"thought,omitzero"`
	FunctionCall     *outputCall `json:"functionCall,omitzero"`
	ThoughtSignature string      `json:"thoughtSignature,omitzero"`
}

type outputCall struct {
	ID   string `json:"id,omitzero"`
	Name string `json:"name"`
	Args raw    `json:"args,omitzero"`
}

// outputParts returns the parts of an answer: a thought if the request includes them, texts in pieces of so many words,
// and calls, of which the first has the signature.
func (c *generate) outputParts(a *exchange.Answer, words int) (list []outputPart) {
	g := c.request.GenerationConfig
	shows := a.Thought != "" || g != nil && g.ThinkingConfig != nil && g.ThinkingConfig.IncludeThoughts
	signed := false
	for _, b := range a.Blocks() {
		switch {
		case b.Kind == 'r' && shows:
			thought := b.Text + " **Thinking** about it."
			list = append(list, outputPart{Text: &thought, Thought: true})
		case b.Kind == 't':
			for _, piece := range exchange.SplitWords(b.Text, words) {
				list = append(list, outputPart{Text: &piece})
			}
		case b.Kind == 'c' && a.End == exchange.EndToolCalls: // Google shows no call that is broken or cut short
			part := outputPart{FunctionCall: &outputCall{Name: b.Call.Name}}
			if args := raw(b.Call.Args); b.Call.Args != "{}" && args.IsValid() {
				part.FunctionCall.Args = args
			}
			if c.model.Signatures {
				part.FunctionCall.ID = exchange.RandomID(8)
			}
			if !signed && a.Reasoned {
				part.ThoughtSignature = c.signThought(b.Call.Name)
			}
			signed = true
			list = append(list, part)
		}
	}
	return list
}

func (c *generate) signThought(of string) string {
	return base64.StdEncoding.EncodeToString([]byte(thoughtPrefix + of))
}

// finishCandidate sets the reason why the candidate ended.
func (c *generate) finishCandidate(a *exchange.Answer, s *script.Script, to *outputCandidate) {
	to.FinishReason = map[string]string{
		exchange.EndStop:      "STOP",
		exchange.EndToolCalls: "STOP",
		exchange.EndLength:    "MAX_TOKENS",
		exchange.EndSafety:    "SAFETY",
		exchange.EndMalformed: "MALFORMED_FUNCTION_CALL",
	}[a.End]
	switch a.End {
	case exchange.EndSafety:
		to.SafetyRatings = []any{map[string]any{
			"category":    "HARM_CATEGORY_DANGEROUS_CONTENT",
			"probability": "HIGH",
			"blocked":     true,
		}}
	case exchange.EndMalformed:
		to.FinishMessage = "Malformed function call: print(default_api."
		to.Content = outputContent{}
	}
	if s.Stop != "" {
		to.FinishReason = s.Stop
	}
}

// encodeUsage returns the usage so far; of a blocked prompt only the prompt's.
func (c *generate) encodeUsage(a *exchange.Answer, s *script.Script, output int) raw {
	if s.NoUsage {
		return nil
	} else if s.UsageRaw != "" {
		return raw(s.UsageRaw)
	}
	u := a.Usage
	m := map[string]any{"promptTokenCount": u.Input, "totalTokenCount": u.Input,
		"promptTokensDetails": []any{map[string]any{"modality": "TEXT", "tokenCount": u.Input}}}
	if u.Cached > 0 {
		m["cachedContentTokenCount"] = u.Cached
	}
	if u.Reasoning > 0 {
		m["thoughtsTokenCount"] = u.Reasoning
		m["totalTokenCount"] = u.Input + u.Reasoning
	}
	if output > 0 {
		m["candidatesTokenCount"] = output
		m["totalTokenCount"] = u.Input + u.Reasoning + output
	}
	return exchange.Encode(m)
}

// spokenTokens returns the visible output: Google counts thoughts separately.
func spokenTokens(u exchange.Usage) int { return max(u.Output-u.Reasoning, 0) }

// blockedObject returns the answer to a blocked prompt, which has no candidates.
func (c *generate) blockedObject(a *exchange.Answer, s *script.Script) responseObject {
	a.Usage.Output, a.Usage.Reasoning = 0, 0
	o := responseObject{
		ModelVersion:  c.model.ID,
		ResponseID:    exchange.RandomID(22),
		UsageMetadata: c.encodeUsage(a, s, 0),
	}
	reason := "PROHIBITED_CONTENT"
	if s.Stop != "" {
		reason = s.Stop
	}
	o.PromptFeedback = map[string]string{"blockReason": reason}
	return o
}

func (c *generate) EncodeAnswer(a *exchange.Answer, s *script.Script) []byte {
	if a.End == exchange.EndRefusal {
		return exchange.Encode(c.blockedObject(a, s))
	}
	o := responseObject{
		ModelVersion:  c.model.ID,
		ResponseID:    exchange.RandomID(22),
		UsageMetadata: c.encodeUsage(a, s, spokenTokens(a.Usage)),
	}
	parts := c.outputParts(a, math.MaxInt)
	if n := len(parts) - 1; n >= 0 && parts[n].Text != nil && c.model.Signatures && a.Reasoned && len(a.Calls) == 0 {
		parts[n].ThoughtSignature = c.signThought("text")
	}
	candidate := outputCandidate{Content: outputContent{Role: "model", Parts: parts}}
	c.finishCandidate(a, s, &candidate)
	o.Candidates = []outputCandidate{candidate}
	return exchange.Encode(o)
}

// EncodeEvents returns a stream: each chunk is a whole answer, and the last has an empty
// text and the finish reason (provider notes C.7).
func (c *generate) EncodeEvents(a *exchange.Answer, s *script.Script) (list [][]byte) {
	if a.End == exchange.EndRefusal {
		return c.closeStream(append(list, c.frameChunk(exchange.Encode(c.blockedObject(a, s)), true)))
	}
	id, said := exchange.RandomID(22), 0
	add := func(candidate outputCandidate, output int) {
		candidate.Content.Role = "model"
		o := responseObject{
			Candidates:    []outputCandidate{candidate},
			UsageMetadata: c.encodeUsage(a, s, output),
			ModelVersion:  c.model.ID,
			ResponseID:    id,
		}
		list = append(list, c.frameChunk(exchange.Encode(o), len(list) == 0))
	}
	one := func(part outputPart) outputCandidate {
		return outputCandidate{Content: outputContent{Parts: []outputPart{part}}}
	}
	for _, part := range c.outputParts(a, 6) {
		switch {
		case part.Thought:
			add(one(part), 0)
		case part.Text != nil:
			add(one(part), min(said, spokenTokens(a.Usage)))
			said += 6
		default:
			add(one(part), spokenTokens(a.Usage))
		}
	}
	empty := ""
	last := outputPart{Text: &empty}
	if c.model.Signatures && a.Reasoned && a.End == exchange.EndStop {
		last.ThoughtSignature = c.signThought("text")
	}
	candidate := one(last)
	c.finishCandidate(a, s, &candidate)
	if s.ShortUsage {
		add(candidate, 0)
	} else {
		add(candidate, spokenTokens(a.Usage))
	}
	return c.closeStream(list)
}

// frameChunk returns one chunk: an event with Google's line ends, or an element of the
// array.
func (c *generate) frameChunk(body []byte, first bool) []byte {
	switch {
	case c.sse:
		return []byte("data: " + string(body) + "\r\n\r\n")
	case first:
		return []byte("[" + string(body))
	}
	return []byte("\n,\r\n" + string(body))
}

// closeStream closes the array, unless the stream has events.
func (c *generate) closeStream(list [][]byte) [][]byte {
	if !c.sse {
		list = append(list, []byte("\n]\n"))
	}
	return list
}

// countTokens serves countTokens, of contents or of a whole request.
func (e *API) countTokens(w http.ResponseWriter, r *http.Request, d *generate) {
	body, rec, f := e.server.ReceiveRequest(w, r, d)
	var ask struct {
		Contents               raw `json:"contents"`
		GenerateContentRequest raw `json:"generateContentRequest"`
	}
	if f == nil {
		f = decodeBody(body, &ask)
	}
	var p *exchange.Prompt
	if f == nil {
		request := ask.GenerateContentRequest
		if len(request) == 0 {
			request = exchange.Encode(map[string]any{"contents": ask.Contents})
		}
		p, f = d.ReadPrompt(r, request)
	}
	if f != nil {
		e.server.RefuseRequest(w, rec, d, f, &script.Script{})
		return
	}
	d.SetHeaders(w.Header(), false)
	n := p.Input.ReportedCount(e.server.TokenPPM())
	_, err := w.Write(exchange.Encode(map[string]any{"totalTokens": n, "promptTokensDetails": []any{
		map[string]any{"modality": "TEXT", "tokenCount": n},
	}}))
	e.server.FinishRecord(rec, http.StatusOK, err)
}

// listModels serves GET /v1beta/models.
func (e *API) listModels(w http.ResponseWriter, r *http.Request) {
	rec, d := e.server.RecordRequest(r, nil), &generate{api: e}
	if f := d.CheckKey(r); f != nil {
		e.server.RefuseRequest(w, rec, d, f, &script.Script{})
		return
	}
	list := []any{}
	for _, m := range e.server.ListModels(exchange.Google) {
		list = append(list, map[string]any{
			"name":                       "models/" + m.ID,
			"displayName":                m.ID,
			"inputTokenLimit":            m.Context,
			"outputTokenLimit":           m.MaxOutput,
			"supportedGenerationMethods": []string{"generateContent", "countTokens"},
		})
	}
	d.SetHeaders(w.Header(), false)
	_, err := w.Write(exchange.Encode(map[string]any{"models": list}))
	e.server.FinishRecord(rec, http.StatusOK, err)
}

// raw is a JSON value that is passed on as it is.
type raw = jsontext.Value
