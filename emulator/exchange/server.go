// Package exchange is the common part of the emulated text APIs: it checks a request and reads it into
// a Prompt, composes an Answer, and sends the answer in the API's dialect, with the faults of its
// Script. It records every request for tests.
package exchange

import (
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/emulator/script"
)

// A Server has the models of the emulated providers and a list of the latest requests. It
// is safe for concurrent use.
type Server struct {
	models []Model
	ppm    int

	mu       sync.Mutex
	requests []*Record      // the latest, oldest first
	count    int            // of all requests
	tries    map[string]int // requests of each text that has "fails", by path and text
	cache    promptCache
}

// New returns a server of these models, or of DefaultModels if they are nil. ppm is the
// number of tokens it reports for a million that it counts in texts; 0 means a million.
func New(models []Model, ppm int) *Server {
	if models == nil {
		models = DefaultModels()
	}
	if ppm == 0 {
		ppm = 1_000_000
	}
	return &Server{models: models, ppm: ppm, tries: map[string]int{}, cache: promptCache{map[string]time.Time{}}}
}

// Mount adds the list of requests to mux.
func (e *Server) Mount(mux *http.ServeMux) {
	mux.HandleFunc("GET /emulator/requests", e.listRequests)
	mux.HandleFunc("DELETE /emulator/requests", e.forgetRequests)
}

// TokenPPM returns how many tokens are reported for a million that are counted in texts.
func (e *Server) TokenPPM() int { return e.ppm }

// A Dialect is one request in one of the APIs.
type Dialect interface {
	ErrorWriter
	CheckKey(r *http.Request) *Refusal
	// ReadPrompt checks the body as the provider does.
	ReadPrompt(r *http.Request, body []byte) (*Prompt, *Refusal)
	// EncodeAnswer returns a whole answer, EncodeEvents a streamed one. They change a's usage to what they report.
	EncodeAnswer(a *Answer, s *script.Script) []byte
	EncodeEvents(a *Answer, s *script.Script) [][]byte
	// EncodeErrorEvent returns the event of a failure in mid-stream.
	EncodeErrorEvent(f *Refusal, s *script.Script) []byte
}

// An ErrorWriter encodes errors in a dialect.
type ErrorWriter interface {
	// SetHeaders sets the headers of every answer.
	SetHeaders(h http.Header, stream bool)
	// EncodeError returns the body of an error.
	EncodeError(f *Refusal, s *script.Script) []byte
}

// A Refusal is an error answer. Kind is the type of OpenAI and Anthropic, and the status of
// Google.
type Refusal struct {
	Status                     int
	Kind, Code, Param, Message string
}

// maxBody is more than any provider accepts.
const maxBody = 64 << 20

// Handler answers the requests of one path.
func (e *Server) Handler(begin func() Dialect) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { e.AnswerRequest(w, r, begin()) }
}

// AnswerRequest answers one request in a dialect by its script.
func (e *Server) AnswerRequest(w http.ResponseWriter, r *http.Request, d Dialect) {
	s := script.New()
	body, rec, f := e.ReceiveRequest(w, r, d)
	if f != nil {
		e.RefuseRequest(w, rec, d, f, &s)
		return
	}
	p, f := d.ReadPrompt(r, body)
	if f != nil {
		e.RefuseRequest(w, rec, d, f, &s)
		return
	}
	steps, said, err := script.Extract(p.Text, &s, time.Now())
	if err == nil {
		err = s.ReadWords(r.Header.Get("X-Emulator"), time.Now())
	}
	if err != nil {
		e.RefuseRequest(w, rec, d, &Refusal{Status: http.StatusBadRequest, Message: err.Error()}, &s)
		return
	}
	if s.Fails > 0 && e.countTry(r.URL.Path+"\n"+p.Text) > s.Fails {
		s.RemoveFaults()
	}
	if !WaitFor(r.Context(), s.Delay) || e.sendFault(w, r, rec, d, &s) {
		return
	}
	a := composeAnswer(p, &s, steps, said, e.ppm)
	if read, written := e.usePrompt(p, time.Now()); s.Usage == nil {
		a.Usage.Cached, a.Usage.Written = read, written
	}
	e.sendAnswer(w, r, rec, d, p, a, &s)
}

// ReceiveRequest records a request and checks its key, size and content type.
func (e *Server) ReceiveRequest(w http.ResponseWriter, r *http.Request,
	d Dialect) (body []byte, rec *Record, f *Refusal) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	rec = e.RecordRequest(r, body)
	if f := d.CheckKey(r); f != nil {
		return nil, rec, f
	}
	if err != nil {
		return nil, rec, &Refusal{Status: http.StatusRequestEntityTooLarge, Message: "Request too large"}
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return nil, rec,
			&Refusal{
				Status: http.StatusBadRequest,
				Message: "Unsupported content type: '" + r.Header.Get("Content-Type") +
					"'. This API method only accepts 'application/json' requests.",
			}
	}
	return body, rec, nil
}

// RefuseRequest answers a request with an error.
func (e *Server) RefuseRequest(w http.ResponseWriter, rec *Record, d ErrorWriter, f *Refusal, s *script.Script) {
	d.SetHeaders(w.Header(), false)
	w.WriteHeader(f.Status)
	e.FinishRecord(rec, f.Status, nil) // before the client gets the answer
	if _, err := w.Write(d.EncodeError(f, s)); err != nil {
		e.FinishRecord(rec, f.Status, err)
	}
}

// countTry counts the requests of a text.
func (e *Server) countTry(text string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tries[text]++
	return e.tries[text]
}

// DecodeStrict decodes a request. On an unknown member or a value of the wrong type,
// pointer is its place as a JSON Pointer (RFC 6901).
func DecodeStrict(body []byte, v any) (pointer string, unknown bool, err error) {
	err = json.Unmarshal(body, v, json.RejectUnknownMembers(true))
	pointer, unknown = locateError(err)
	return pointer, unknown, err
}

// CountElements returns how many elements a JSON array has; of another value 0.
func CountElements(v jsontext.Value) int {
	var list []jsontext.Value
	if v.Kind() != '[' || json.Unmarshal(v, &list) != nil {
		return 0
	}
	return len(list)
}

// BearerToken returns the token of the Authorization header.
func BearerToken(r *http.Request) string {
	key, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return strings.TrimSpace(key)
}

// DottedPath writes /messages/0/role as messages[0].role.
func DottedPath(pointer string) (path string) {
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		switch {
		case path == "":
			path = part
		case strings.Trim(part, "0123456789") == "":
			path += "[" + part + "]"
		default:
			path += "." + part
		}
	}
	return path
}
