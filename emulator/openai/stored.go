package openai

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/purserhq/purser/emulator/exchange"
	"github.com/purserhq/purser/emulator/script"
)

// A storedAnswer answer can be asked for later (provider notes A.9).
type storedAnswer struct {
	id, model string
	metadata  map[string]string
	from      time.Time // since when it is there
	body      []byte
}

// keptAnswers is how many stored answers there are at most.
const keptAnswers = 2000

func (e *API) storeAnswer(s *storedAnswer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stored = append(e.stored, s)
	if len(e.stored) > keptAnswers {
		e.stored = slices.Delete(e.stored, 0, 1)
	}
}

// findStored returns the stored answers that are there and match.
func (e *API) findStored(match func(*storedAnswer) bool) (list []*storedAnswer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.stored {
		if !time.Now().Before(s.from) && match(s) {
			list = append(list, s)
		}
	}
	return list
}

// getStored serves GET of one stored answer.
func (e *API) getStored(w http.ResponseWriter, r *http.Request) {
	rec, d := e.server.RecordRequest(r, nil), &chat{api: e}
	if f := d.CheckKey(r); f != nil {
		e.server.RefuseRequest(w, rec, d, f, &script.Script{})
		return
	}
	id := r.PathValue("id")
	list := e.findStored(func(s *storedAnswer) bool { return s.id == id })
	if len(list) == 0 {
		e.server.RefuseRequest(w, rec, d, &exchange.Refusal{
			Status:  404,
			Kind:    "invalid_request_error",
			Code:    "not_found",
			Message: "Nothing with id '" + id + "' was found.",
		}, &script.Script{})
		return
	}
	d.SetHeaders(w.Header(), false)
	_, err := w.Write(list[0].body)
	e.server.FinishRecord(rec, http.StatusOK, err)
}

// deleteStored serves DELETE of one stored answer.
func (e *API) deleteStored(w http.ResponseWriter, r *http.Request) {
	rec, d, id := e.server.RecordRequest(r, nil), &chat{api: e}, r.PathValue("id")
	if f := d.CheckKey(r); f != nil {
		e.server.RefuseRequest(w, rec, d, f, &script.Script{})
		return
	}
	e.mu.Lock()
	e.stored = slices.DeleteFunc(e.stored, func(s *storedAnswer) bool { return s.id == id })
	e.mu.Unlock()
	d.SetHeaders(w.Header(), false)
	_, err := w.Write(exchange.Encode(map[string]any{"object": "chat.completion.deleted", "id": id, "deleted": true}))
	e.server.FinishRecord(rec, http.StatusOK, err)
}

// listStored serves the list of stored completions: by model and metadata, page
// by page, oldest first unless order is desc.
func (e *API) listStored(w http.ResponseWriter, r *http.Request) {
	rec, d, q := e.server.RecordRequest(r, nil), &chat{api: e}, r.URL.Query()
	if f := d.CheckKey(r); f != nil {
		e.server.RefuseRequest(w, rec, d, f, &script.Script{})
		return
	}
	list := e.findStored(func(s *storedAnswer) bool {
		if model := q.Get("model"); s.metadata == nil && s.id[:4] == "resp" || model != "" && model != s.model {
			return false
		}
		for name := range q {
			if key, ok := metadataKey(name); ok && s.metadata[key] != q.Get(name) {
				return false
			}
		}
		return true
	})
	if q.Get("order") == "desc" {
		slices.Reverse(list)
	}
	if i := slices.IndexFunc(list, func(s *storedAnswer) bool { return s.id == q.Get("after") }); i >= 0 {
		list = list[i+1:]
	}
	limit, err := strconv.Atoi(q.Get("limit"))
	if err != nil {
		limit = 20
	}
	more := len(list) > limit
	list = list[:min(limit, len(list))]
	page := struct {
		Object  string  `json:"object"`
		Data    []raw   `json:"data"`
		FirstID *string `json:"first_id"`
		LastID  *string `json:"last_id"`
		HasMore bool    `json:"has_more"`
	}{Object: "list", Data: []raw{}, HasMore: more}
	for _, s := range list {
		page.Data = append(page.Data, s.body)
		page.LastID = &s.id
	}
	if len(list) > 0 {
		page.FirstID = &list[0].id
	}
	d.SetHeaders(w.Header(), false)
	_, err = w.Write(exchange.Encode(page))
	e.server.FinishRecord(rec, http.StatusOK, err)
}

// metadataKey reads metadata[key].
func metadataKey(name string) (string, bool) {
	const head = "metadata["
	if len(name) > len(head) && name[:len(head)] == head && name[len(name)-1] == ']' {
		return name[len(head) : len(name)-1], true
	}
	return "", false
}
