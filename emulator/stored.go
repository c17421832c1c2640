package emulator

import (
	"net/http"
	"slices"
	"strconv"
	"time"
)

// A stored answer can be asked for later (wire A.9).
type stored struct {
	id, model string
	metadata  map[string]string
	from      time.Time // since when it is there
	body      []byte
}

// keptAnswers is how many stored answers there are at most.
const keptAnswers = 2000

func (e *Emulator) keep(s *stored) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stored = append(e.stored, s)
	if len(e.stored) > keptAnswers {
		e.stored = slices.Delete(e.stored, 0, 1)
	}
}

// find returns the stored answers that are there and match.
func (e *Emulator) find(match func(*stored) bool) (list []*stored) {
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
func (e *Emulator) getStored(w http.ResponseWriter, r *http.Request) {
	rec, d := e.record(r, nil), &chat{emulator: e}
	if f := d.authorize(r); f != nil {
		e.refuse(w, rec, d, f, &script{})
		return
	}
	id := r.PathValue("id")
	list := e.find(func(s *stored) bool { return s.id == id })
	if len(list) == 0 {
		e.refuse(w, rec, d, &refusal{status: 404, kind: "invalid_request_error", code: "not_found", message: "Nothing with id '" + id + "' was found."}, &script{})
		return
	}
	d.headers(w.Header(), false)
	_, err := w.Write(list[0].body)
	e.ended(rec, http.StatusOK, err)
}

// deleteStored serves DELETE of one stored answer.
func (e *Emulator) deleteStored(w http.ResponseWriter, r *http.Request) {
	rec, d, id := e.record(r, nil), &chat{emulator: e}, r.PathValue("id")
	if f := d.authorize(r); f != nil {
		e.refuse(w, rec, d, f, &script{})
		return
	}
	e.mu.Lock()
	e.stored = slices.DeleteFunc(e.stored, func(s *stored) bool { return s.id == id })
	e.mu.Unlock()
	d.headers(w.Header(), false)
	_, err := w.Write(encode(map[string]any{"object": "chat.completion.deleted", "id": id, "deleted": true}))
	e.ended(rec, http.StatusOK, err)
}

// listStored serves the list of stored completions: by model and metadata, page
// by page, oldest first unless order is desc.
func (e *Emulator) listStored(w http.ResponseWriter, r *http.Request) {
	rec, d, q := e.record(r, nil), &chat{emulator: e}, r.URL.Query()
	if f := d.authorize(r); f != nil {
		e.refuse(w, rec, d, f, &script{})
		return
	}
	list := e.find(func(s *stored) bool {
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
	if i := slices.IndexFunc(list, func(s *stored) bool { return s.id == q.Get("after") }); i >= 0 {
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
	d.headers(w.Header(), false)
	_, err = w.Write(encode(page))
	e.ended(rec, http.StatusOK, err)
}

// metadataKey reads metadata[key].
func metadataKey(name string) (string, bool) {
	const head = "metadata["
	if len(name) > len(head) && name[:len(head)] == head && name[len(name)-1] == ']' {
		return name[len(head) : len(name)-1], true
	}
	return "", false
}
