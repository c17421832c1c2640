package emulator

import (
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
)

// Options say what is emulated.
type Options struct {
	Models   []Model // nil = Models()
	TokenPPM int     // tokens reported for a million that we count of texts; 0 = a million
	NoMedia  bool    // realtime calls have events only, and answer every offer with the same words
}

// An Emulator serves the three APIs on one address: their paths do not collide.
type Emulator struct {
	mux    *http.ServeMux
	models []Model
	ppm    int

	noMedia     bool
	switchboard switchboard

	mu       sync.Mutex
	requests []*record      // the latest, oldest first
	count    int            // of all requests
	tries    map[string]int // of texts that shall fail at first
	stored   []*stored      // the latest, oldest first
}

// New makes an emulator.
func New(o Options) *Emulator {
	e := &Emulator{mux: http.NewServeMux(), models: o.Models, ppm: o.TokenPPM, noMedia: o.NoMedia, tries: map[string]int{}}
	if e.models == nil {
		e.models = Models()
	}
	if e.ppm == 0 {
		e.ppm = 1_000_000
	}
	e.mux.HandleFunc("POST /v1/chat/completions", e.serve(func() dialect { return &chat{emulator: e} }))
	e.mux.HandleFunc("POST /v1/messages", e.serve(func() dialect { return &messages{emulator: e} }))
	e.mux.HandleFunc("POST /v1/messages/count_tokens", e.countClaude)
	e.mux.HandleFunc("POST /v1beta/models/{call}", e.serveGoogle)
	e.mux.HandleFunc("POST /v1/responses", e.serve(func() dialect { return &responses{emulator: e} }))
	e.mux.HandleFunc("GET /v1/responses/{id}", e.getStored)
	e.mux.HandleFunc("GET /v1/chat/completions/{id}", e.getStored)
	e.mux.HandleFunc("DELETE /v1/chat/completions/{id}", e.deleteStored)
	e.mux.HandleFunc("GET /v1/chat/completions", e.listStored)
	e.mux.HandleFunc("GET /v1beta/models", e.listGoogle)
	e.mux.HandleFunc("GET /v1/models", e.listModels)
	e.handleRealtime(e.mux)
	e.mux.HandleFunc("GET /emulator/requests", e.listRequests)
	e.mux.HandleFunc("DELETE /emulator/requests", e.forgetRequests)
	return e
}

// ServeHTTP implements http.Handler.
func (e *Emulator) ServeHTTP(w http.ResponseWriter, r *http.Request) { e.mux.ServeHTTP(w, r) }

// A dialect is one request in one of the APIs.
type dialect interface {
	authorize(r *http.Request) *refusal
	// read checks the body as the provider does.
	read(r *http.Request, body []byte) (*prompt, *refusal)
	// headers are those of every answer.
	headers(h http.Header, stream bool)
	// refuse is the body of an error.
	refuse(f *refusal, s *script) []byte
	// whole and events are the answer, at once and as a stream.
	whole(a *answer, s *script) []byte
	events(a *answer, s *script) [][]byte
	// errorEvent is a failure in mid-stream.
	errorEvent(f *refusal) []byte
}

// A refusal is an answer that is an error, in words that every dialect has: kind
// is OpenAI's and Anthropic's type, and Google's status.
type refusal struct {
	status                     int
	kind, code, param, message string
}

// maxBody is more than any provider takes.
const maxBody = 64 << 20

// serve answers the requests of one path.
func (e *Emulator) serve(begin func() dialect) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { e.answer(w, r, begin()) }
}

func (e *Emulator) answer(w http.ResponseWriter, r *http.Request, d dialect) {
	s := newScript()
	body, rec, f := e.receive(w, r, d)
	if f != nil {
		e.refuse(w, rec, d, f, &s)
		return
	}
	p, f := d.read(r, body)
	if f != nil {
		e.refuse(w, rec, d, f, &s)
		return
	}
	steps, said, err := steer(p.text, &s, time.Now())
	if err == nil {
		err = s.read(r.Header.Get("X-Emulator"), time.Now())
	}
	if err != nil {
		e.refuse(w, rec, d, &refusal{status: http.StatusBadRequest, message: err.Error()}, &s)
		return
	}
	if s.fails > 0 && e.try(r.URL.Path+"\n"+p.text) > s.fails {
		s.spare()
	}
	if !pause(r.Context(), s.delay) || e.fail(w, r, rec, d, &s) {
		return
	}
	a := compose(p, &s, steps, said, e.ppm)
	e.play(w, r, rec, d, p, a, &s)
}

// receive records a request and checks what stands before its meaning.
func (e *Emulator) receive(w http.ResponseWriter, r *http.Request, d dialect) (body []byte, rec *record, f *refusal) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	rec = e.record(r, body)
	if f := d.authorize(r); f != nil {
		return nil, rec, f
	}
	if err != nil {
		return nil, rec, &refusal{status: http.StatusRequestEntityTooLarge, message: "Request too large"}
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return nil, rec, &refusal{status: http.StatusBadRequest, message: "Unsupported content type: '" + r.Header.Get("Content-Type") + "'. This API method only accepts 'application/json' requests."}
	}
	return body, rec, nil
}

// refuse answers with an error.
func (e *Emulator) refuse(w http.ResponseWriter, rec *record, d dialect, f *refusal, s *script) {
	d.headers(w.Header(), false)
	w.WriteHeader(f.status)
	e.ended(rec, f.status, nil) // before the client can ask about it
	if _, err := w.Write(d.refuse(f, s)); err != nil {
		e.ended(rec, f.status, err)
	}
}

// try counts the requests of a text.
func (e *Emulator) try(text string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tries[text]++
	return e.tries[text]
}

// strict decodes a request, and says where it has a member that is not known or
// a value of the wrong type; pointer is where, as in RFC 6901.
func strict(body []byte, v any) (pointer string, unknown bool, err error) {
	err = json.Unmarshal(body, v, json.RejectUnknownMembers(true))
	pointer, unknown = place(err)
	return pointer, unknown, err
}

// bearer is the secret part of an Authorization header.
func bearer(r *http.Request) string {
	key, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return strings.TrimSpace(key)
}
