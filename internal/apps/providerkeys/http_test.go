package providerkeys_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/providerkeys"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// bundle is a server with two apps of one developer and one of another.
type bundle struct {
	first, second, foreign apitest.Client
	log                    *lockedLog
}

type lockedLog struct {
	mu sync.Mutex
	strings.Builder
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Builder.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Builder.String()
}

func newBundle(t *testing.T, d *db.DB) *bundle {
	t.Helper()
	registry := apps.NewStore(d, clock(), false)
	b := &bundle{log: &lockedLog{}}
	rt := web.NewRouter(slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug})), web.Links{})
	(&providerkeys.Handler{Store: newStore(t, d, 1), Apps: registry}).Mount(rt)
	server := httptest.NewServer(rt)
	t.Cleanup(server.Close)
	addDeveloper(t, d, "wac_mine")
	addDeveloper(t, d, "wac_foreign")
	for _, c := range []struct {
		client *apitest.Client
		owner  string
	}{{&b.first, "wac_mine"}, {&b.second, "wac_mine"}, {&b.foreign, "wac_foreign"}} {
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			app, secret, err := registry.Create(ctx, tx, apps.New{OwnerID: c.owner, Name: "Reader"})
			*c.client = apitest.Client{Base: server.URL, User: app.ClientID, Secret: secret}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func want(t *testing.T, got apitest.Answer, status int, code string) {
	t.Helper()
	if got.Status != status || got.Code != code || got.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("got %v, Cache-Control %q; want %d %s", got, got.Header.Get("Cache-Control"), status, code)
	}
}

func wantJSON(t *testing.T, got apitest.Answer, expected string) {
	t.Helper()
	want(t, got, 200, "")
	var a, b any
	if err := json.Unmarshal([]byte(got.Body), &a); err != nil {
		t.Fatalf("got %v (%v)", got, err)
	}
	if err := json.Unmarshal([]byte(expected), &b); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b, a); diff != "" {
		t.Error(diff)
	}
}

const path = "/v1/provider-keys"

func body(key string) string { return fmt.Sprintf(`{"key":%q}`, key) }

// timeless replaces the times of an answer: 1 the first, 2 another one.
func timeless(a apitest.Answer) apitest.Answer {
	var keys []map[string]any
	if json.Unmarshal([]byte(a.Body), &keys) != nil {
		keys = []map[string]any{{}}
		if json.Unmarshal([]byte(a.Body), &keys[0]) != nil {
			return a
		}
	}
	for _, k := range keys {
		same := k["created_at"] == k["tested_at"]
		delete(k, "tested_at")
		k["created_at"] = map[bool]string{true: "when tested", false: "before"}[same]
	}
	text, err := json.Marshal(keys)
	if err != nil {
		panic(err)
	}
	a.Body = string(text)
	return a
}

func TestProviderKeyLife(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d)
		wantJSON(t, b.first.Do(t, "GET", path, ""), `[]`)
		wantJSON(t, timeless(b.first.Do(t, "PUT", path+"/openai", body(goodKey))),
			`[{"provider":"openai","last4":"WxYz","created_at":"when tested"}]`)
		wantJSON(t, timeless(b.first.Do(t, "PUT", path+"/openai", body(otherKey))),
			`[{"provider":"openai","last4":"QrSt","created_at":"before"}]`)
		wantJSON(t, timeless(b.second.Do(t, "PUT", path+"/anthropic", body(shortKey))),
			`[{"provider":"anthropic","last4":null,"created_at":"when tested"}]`)
		want(t, b.first.Do(t, "PUT", path+"/google", body("status-500-0123456789")), 502, "provider_error")
		want(t, b.first.Do(t, "PUT", path+"/openai", body("sk-wrong-0123456789")), 400, "invalid_request")
		const both = `[{"provider":"anthropic","last4":null,"created_at":"when tested"},{"provider":"openai","last4":"QrSt","created_at":"before"}]`
		wantJSON(t, timeless(b.first.Do(t, "GET", path, "")), both)
		wantJSON(t, timeless(b.second.Do(t, "GET", path, "")), both)

		want(t, b.second.Do(t, "DELETE", path+"/openai", ""), 204, "")
		want(t, b.first.Do(t, "DELETE", path+"/openai", ""), 404, "not_found")
		wantJSON(t, timeless(b.first.Do(t, "GET", path, "")),
			`[{"provider":"anthropic","last4":null,"created_at":"when tested"}]`)
		for _, key := range []string{goodKey, otherKey, shortKey, "0123456789", "012345678"} {
			if strings.Contains(b.log.String(), key) {
				t.Errorf("%s stands in the log:\n%s", key, b.log)
			}
		}
		if !strings.Contains(b.log.String(), "status 500") {
			t.Errorf("the log does not say why a key was not tested:\n%s", b.log)
		}
	})
}

