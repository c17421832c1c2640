package emulator

import (
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
)

// generate is a request to generateContent or streamGenerateContent (wire C).
type generate struct {
	emulator    *Emulator
	request     googleRequest
	name        string
	stream, sse bool

	model Model
}

func (e *Emulator) serveGoogle(w http.ResponseWriter, r *http.Request) {
	call := r.PathValue("call")
	i := strings.LastIndexByte(call, ':')
	d := &generate{emulator: e, name: call[:max(i, 0)], sse: r.URL.Query().Get("alt") == "sse"}
	switch call[i+1:] {
	case "streamGenerateContent":
		d.stream = true
		e.answer(w, r, d)
	case "generateContent":
		e.answer(w, r, d)
	case "countTokens":
		e.countGoogle(w, r, d)
	default:
		e.refuse(w, e.record(r, nil), d, &refusal{status: 404, message: "Method not found."}, &script{})
	}
}

func (*generate) authorize(r *http.Request) *refusal {
	key := r.Header.Get("X-Goog-Api-Key")
	if key == "" {
		key = r.URL.Query().Get("key")
	}
	switch key {
	case "":
		return &refusal{status: 403, message: "Method doesn't allow unregistered callers (callers without established identity). Please use API Key or other form of API consumer identity to call this API."}
	case "bad-key":
		return &refusal{status: 400, code: "API_KEY_INVALID", message: "API key not valid. Please pass a valid API key."}
	case "no-quota":
		return &refusal{status: 429, code: "daily", message: "You exceeded your current quota, please check your plan and billing details."}
	case "no-permission":
		return &refusal{status: 403, message: "The caller does not have permission"}
	}
	return nil
}

func (c *generate) headers(h http.Header, stream bool) {
	h.Set("Content-Type", "application/json; charset=UTF-8")
	if stream && c.sse {
		h.Set("Content-Type", "text/event-stream")
	}
	h.Set("Server", "scaffolding on HTTPServer2")
	h.Set("X-Content-Type-Options", "nosniff")
}

type googleError struct {
	Error struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Status  string `json:"status"`
		Details []any  `json:"details,omitempty"`
	} `json:"error"`
}

// google is the error with the details that its kind has (wire C.9).
func (f *refusal) google(s *script) (e googleError) {
	const kind = "type.googleapis.com/google.rpc."
	e.Error.Code, e.Error.Message = f.status, f.message
	e.Error.Status = map[int]string{400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
		429: "RESOURCE_EXHAUSTED", 499: "CANCELLED", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}[f.status]
	if e.Error.Status == "" {
		e.Error.Status = "INTERNAL"
	}
	switch {
	case f.code == "API_KEY_INVALID":
		e.Error.Details = append(e.Error.Details, map[string]any{"@type": kind + "ErrorInfo", "reason": f.code, "domain": "googleapis.com",
			"metadata": map[string]string{"service": "generativelanguage.googleapis.com"}})
	case f.code == "daily" || s != nil && s.daily:
		e.Error.Details = append(e.Error.Details, map[string]any{"@type": kind + "QuotaFailure", "violations": []any{map[string]string{
			"quotaMetric": "generativelanguage.googleapis.com/generate_content_requests", "quotaId": "GenerateRequestsPerDayPerProjectPerModel"}}})
	case f.code != "":
		e.Error.Status = f.code
	}
	if s != nil && s.retryDelay > 0 {
		e.Error.Details = append(e.Error.Details, map[string]any{"@type": kind + "RetryInfo",
			"retryDelay": strconv.FormatFloat(s.retryDelay.Seconds(), 'f', -1, 64) + "s"})
	}
	return e
}

func (*generate) refuse(f *refusal, s *script) []byte { return encode(f.google(s)) }

func (c *generate) errorEvent(f *refusal) []byte {
	return c.frame(encode(f.google(nil)), false)
}

type googleObject struct {
	Candidates     []googleCandidate `json:"candidates,omitempty"`
	PromptFeedback any               `json:"promptFeedback,omitzero"`
	UsageMetadata  raw               `json:"usageMetadata,omitzero"`
	ModelVersion   string            `json:"modelVersion"`
	ResponseID     string            `json:"responseId"`
}

type googleCandidate struct {
	Content       googleSaid `json:"content"`
	FinishReason  string     `json:"finishReason,omitzero"`
	FinishMessage string     `json:"finishMessage,omitzero"`
	Index         int        `json:"index"`
	SafetyRatings any        `json:"safetyRatings,omitzero"`
}

