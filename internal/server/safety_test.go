package server

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/emulator"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/models/provider/openai"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// seenRequest is a request as a provider gets it.
type seenRequest struct {
	path, header, body string
}

// recorder notes every request before an emulator answers it.
type recorder struct {
	http.Handler

	mu   sync.Mutex
	seen []seenRequest
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	r.mu.Lock()
	r.seen = append(r.seen, seenRequest{req.URL.RequestURI(), fmt.Sprint(req.Header), string(body)})
	r.mu.Unlock()
	r.Handler.ServeHTTP(w, req)
}

// ourIDs matches every id of ours, an email address, and what begins as our keys do.
var ourIDs = regexp.MustCompile(
	`(wac|conn|app|req|led|cid|vs|node|feat|rtt|at|rt|cs)_[0-9a-z]{16,}|[a-z0-9._-]+@[a-z0-9-]+\.[a-z]+`)

// TestProvidersGetTheSafetyIdentifier is a canary: calls of all kinds reach the emulated providers with the safety
// identifier of their account, and with no id, address or key of ours in any header or body.
func TestProvidersGetTheSafetyIdentifier(t *testing.T) {
	t.Parallel()
	seen := &recorder{Handler: emulator.New(emulator.Options{})}
	n, _ := emulating(t, db.SQLite, time.Minute, time.Minute, seen)
	defer n.stop()
	srv := httptest.NewServer(seen) // a second account at OpenAI, which stores calls
	t.Cleanup(srv.Close)

	var accountID string
	if err := n.DB.QueryRowContext(t.Context(), `SELECT account_id FROM connections WHERE id = $1`,
		n.seeded.Connection.ID).Scan(&accountID); err != nil {
		t.Fatal(err)
	}
	want := n.identifiers.Identify(accountID)
	if want == n.identifiers.Identify(accountID+"x") || strings.Contains(want, accountID) {
		t.Errorf("identifier %q", want)
	}

	const text = `"messages":[{"role":"user","content":"hi"}]`
	const tools = `"messages":[{"role":"user","content":"!call f\nGo on."}],"tools":[{"type":"function",` +
		`"function":{"name":"f"}}]`
	const image = `"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":` +
		`"data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk` +
		`+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="}}]}]`
	const format = `"messages":[{"role":"user","content":"hi"}],"response_format":{"type":"json_schema",` +
		`"json_schema":{"name":"x","schema":{"type":"object","properties":{},` +
		`"required":[],"additionalProperties":false}}}`
	call := func(path, body string) {
		t.Helper()
		if status, answer := n.post(path, id.NewUUID(), body); status != http.StatusOK {
			t.Errorf("%s %s: %d %s", path, body, status, answer)
		}
	}
	for _, model := range []string{"gpt-6.2-sol", "gpt-6-luna", "claude-haiku-5-5", "gemini-3.8-flash"} {
		for _, kind := range []string{text, tools, image, format} {
			for _, stream := range []string{"", `,"stream":true`} {
				call("/v1/ai/"+model, `{"max_tokens":200,"prompt_cache_key":"`+accountID+`",`+kind+stream+`}`)
			}
		}
		call("/v1/chat/completions", `{"max_tokens":200,"model":"`+model+`",`+text+`}`)
		call("/openai/v1/responses", `{"max_output_tokens":200,"model":"`+model+`","input":"hi","reasoning":{}}`)
	}
	call("/openai/v1/embeddings", `{"model":"text-embedding-3-small","input":"hi"}`)
	n.inference.Providers["openai"] = openai.New(srv.URL+"/v1", "k", openai.Store())
	call("/v1/ai/gpt-6-luna", `{"max_tokens":200,`+text+`,"stream":true}`)

	seen.mu.Lock()
	defer seen.mu.Unlock()
	if len(seen.seen) < 40 {
		t.Errorf("%d requests", len(seen.seen))
	}
	secrets := []string{
		n.seeded.Connection.AccessToken, n.seeded.Connection.ID, accountID, n.seeded.App.ClientID, n.seeded.App.ID,
	}
	for _, r := range seen.seen {
		var place string
		switch {
		case strings.HasPrefix(r.path, "/v1beta/"): // Google has no place for it
		case strings.HasPrefix(r.path, "/v1/messages"):
			place = `"metadata":{"user_id":"` + want + `"}`
		case strings.HasPrefix(r.path, "/v1/embeddings"):
			place = `"user":"` + want + `"`
		default:
			place = `"safety_identifier":"` + want + `"`
		}
		if !strings.Contains(r.body, place) {
			t.Errorf("%s has no identifier: %s", r.path, r.body)
		}
		whole := r.path + "\n" + r.header + "\n" + r.body
		if found := ourIDs.FindString(whole); found != "" {
			t.Errorf("%s has %s: %s", r.path, found, whole)
		}
		for _, s := range secrets {
			if s == "" || strings.Contains(whole, s) {
				t.Errorf("%s has %q: %s", r.path, s, whole)
			}
		}
	}
}

// TestSafetyIdentifierFindsItsAccount: the operator finds the account, and pauses its connections.
func TestSafetyIdentifierFindsItsAccount(t *testing.T) {
	t.Parallel()
	dbtest.InTurn(t, func(t *testing.T, e db.Engine) {
		n, _ := emulating(t, e, time.Minute, time.Minute, emulator.New(emulator.Options{}))
		defer n.stop()
		var accountID string
		if err := n.DB.QueryRowContext(t.Context(), `SELECT account_id FROM connections WHERE id = $1`,
			n.seeded.Connection.ID).Scan(&accountID); err != nil {
			t.Fatal(err)
		}
		identifier := n.identifiers.Identify(accountID)
		if a, err := n.operators.FindAccount(t.Context(), identifier); err != nil || a.ID != accountID {
			t.Errorf("%v: %+v", err, a)
		}
		foreign := n.identifiers.Identify("wac_x")
		for _, other := range []string{"", accountID, strings.ToUpper(identifier), foreign} {
			if a, err := n.operators.FindAccount(t.Context(), other); err == nil {
				t.Errorf("%q finds %+v", other, a)
			}
		}
	})
}
