// Package realtime emulates OpenAI's realtime API: a browser's offer becomes a call, which a sideband
// listens to and which is hung up. The comment of package emulator lists its steering.
//
// Each call has one lock. Its later events run in timers that take this lock.
package realtime

import (
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/emulator/exchange"
	"github.com/purserhq/purser/emulator/openai"
	"github.com/purserhq/purser/emulator/script"
)

// callList holds the calls.
type callList struct {
	mu    sync.Mutex
	calls []*call // the latest, oldest first
	count int     // of all calls
}

// maxEndedCalls is the number of ended calls that are kept.
const maxEndedCalls = 500

// An API emulates OpenAI's realtime API.
type API struct {
	server  *exchange.Server
	noMedia bool
	calls   callList
}

// New returns an API. With noMedia, calls have events only.
func New(s *exchange.Server, noMedia bool) *API { return &API{server: s, noMedia: noMedia} }

// Mount adds the API's paths and those of its steering to mux.
func (e *API) Mount(mux *http.ServeMux) {
	mux.HandleFunc("POST /v1/realtime/calls", e.createCall)
	mux.HandleFunc("POST /v1/realtime/calls/{id}/hangup", e.hangUp)
	mux.HandleFunc("GET /v1/realtime", e.serveSideband)
	mux.HandleFunc("GET /emulator/realtime", e.listCalls)
	mux.HandleFunc("DELETE /emulator/realtime", e.forgetCalls)
	mux.HandleFunc("GET /emulator/realtime/{id}", e.getCall)
	mux.HandleFunc("POST /emulator/realtime/{id}", e.postCommand)
}

// Close ends all calls without an event, like a provider that crashes.
func (e *API) Close() {
	for _, c := range e.calls.copyCalls() {
		c.mu.Lock()
		c.finishCall("closed", 1001)
		c.mu.Unlock()
	}
}

// findCall returns the call with an id, or nil.
func (s *callList) findCall(id string) *call {
	for _, c := range s.copyCalls() {
		if c.id == id {
			return c
		}
	}
	return nil
}

// copyCalls returns a copy of the list of calls.
func (s *callList) copyCalls() []*call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*call(nil), s.calls...)
}

// addCall adds a call, and removes an ended one if there are too many.
func (s *callList) addCall(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	c.number = s.count
	kept, over := s.calls[:0], len(s.calls)+1-maxEndedCalls
	for _, old := range s.calls {
		if over > 0 && old.hasEnded() {
			over--
			continue
		}
		kept = append(kept, old)
	}
	clear(s.calls[len(kept):])
	s.calls = append(kept, c)
}

// callNotFound returns the refusal for a call that does not exist, is too new, or has ended.
func callNotFound() *exchange.Refusal {
	return &exchange.Refusal{
		Status:  http.StatusNotFound,
		Code:    "call_id_not_found",
		Message: "No session found for the provided call_id",
	}
}

// refuseCall answers with an error of OpenAI.
func (e *API) refuseCall(w http.ResponseWriter, rec *exchange.Record, f *exchange.Refusal) {
	e.server.RefuseRequest(w, rec, openai.Common{}, f, &script.Script{})
}

// createCall answers an offer.
func (e *API) createCall(w http.ResponseWriter, r *http.Request) {
	offer, session, rec, f := e.readOffer(w, r)
	if f != nil {
		e.refuseCall(w, rec, f)
		return
	}
	c, f := e.newCall(r, offer, session)
	if f != nil {
		e.refuseCall(w, rec, f)
		return
	}
	if c.script.callSteering.hang {
		<-r.Context().Done()
		e.server.FinishRecord(rec, 0, exchange.ErrHung)
		return
	}
	if c.script.status != 0 {
		e.refuseCall(w, rec, &exchange.Refusal{
			Status:  c.script.status,
			Code:    c.script.code,
			Message: "The emulator was asked for this error.",
		})
		return
	}
	answer, f := c.answerOffer(r.Context(), offer)
	if f != nil {
		e.refuseCall(w, rec, f)
		return
	}
	e.calls.addCall(c)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8") // as recorded; the documentation differs
	w.Header().Set("Location", "/v1/realtime/calls/"+c.id)
	w.WriteHeader(http.StatusCreated)
	e.server.FinishRecord(rec, http.StatusCreated, nil)
	_, _ = io.WriteString(w, answer) // the client may have disconnected
}