func TestAnotherDeveloperSeesNothing(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d)
		b.first.Do(t, "PUT", path+"/openai", body(goodKey))
		wantJSON(t, b.foreign.Do(t, "GET", path, ""), `[]`)
		here, absent := b.foreign.Do(t, "DELETE", path+"/openai", ""), b.foreign.Do(t, "DELETE", path+"/google", "")
		want(t, here, 404, "not_found")
		if here.Body != absent.Body {
			t.Errorf("a foreign key is told from none: %s and %s", here.Body, absent.Body)
		}
		b.foreign.Do(t, "PUT", path+"/openai", body(otherKey))
		wantJSON(t, timeless(b.first.Do(t, "GET", path, "")),
			`[{"provider":"openai","last4":"WxYz","created_at":"when tested"}]`)
	})
}

// What is wrong with a key is told without repeating it, in the answer and in the log.
func TestWrongBodies(t *testing.T) {
	t.Parallel()
	b := newBundle(t, dbtest.Open(t, db.SQLite))
	const marker = "canary-0123456789"
	for name, c := range map[string]struct{ body, says string }{
		"no member": {`{}`, "key: required"},
		"null":      {`{"key":null}`, "key: required"},
		"empty":     {`{"key":""}`, "key: must have 1 to 512"},
		"number":    {`{"key":123456789012345}`, "key: must be a string"},
		"list":      {`{"key":["` + marker + `"]}`, "key: must be a string"},
		"object":    {`{"key":{"key":"` + marker + `"}}`, "key: must be a string"},
		"513 characters": {`{"key":"` + marker + strings.Repeat("x", 513-len(marker)) + `"}`,
			"key: must have 1 to 512"},
		"white space":      {`{"key":"` + marker + ` "}`, "key: must be visible"},
		"line feed":        {`{"key":"` + marker + `\nX-Other: x"}`, "key: must be visible"},
		"NUL":              {`{"key":"` + marker + `\u0000"}`, "key: must not hold"},
		"not ASCII":        {`{"key":"` + marker + `é"}`, "key: must be visible"},
		"DEL":              {`{"key":"` + marker + `\u007f"}`, "key: must be visible"},
		"twice":            {`{"key":"` + marker + `","key":"` + marker + `"}`, "key: must come once"},
		"unknown member":   {`{"key":"` + marker + `","base_url":"http://127.0.0.1:1"}`, "base_url"},
		"account":          {`{"key":"` + marker + `","account_id":"wac_foreign"}`, "account_id"},
		"capitals":         {`{"Key":"` + marker + `"}`, "Key"},
		"not an object":    {`"` + marker + `"`, "body: must be a JSON object"},
		"not JSON":         {marker, "body: must be"},
		"ends too early":   {`{"key":"` + marker, "body: must be JSON"},
		"trailing":         {`{"key":"x"}` + marker, "body: must be JSON"},
		"an invalid quote": {`{"key":"` + marker + `\q"}`, "body: must be JSON"},
	} {
		got := b.first.Do(t, "PUT", path+"/openai", c.body)
		want(t, got, 400, "invalid_request")
		if !strings.Contains(got.Message, c.says) || strings.Contains(got.Body, marker) ||
			strings.Contains(got.Body, "123456789012345") {
			t.Errorf("%s: got %v, want one that says %q", name, got, c.says)
		}
	}
	wantJSON(t, b.first.Do(t, "GET", path, ""), `[]`)
	if log := b.log.String(); strings.Contains(log, marker) || strings.Contains(log, "123456789012345") {
		t.Errorf("a key stands in the log:\n%s", log)
	}
}

// 512 characters are a key: it comes as far as its test.
func TestTheLongestKey(t *testing.T) {
	t.Parallel()
	b := newBundle(t, dbtest.Open(t, db.SQLite))
	got := b.first.Do(t, "PUT", path+"/google", body(strings.Repeat("!~", 256)))
	want(t, got, 400, "invalid_request")
	if !strings.Contains(got.Message, "the provider refuses it") {
		t.Errorf("got %v", got)
	}
}

func TestUnknownProvidersDoNotExist(t *testing.T) {
	t.Parallel()
	b := newBundle(t, dbtest.Open(t, db.SQLite))
	for _, provider := range []string{"OpenAI", "mistral", "openai%2F", "openai%20", "%00"} {
		want(t, b.first.Do(t, "PUT", path+"/"+provider, `{`), 404, "not_found")
		want(t, b.first.Do(t, "DELETE", path+"/"+provider, ""), 404, "not_found")
	}
}

func TestCredentialsAreNeeded(t *testing.T) {
	t.Parallel()
	b := newBundle(t, dbtest.Open(t, db.SQLite))
	wrong := b.first
	wrong.Secret += "x"
	for _, c := range []apitest.Client{{Base: wrong.Base}, wrong, {Base: wrong.Base, Bearer: "x"}} {
		want(t, c.Do(t, "GET", path, ""), 401, "unauthorized")
		want(t, c.Do(t, "PUT", path+"/openai", body(goodKey)), 401, "unauthorized")
		want(t, c.Do(t, "DELETE", path+"/openai", ""), 401, "unauthorized")
	}
}
