package openai

import (
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// hashedID is what the provider gets for req_1.
const hashedID = "dfe7be6cee3b99ca63628de710b914dd"

// TestStored: what a call used is found by the answer's id, or by our own.
func TestStored(t *testing.T) {
	t.Parallel()
	object := `{"id":"chatcmpl-1","object":"chat.completion","usage":` + sampleUsage + `}`
	for what, c := range map[string]struct {
		id, ask string // how it is asked
		status  int
		text    string
		found   bool
		fails   bool
	}{
		"by its id": {"chatcmpl-1", "GET /v1/chat/completions/chatcmpl-1", 200, object, true, false},
		"by our id": {"", "GET /v1/chat/completions?limit=1&metadata%5Brequest_id%5D=" + hashedID, 200,
			`{"data":[` + object + `]}`, true, false},
		"not there": {"chatcmpl-1", "GET /v1/chat/completions/chatcmpl-1", 404,
			`{"error":{"message":"no"}}`, false, false},
		"not in the list": {"", "GET /v1/chat/completions?limit=1&metadata%5Brequest_id%5D=" + hashedID, 200,
			`{"data":[]}`, false, false},
		"without usage": {"chatcmpl-1", "GET /v1/chat/completions/chatcmpl-1", 200, `{"id":"chatcmpl-1"}`,
			false, false},
		"with usage of another": {"chatcmpl-1", "GET /v1/chat/completions/chatcmpl-1", 200,
			`{"usage":{"prompt_tokens":-1,"completion_tokens":1}}`, false, false},
		"the provider is broken":  {"chatcmpl-1", "GET /v1/chat/completions/chatcmpl-1", 500, ``, false, true},
		"the provider is strange": {"chatcmpl-1", "GET /v1/chat/completions/chatcmpl-1", 200, `<html>`, false, true},
	} {
		c := c
		client := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if got := r.Method + " " + r.URL.RequestURI(); got != c.ask ||
				r.Header.Get("Authorization") != "Bearer "+sampleKey {
				t.Errorf("%s: asked %s", what, got)
			}
			answers(c.status, c.text)(w, r)
		})
		usage, found, err := client.GetStoredUsage(t.Context(), c.id, "req_1")
		if found != c.found || (err != nil) != c.fails || found && !reflect.DeepEqual(*usage, wantUsage) {
			t.Errorf("%s: %+v %v %v", what, usage, found, err)
		}
	}
}

// TestStoreIsAsked: only where the operator said so, and the stream knows its id.
func TestStoreIsAsked(t *testing.T) {
	t.Parallel()
	for _, store := range []bool{false, true} {
		var body string
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			text, _ := io.ReadAll(r.Body)
			body = string(text)
			answers(200, sample)(w, r)
		})
		c.storesCalls = store
		s, err := c.Stream(t.Context(), request(true))
		if err != nil {
			t.Fatal(err)
		}
		for ; err == nil; _, err = s.Next() {
		}
		if got := strings.Contains(body, `,"store":true,"metadata":{"request_id":"`+hashedID+`"}}`); got != store ||
			strings.Contains(body, `"store"`) != store {
			t.Errorf("store %v sends %s", store, body)
		}
		if id := s.(interface{ ID() string }).ID(); id != "chatcmpl-1" || !errors.Is(err, io.EOF) {
			t.Errorf("id %q, end %v", id, err)
		}
		_ = s.Close()
	}
	if id := readCompletionID([]byte(`{"choices":[]}`)); id != "" {
		t.Errorf("id %q", id)
	}
}