// readOffer reads the two parts of the form, and checks them as the provider does.
func (e *API) readOffer(w http.ResponseWriter,
	r *http.Request) (offer string, session []byte, rec *exchange.Record, f *exchange.Refusal) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	rec = e.server.RecordRequest(r, body)
	if f := openai.CheckKey(r); f != nil {
		return "", nil, rec, f
	}
	if err != nil {
		return "", nil, rec, &exchange.Refusal{Status: http.StatusRequestEntityTooLarge, Message: "Request too large"}
	}
	parts, err := formParts(r.Header.Get("Content-Type"), body)
	switch {
	case err != nil:
		return "", nil, rec,
			openai.BadParam("", "", "The emulator wants multipart/form-data with the parts sdp and session: %v", err)
	case parts["sdp"] == nil:
		return "", nil, rec, openai.BadParam("missing_required_parameter", "sdp", "Missing required parameter: 'sdp'.")
	case parts["session"] == nil:
		return "", nil, rec,
			openai.BadParam("missing_required_parameter", "session", "Missing required parameter: 'session'.")
	}
	offer = string(parts["sdp"])
	if !strings.HasPrefix(offer, "v=0") || !strings.Contains(offer, "\nm=audio ") {
		return "", nil, rec,
			openai.BadParam("invalid_offer", "sdp", "The SDP offer could not be parsed, or has no audio section.")
	}
	return offer, parts["session"], rec, nil
}

// formParts reads a form whose parts are no files.
func formParts(contentType string, body []byte) (map[string][]byte, error) {
	r := http.Request{
		Method: http.MethodPost,
		Header: http.Header{"Content-Type": {contentType}},
		Body:   io.NopCloser(strings.NewReader(string(body))),
	}
	form, err := r.MultipartReader()
	if err != nil {
		return nil, err
	}
	parts := map[string][]byte{}
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return parts, nil
		}
		if err != nil {
			return nil, err
		}
		if parts[part.FormName()], err = readPart(part); err != nil {
			return nil, err
		}
	}
}

func readPart(part *multipart.Part) ([]byte, error) {
	if part.FileName() != "" {
		return nil, errors.New("a part is a file")
	}
	return io.ReadAll(part)
}

// newCall returns a call that is not in the list yet.
func (e *API) newCall(r *http.Request, offer string, session []byte) (*call, *exchange.Refusal) {
	settings, model, f := readSession(session)
	if f != nil {
		return nil, f
	}
	s := newSteering()
	if _, _, err := s.readText(settings.Instructions); err != nil {
		return nil, openai.BadParam("", "session.instructions", "%s", err.Error())
	}
	if e.noMedia || strings.Contains(offer, "a=x-emulator:no-media") {
		s.noMedia = true
	}
	now, suffix := time.Now(), "u1_"+exchange.RandomID(21)
	c := &call{
		api:            e,
		id:             "rtc_" + suffix,
		key:            exchange.BearerToken(r),
		model:          model,
		script:         s,
		created:        now,
		unwatchedSince: now,
		session: sessionObject{
			Object:          "realtime.session",
			ID:              "sess_" + suffix,
			ExpiresAt:       now.Add(maxSessionTime).Unix(),
			sessionSettings: settings,
		},
		conversation: "conv_" + exchange.RandomID(21),
		sockets:      map[*socket]bool{},
		seen:         map[string]int{},
	}
	return c, nil
}

// hangUp ends a call, or refuses if the script says so.
func (e *API) hangUp(w http.ResponseWriter, r *http.Request) {
	rec := e.server.RecordRequest(r, nil)
	if f := openai.CheckKey(r); f != nil {
		e.refuseCall(w, rec, f)
		return
	}
	c := e.calls.findCall(r.PathValue("id"))
	if c == nil || c.key != exchange.BearerToken(r) {
		e.refuseCall(w, rec, callNotFound())
		return
	}
	f, lost := c.recordHangup()
	switch {
	case f != nil:
		e.refuseCall(w, rec, f)
	case lost:
		e.server.FinishRecord(rec, 0, exchange.ResetConnection(http.NewResponseController(w)))
	default:
		e.server.FinishRecord(rec, http.StatusOK, nil)
		w.WriteHeader(http.StatusOK)
	}
}

func (c *call) recordHangup() (f *exchange.Refusal, lost bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hangups++
	n, over := c.hangups-c.script.hangupFails, c.end != ""
	if n <= 0 && !over {
		return &exchange.Refusal{Status: c.script.hangupStatus, Message: "The emulator was asked for this error."},
			false
	}
	c.finishCall("hangup", 1000)
	switch {
	case n > 0 && n <= c.script.hangupLost:
		return nil, true
	case over, c.script.hangupGone:
		return callNotFound(), false
	}
	return nil, false
}

// raw is a JSON value that is passed on as it is.
type raw = jsontext.Value
