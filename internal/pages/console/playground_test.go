package console_test

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// postJSON posts JSON as the playground's script does.
func (w *world) postJSON(b *apitest.Browser, path, body string) apitest.Page {
	w.t.Helper()
	req, err := http.NewRequest("POST", w.URL+path, strings.NewReader(body))
	if err == nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return b.Do(req, err)
}

// The page's script gets a stream as it comes, and refusals with their code. Only a test account of the developer pays.
func TestPlaygroundStream(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("developer")
		call := func(account, request string) string {
			return `{"account":"` + account + `","feature":"","request":` + request + `}`
		}
		const request = `{"model":"gpt-5.6-terra","max_tokens":50,"stream":false,` +
			`"messages":[{"role":"user","content":"</script>"}]}`
		page := w.postJSON(b, w.mine("/playground/stream"), call(w.tester.ID, request)).Want(t, 200,
			`"stream":true`, `"stream_options":{"include_usage":true}`, "data: [DONE]")
		if h := page.Header; h.Get("Content-Type") != "text/event-stream" ||
			h.Get("Playground-Call") != "req_"+strings.Repeat("0", 26) {
			t.Errorf("headers %v", h)
		}
		w.postJSON(b, w.mine("/playground/stream"), call(w.tester.ID, `{"max_tokens":51}`)).Want(t, 400,
			`"code":"invalid_request"`, "docs.example.com").Lacks(t, "receipt")
		for _, body := range []string{`{}`, `[]`, `{"account":1,"request":{}}`, "not JSON"} {
			w.postJSON(b, w.mine("/playground/stream"), body).Want(t, 400, `"error"`)
		}
		for _, account := range []string{w.person.ID, w.developer.ID, "", "wac_none"} {
			w.postJSON(b, w.mine("/playground/stream"), call(account, request)).Want(t, 404)
			b.Post(w.mine("/playground/stop"), url.Values{"account": {account}, "call": {"req_1"}}).Want(t, 404)
		}
		var tokens int
		if err := d.QueryRowContext(t.Context(),
			`SELECT COUNT(*) FROM oauth_tokens WHERE revoked_us IS NULL`).Scan(&tokens); err != nil || tokens != 0 {
			t.Errorf("%d tokens are left, %v", tokens, err)
		}
		w.exec(`UPDATE apps SET tier = 'limited-live', provider_mode = 'live' WHERE id = $1`, w.app.ID)
		w.postJSON(b, w.mine("/playground/stream"), call(w.tester.ID, request)).Want(t, 404)
		b.Post(w.mine("/playground/stop"), url.Values{"account": {w.tester.ID}, "call": {"req_1"}}).Want(t, 404)
	})
}

// The code has the whole call, quoted for its language, without the bytes of images.
func TestPlaygroundCode(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("developer")
		page := w.postJSON(b, w.mine("/playground/code"),
			`{"feature":"chat","request":{"model":"gpt-6-luna","max_tokens":200,
			"temperature":0.5,"messages":[{"role":"system","content":"It's \u2028 `+"`short`"+` ${x}"},
			{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}],
			"tools":[{"type":"function","function":{"name":"f","strict":true,"description":null}}]}}`).Want(t,
			200).Lacks(t, "AAAA")
		var list []struct{ Language, Text string }
		if err := json.Unmarshal([]byte(page.Body), &list); err != nil || len(list) != 4 {
			t.Fatal(list, err)
		}
		for i, want := range [][]string{
			{"curl", `"stream": true`, `It'\''s \u2028`, "-H 'X-Svc-Feature: chat'",
				"https://app.example.com/image.png"},
			{"TypeScript", `connection.stream("gpt-6-luna", {`, `"temperature": 0.5`, `}, { feature: "chat" });`},
			{"Python", `"strict": True`, `"description": None`, `"temperature": 0.5`, `feature="chat"`},
			{"Go", "MaxTokens: 200", `Feature: "chat"`, `"tools": json.RawMessage(` + "`",
				`"messages": json.RawMessage("`},
		} {
			if list[i].Language != want[0] {
				t.Errorf("%s in place %d", list[i].Language, i)
			}
			if _, err := parser.ParseFile(token.NewFileSet(), "main.go", list[i].Text, 0); list[i].Language == "Go" &&
				err != nil {
				t.Errorf("the code is not Go: %v\n%s", err, list[i].Text)
			}
			for _, part := range want[1:] {
				if !strings.Contains(list[i].Text, part) {
					t.Errorf("%s lacks %s:\n%s", want[0], part, list[i].Text)
				}
			}
		}
	})
}