type googleSaid struct {
	Parts []googleSaidPart `json:"parts,omitempty"`
	Role  string           `json:"role,omitzero"`
}

type googleSaidPart struct {
	Text             *string         `json:"text,omitzero"`
	Thought          bool            `json:"thought,omitzero"`
	FunctionCall     *googleSaidCall `json:"functionCall,omitzero"`
	ThoughtSignature string          `json:"thoughtSignature,omitzero"`
}

type googleSaidCall struct {
	ID   string `json:"id,omitzero"`
	Name string `json:"name"`
	Args raw    `json:"args,omitzero"`
}

// thoughts are the part that tells them, if they are to be told.
func (c *generate) thoughts(a *answer) (list []googleSaidPart) {
	g := c.request.GenerationConfig
	if a.thoughts && (a.thought != "" || g != nil && g.ThinkingConfig != nil && g.ThinkingConfig.IncludeThoughts) {
		thought := a.thought + " **Thinking** about it."
		list = append(list, googleSaidPart{Text: &thought, Thought: true})
	}
	return list
}

// calls are the parts of calls; the first has the signature.
func (c *generate) calls(a *answer) (list []googleSaidPart) {
	if a.end != calling {
		return nil // Google shows no call that is broken or cut short
	}
	for i, call := range a.calls {
		part := googleSaidPart{FunctionCall: &googleSaidCall{Name: call.name}}
		if args := raw(call.args); call.args != "{}" && args.IsValid() {
			part.FunctionCall.Args = args
		}
		if c.model.Signatures {
			part.FunctionCall.ID = random(8)
		}
		if i == 0 && a.thoughts {
			part.ThoughtSignature = c.signature(call.name)
		}
		list = append(list, part)
	}
	return list
}

func (c *generate) signature(of string) string {
	return base64.StdEncoding.EncodeToString([]byte(signed + of))
}

// finish says how the candidate ended.
func (c *generate) finish(a *answer, s *script, to *googleCandidate) {
	to.FinishReason = map[string]string{ended: "STOP", calling: "STOP", cutShort: "MAX_TOKENS", filtered: "SAFETY", malformed: "MALFORMED_FUNCTION_CALL"}[a.end]
	switch a.end {
	case filtered:
		to.SafetyRatings = []any{map[string]any{"category": "HARM_CATEGORY_DANGEROUS_CONTENT", "probability": "HIGH", "blocked": true}}
	case malformed:
		to.FinishMessage = "Malformed function call: print(default_api."
		to.Content = googleSaid{}
	}
	if s.stop != "" {
		to.FinishReason = s.stop
	}
}

// usage is what was used so far; of a blocked prompt only the prompt.
func (c *generate) usage(a *answer, s *script, output int) raw {
	if s.noUsage {
		return nil
	} else if s.usageRaw != "" {
		return raw(s.usageRaw)
	}
	u := a.usage
	m := map[string]any{"promptTokenCount": u.input, "totalTokenCount": u.input,
		"promptTokensDetails": []any{map[string]any{"modality": "TEXT", "tokenCount": u.input}}}
	if u.cached > 0 {
		m["cachedContentTokenCount"] = u.cached
	}
	if a.end != refused && u.reasoning > 0 {
		m["thoughtsTokenCount"] = u.reasoning
		m["totalTokenCount"] = u.input + u.reasoning
	}
	if a.end != refused && output > 0 {
		m["candidatesTokenCount"] = output
		m["totalTokenCount"] = u.input + u.reasoning + output
	}
	return encode(m)
}

// spoken is the visible output: Google counts thoughts apart.
func (u usage) spoken() int { return max(u.output-u.reasoning, 0) }

// blocked is the answer to a prompt that is refused: no candidates.
func (c *generate) blocked(a *answer, s *script) googleObject {
	o := googleObject{ModelVersion: c.model.ID, ResponseID: random(22), UsageMetadata: c.usage(a, s, 0)}
	reason := "PROHIBITED_CONTENT"
	if s.stop != "" {
		reason = s.stop
	}
	o.PromptFeedback = map[string]string{"blockReason": reason}
	return o
}

