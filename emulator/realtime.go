package emulator

import (
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"sync"
	"time"
)

// The realtime API: a browser's offer becomes a call, which is listened to by a
// sideband and hung up. A call has one lock; what happens later happens by timers
// that take it.

// switchboard holds the calls.
type switchboard struct {
	mu    sync.Mutex
	calls []*voiceCall // the latest, oldest first
	count int          // of all calls
}

// keptCalls is how many calls that have ended are remembered.
const keptCalls = 500

func (e *Emulator) handleRealtime(mux *http.ServeMux) {
	mux.HandleFunc("POST /v1/realtime/calls", e.createCall)
	mux.HandleFunc("POST /v1/realtime/calls/{id}/hangup", e.hangUp)
	mux.HandleFunc("GET /v1/realtime", e.sideband)
	mux.HandleFunc("GET /emulator/realtime", e.listCalls)
	mux.HandleFunc("DELETE /emulator/realtime", e.forgetCalls)
	mux.HandleFunc("GET /emulator/realtime/{id}", e.getCall)
	mux.HandleFunc("POST /emulator/realtime/{id}", e.steerCall)
}

// Close ends all calls, without a word, as a provider that goes down.
func (e *Emulator) Close() {
	for _, c := range e.switchboard.list() {
		c.mu.Lock()
		c.finish("closed", 1001)
		c.mu.Unlock()
	}
}

// find returns a call.
func (s *switchboard) find(id string) *voiceCall {
	for _, c := range s.list() {
		if c.id == id {
			return c
		}
	}
	return nil
}

// list is a copy of the calls.
func (s *switchboard) list() []*voiceCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*voiceCall(nil), s.calls...)
}

// add keeps a call, and forgets one that has ended if there are many.
func (s *switchboard) add(c *voiceCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	c.number = s.count
	kept, over := s.calls[:0], len(s.calls)+1-keptCalls
	for _, old := range s.calls {
		if over > 0 && old.over() {
			over--
			continue
		}
		kept = append(kept, old)
	}
	clear(s.calls[len(kept):])
	s.calls = append(kept, c)
}

// callNotFound is said of a call that does not exist, is too fresh, or has ended.
func callNotFound() *refusal {
	return &refusal{status: http.StatusNotFound, code: "call_id_not_found", message: "No session found for the provided call_id"}
}

// refuseCall answers with an error of OpenAI.
func (e *Emulator) refuseCall(w http.ResponseWriter, rec *record, f *refusal) {
	e.refuse(w, rec, &chat{emulator: e}, f, &script{})
}

// createCall answers an offer.
func (e *Emulator) createCall(w http.ResponseWriter, r *http.Request) {
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
	if c.script.callScript.hang {
		<-r.Context().Done()
		e.ended(rec, 0, errHung)
		return
	}
	if c.script.status != 0 {
		e.refuseCall(w, rec, &refusal{status: c.script.status, code: c.script.code, message: "The emulator was asked for this error."})
		return
	}
	answer, f := c.open(r.Context(), offer)
	if f != nil {
		e.refuseCall(w, rec, f)
		return
	}
	e.switchboard.add(c)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8") // as it was recorded, against the description
	w.Header().Set("Location", "/v1/realtime/calls/"+c.id)
	w.WriteHeader(http.StatusCreated)
	e.ended(rec, http.StatusCreated, nil)
	_, _ = io.WriteString(w, answer) // a client that has gone misses nothing
}

// readOffer takes the two parts of the form, and checks them as the provider does.
func (e *Emulator) readOffer(w http.ResponseWriter, r *http.Request) (offer string, session []byte, rec *record, f *refusal) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	rec = e.record(r, body)
	if f := openAIKey(r); f != nil {
		return "", nil, rec, f
	}
	if err != nil {
		return "", nil, rec, &refusal{status: http.StatusRequestEntityTooLarge, message: "Request too large"}
	}
	parts, err := formParts(r.Header.Get("Content-Type"), body)
	switch {
	case err != nil:
		return "", nil, rec, badParam("", "", "The emulator wants multipart/form-data with the parts sdp and session: %v", err)
	case parts["sdp"] == nil:
		return "", nil, rec, badParam("missing_required_parameter", "sdp", "Missing required parameter: 'sdp'.")
	case parts["session"] == nil:
		return "", nil, rec, badParam("missing_required_parameter", "session", "Missing required parameter: 'session'.")
	}
	offer = string(parts["sdp"])
	if !strings.HasPrefix(offer, "v=0") || !strings.Contains(offer, "\nm=audio ") {
		return "", nil, rec, badParam("invalid_offer", "sdp", "The SDP offer could not be parsed, or has no audio section.")
	}
	return offer, parts["session"], rec, nil
}

// formParts reads a form whose parts are no files.
func formParts(contentType string, body []byte) (map[string][]byte, error) {
	r := http.Request{Method: http.MethodPost, Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(strings.NewReader(string(body)))}
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

// newCall makes a call that is not there yet.
func (e *Emulator) newCall(r *http.Request, offer string, session []byte) (*voiceCall, *refusal) {
	settings, model, f := readSession(session)
	if f != nil {
		return nil, f
	}
	s := newVoiceScript()
	if _, _, err := s.read(settings.Instructions); err != nil {
		return nil, badParam("", "session.instructions", "%s", err.Error())
	}
	if e.noMedia || strings.Contains(offer, "a=x-emulator:no-media") {
		s.noMedia = true
	}
	now, suffix := time.Now(), "u1_"+random(21)
	c := &voiceCall{
		emulator: e, id: "rtc_" + suffix, key: bearer(r), model: model, script: s, created: now, unwatchedSince: now,
		session:      voiceSession{Object: "realtime.session", ID: "sess_" + suffix, ExpiresAt: now.Add(maxVoiceSession).Unix(), voiceSettings: settings},
		conversation: "conv_" + random(21), sockets: map[*socket]bool{}, seen: map[string]int{},
	}
	return c, nil
}

// hangUp ends a call, or refuses to, if the script says so.
func (e *Emulator) hangUp(w http.ResponseWriter, r *http.Request) {
	rec := e.record(r, nil)
	if f := openAIKey(r); f != nil {
		e.refuseCall(w, rec, f)
		return
	}
	c := e.switchboard.find(r.PathValue("id"))
	if c == nil || c.key != bearer(r) {
		e.refuseCall(w, rec, callNotFound())
		return
	}
	f, lost := c.askedToHangUp()
	switch {
	case f != nil:
		e.refuseCall(w, rec, f)
	case lost:
		e.ended(rec, 0, reset(http.NewResponseController(w)))
	default:
		e.ended(rec, http.StatusOK, nil)
		w.WriteHeader(http.StatusOK)
	}
}

func (c *voiceCall) askedToHangUp() (f *refusal, lost bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hangups++
	n, over := c.hangups-c.script.hangupFails, c.end != ""
	if n <= 0 && !over {
		return &refusal{status: c.script.hangupStatus, message: "The emulator was asked for this error."}, false
	}
	c.finish("hangup", 1000)
	switch {
	case n > 0 && n <= c.script.hangupLost:
		return nil, true
	case over, c.script.hangupGone:
		return callNotFound(), false
	}
	return nil, false
}
