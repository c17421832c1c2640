package server_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/apptest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// A canary goes through the server in every way a key can: it is found in no log line, no answer and no file of the
// database, and it outlives a restart.
func TestProviderKeysAreNeverShown(t *testing.T) {
	t.Parallel()
	const canary = "sk-canary-0123456789-abcdefghijkl-"
	dbtest.InTurn(t, func(t *testing.T, e db.Engine) {
		tested := make(chan string, 1)
		fake := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			key, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			tested <- r.Method + " " + r.URL.String() + " " + key
			status := http.StatusOK
			if _, wanted, ok := strings.Cut(key, "status-"); ok {
				status = map[string]int{"401": 401, "500": 500}[wanted]
			}
			http.Error(w, `{"error":{"message":"your key is `+key+`, or `+key[:len(key)-1]+`"}}`, status)
		}))
		t.Cleanup(fake.Close)
		url := apptest.URL(t, e)
		reached := func(o *apptest.Options) {
			o.Environ = []string{"PURSER_PROVIDERS_OPENAI_BASE_URL=" + fake.URL + "/v1"}
			o.Level = slog.LevelDebug
		}
		p := apptest.Start(t, url, reached)
		c := apitest.Client{Base: p.BaseURL, User: p.App.ClientID, Secret: p.App.ClientSecret}
		var answers strings.Builder
		for _, k := range []struct {
			key    string
			status int
		}{{canary + "status-401", 400}, {canary + "status-500", 502}, {canary + "WxYz", 200}} {
			got := c.Do(t, "PUT", "/v1/provider-keys/openai", `{"key":"`+k.key+`"}`)
			if at := <-tested; got.Status != k.status || at != "GET /v1/models "+k.key {
				t.Errorf("%s: got %v, tested by %s", k.key, got, at)
			}
			answers.WriteString(got.Body)
		}
		answers.WriteString(c.Do(t, "PUT", "/v1/provider-keys/openai", `{"key":["`+canary+`"]}`).Body)
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
		q := apptest.Start(t, url)
		c.Base = q.BaseURL
		list := c.Do(t, "GET", "/v1/provider-keys", "")
		if !strings.Contains(list.Body, `"last4":"WxYz"`) {
			t.Errorf("after a restart: %v", list)
		}
		for where, text := range map[string]string{
			"the log": p.Log(),
			"answers": answers.String() + list.Body,
			"files":   files(t, e, url),
		} {
			if strings.Contains(text, canary) || strings.Contains(text, "0123456789-abc") {
				t.Errorf("the key stands in %s:\n%.2000s", where, text)
			}
		}
		if !strings.Contains(p.Log(), "PUT /v1/provider-keys/{provider}") {
			t.Errorf("the log has no line of these requests:\n%s", p.Log())
		}
	})
}

// files is everything in the folder of a SQLite database.
func files(t *testing.T, e db.Engine, url string) string {
	t.Helper()
	if e != db.SQLite {
		return ""
	}
	var all strings.Builder
	names, err := filepath.Glob(filepath.Join(filepath.Dir(strings.TrimPrefix(url, "sqlite:")), "*"))
	if err != nil || len(names) < 2 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// The emulator asks for each provider's own headers, and answers as each does.
func TestProviderKeysAreTestedAtEachProvider(t *testing.T) {
	t.Parallel()
	p := apptest.Start(t, apptest.URL(t, db.SQLite), apptest.Emulated)
	c := apitest.Client{Base: p.BaseURL, User: p.App.ClientID, Secret: p.App.ClientSecret}
	for _, provider := range []string{"openai", "anthropic", "google"} {
		if got := c.Do(t, "PUT", "/v1/provider-keys/"+provider,
			`{"key":"a-key-of-the-developers-own"}`); got.Status != http.StatusOK {
			t.Errorf("%s: got %v", provider, got)
		}
		if got := c.Do(t, "PUT", "/v1/provider-keys/"+provider,
			`{"key":"bad-key"}`); got.Status != http.StatusBadRequest ||
			!strings.HasPrefix(got.Message, "key: the provider refuses it") {
			t.Errorf("%s: got %v for a wrong key", provider, got)
		}
	}
}