func (c *generate) whole(a *answer, s *script) []byte {
	if a.end == refused {
		return encode(c.blocked(a, s))
	}
	o := googleObject{ModelVersion: c.model.ID, ResponseID: random(22), UsageMetadata: c.usage(a, s, a.usage.spoken())}
	candidate := googleCandidate{Content: googleSaid{Role: "model", Parts: c.thoughts(a)}}
	if a.text != "" {
		part := googleSaidPart{Text: &a.text}
		if c.model.Signatures && a.thoughts && len(a.calls) == 0 {
			part.ThoughtSignature = c.signature("text")
		}
		candidate.Content.Parts = append(candidate.Content.Parts, part)
	}
	candidate.Content.Parts = append(candidate.Content.Parts, c.calls(a)...)
	c.finish(a, s, &candidate)
	o.Candidates = []googleCandidate{candidate}
	return encode(o)
}

// events are a stream: each chunk is a whole answer of its own, and the last has
// an empty text and the reason of the end (wire C.7).
func (c *generate) events(a *answer, s *script) (list [][]byte) {
	if a.end == refused {
		return c.finishStream(append(list, c.frame(encode(c.blocked(a, s)), true)))
	}
	id, said := random(22), 0
	add := func(candidate googleCandidate, output int) {
		candidate.Content.Role = "model"
		o := googleObject{Candidates: []googleCandidate{candidate}, UsageMetadata: c.usage(a, s, output), ModelVersion: c.model.ID, ResponseID: id}
		list = append(list, c.frame(encode(o), len(list) == 0))
	}
	one := func(part googleSaidPart) googleCandidate {
		return googleCandidate{Content: googleSaid{Parts: []googleSaidPart{part}}}
	}
	for _, part := range c.thoughts(a) {
		add(one(part), 0)
	}
	for _, piece := range pieces(a.text, 6) {
		add(one(googleSaidPart{Text: &piece}), min(said, a.usage.spoken()))
		said += 6
	}
	for _, part := range c.calls(a) {
		add(one(part), a.usage.spoken())
	}
	empty := ""
	last := googleSaidPart{Text: &empty}
	if c.model.Signatures && a.thoughts && a.end == ended {
		last.ThoughtSignature = c.signature("text")
	}
	candidate := one(last)
	c.finish(a, s, &candidate)
	add(candidate, a.usage.spoken())
	return c.finishStream(list)
}

// frame is one chunk: an event with the line ends that Google has, or an element
// of the array.
func (c *generate) frame(body []byte, first bool) []byte {
	switch {
	case c.sse:
		return []byte("data: " + string(body) + "\r\n\r\n")
	case first:
		return []byte("[" + string(body))
	}
	return []byte("\n,\r\n" + string(body))
}

// finishStream closes the array, if it is one.
func (c *generate) finishStream(list [][]byte) [][]byte {
	if !c.sse {
		list = append(list, []byte("\n]\n"))
	}
	return list
}

// countGoogle serves countTokens, of contents or of a whole request.
func (e *Emulator) countGoogle(w http.ResponseWriter, r *http.Request, d *generate) {
	body, rec, f := e.receive(w, r, d)
	var ask struct {
		Contents               raw `json:"contents"`
		GenerateContentRequest raw `json:"generateContentRequest"`
	}
	if f == nil {
		f = googleBody(body, &ask)
	}
	var p *prompt
	if f == nil {
		request := ask.GenerateContentRequest
		if len(request) == 0 {
			request = encode(map[string]any{"contents": ask.Contents})
		}
		p, f = d.read(r, request)
	}
	if f != nil {
		e.refuse(w, rec, d, f, &script{})
		return
	}
	d.headers(w.Header(), false)
	n := p.input.reported(e.ppm)
	_, err := w.Write(encode(map[string]any{"totalTokens": n, "promptTokensDetails": []any{map[string]any{"modality": "TEXT", "tokenCount": n}}}))
	e.ended(rec, http.StatusOK, err)
}

// listGoogle serves GET /v1beta/models.
func (e *Emulator) listGoogle(w http.ResponseWriter, r *http.Request) {
	rec, d := e.record(r, nil), &generate{emulator: e}
	if f := d.authorize(r); f != nil {
		e.refuse(w, rec, d, f, &script{})
		return
	}
	list := []any{}
	for _, m := range e.modelsOf(google) {
		list = append(list, map[string]any{"name": "models/" + m.ID, "displayName": m.ID, "inputTokenLimit": m.Context, "outputTokenLimit": m.MaxOutput,
			"supportedGenerationMethods": []string{"generateContent", "countTokens"}})
	}
	d.headers(w.Header(), false)
	_, err := w.Write(encode(map[string]any{"models": list}))
	e.ended(rec, http.StatusOK, err)
}
