package exchange

import (
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Bounds of the recorded requests.
const (
	maxRecords      = 500
	maxRecordedBody = 256 << 10
)

// A Record is one request as it came, for tests to look at.
type Record struct {
	Number int            `json:"number"` // from 1
	Time   time.Time      `json:"time"`
	Method string         `json:"method"`
	Path   string         `json:"path"`
	Query  string         `json:"query,omitzero"`
	Header http.Header    `json:"header"` // without keys
	Bytes  int            `json:"bytes"`  // of the body
	Body   jsontext.Value `json:"body"`   // a string if it is not JSON; null if it is very long
	Status int            `json:"status"` // 0 = none, or not yet
	End    string         `json:"end"`    // "", whole, or what ended it
	Usage  *Usage         `json:"usage"`  // as the answer reports it; null if no complete answer does
}

// RecordRequest records a request.
func (e *Server) RecordRequest(r *http.Request, body []byte) *Record {
	header := r.Header.Clone()
	for _, name := range []string{"Authorization", "X-Api-Key", "X-Goog-Api-Key"} {
		header.Del(name)
	}
	kept := jsontext.Value("null")
	if len(body) <= maxRecordedBody {
		if kept = slices.Clone(body); !kept.IsValid() {
			kept = Encode(string(body))
		}
	}
	rec := &Record{
		Time:   time.Now(),
		Method: r.Method,
		Path:   r.URL.Path,
		Query:  r.URL.RawQuery,
		Header: header,
		Bytes:  len(body),
		Body:   kept,
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.count++
	rec.Number = e.count
	e.requests = append(e.requests, rec)
	if len(e.requests) > maxRecords {
		e.requests = slices.Delete(e.requests, 0, 1)
	}
	return rec
}

// FinishRecord records how a request ended.
func (e *Server) FinishRecord(rec *Record, status int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	rec.Status, rec.End = status, "whole"
	if err != nil {
		rec.End = err.Error()
	}
}

// recordUsage records what an answer reports, before it is sent.
func (e *Server) recordUsage(rec *Record, u Usage) {
	e.mu.Lock()
	defer e.mu.Unlock()
	rec.Usage = &u
}

func (e *Server) listRequests(w http.ResponseWriter, _ *http.Request) {
	e.mu.Lock()
	list := make([]Record, len(e.requests))
	for i, rec := range e.requests {
		list[i] = *rec
	}
	e.mu.Unlock()
	SendJSON(w, http.StatusOK, Encode(map[string]any{"data": list}))
}

func (e *Server) forgetRequests(w http.ResponseWriter, _ *http.Request) {
	e.mu.Lock()
	e.requests, e.tries = nil, map[string]int{}
	e.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

// SendJSON sends an answer of the emulator's steering.
func SendJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may have disconnected
}
