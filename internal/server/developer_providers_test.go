package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/emulator"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/providerkeys"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/seal"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/config"
	"github.com/purserhq/purser/internal/dev/sample"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/ledger/audit"
	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// developerKeyNode is a node that reaches the emulator with a key of its own, and what it logs.
type developerKeyNode struct {
	*Server
	log       *lines
	developer string
	at        net.Listener
	url       string
	ran       bool
}

// startNode runs the node until the test ends, with the people and the app of
// `purser dev`, and returns them.
func (w *developerKeyNode) startNode(t *testing.T) sample.Data {
	t.Helper()
	seeded, err := seed(t, w.Server)
	if err == nil {
		err = w.Apps.SetProviderMode(t.Context(), seeded.App.ID, apps.Live)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.Mount(ui.Home{})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	w.ran = true
	go func() { done <- w.Run(ctx, []net.Listener{w.at}) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return seeded
}

type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newOwnWorld(t *testing.T, e db.Engine) *developerKeyNode {
	t.Helper()
	emulated := httptest.NewServer(emulator.New(emulator.Options{}))
	t.Cleanup(emulated.Close)
	w := &developerKeyNode{log: &lines{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.at, w.url = l, "http://"+l.Addr().String()
	set := policy.Default
	set.SandboxDayMC, set.Risk = 1, unusual // less than any call costs
	w.Server, err = Open(t.Context(), config.Config{
		Database:     dbtest.URL(t, e),
		Lease:        time.Minute,
		EnvelopeKeys: [][]byte{make([]byte, 32)},
		BaseURL:      w.url,
		AuthURL:      w.url,
		DashboardURL: w.url,
		Policy:       set,
		Providers: map[string]config.Provider{
			"openai":    {BaseURL: emulated.URL + "/v1", Keys: []string{"the-operators"}},
			"anthropic": {BaseURL: emulated.URL},
			"google":    {BaseURL: emulated.URL, Keys: []string{"the-operators"}},
		},
	}, slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})), true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.DB.Close(); err != nil && !w.ran {
			t.Error(err)
		}
		_ = l.Close() // whoever serves on it has closed it
	})
	err = w.DB.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		a, err := w.Accounts.Create(ctx, tx, accounts.NewAccount{Email: "own@example.com", Developer: true})
		w.developer = a.ID
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *developerKeyNode) putKey(t *testing.T, name, key string) {
	t.Helper()
	if _, err := w.keys.Put(t.Context(), w.developer, name, providerkeys.NewSecret(key)); err != nil {
		t.Fatal(err)
	}
}

// alarms are those that the operator has got.
func (w *developerKeyNode) alarms(t *testing.T) string {
	t.Helper()
	rec := httptest.NewRecorder()
	w.metrics.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	var out []string
	for line := range strings.Lines(rec.Body.String()) {
		if strings.HasPrefix(line, "purser_alarms_total{") {
			out = append(out, line)
		}
	}
	if strings.Contains(w.log.String(), "provider alarm") {
		out = append(out, "the log has an alarm")
	}
	return strings.Join(out, "")
}

func ask(model string) *provider.Request {
	return &provider.Request{
		ID:        "req_1",
		Model:     model,
		MaxTokens: 50,
		Turns:     []conversation.Turn{conversation.Say("user", "Hello")},
	}
}

func stream(model string) *provider.Request {
	q := ask(model)
	q.Stream = true
	return q
}

var ownModels = map[string]string{"openai": "gpt-6-luna", "anthropic": "claude-haiku-4-5", "google": "gemini-3.8-flash"}

// TestAnUnreadKeyIsNotMissing: while the database is away it is not known whether a developer has stored a key. A call
// by the operator's key instead would be the operator's to pay.
func TestAnUnreadKeyIsNotMissing(t *testing.T) {
	t.Parallel()
	box, err := seal.New(bytes.Repeat([]byte{1}, seal.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	d, err := db.Open(t.Context(), dbtest.URL(t, db.SQLite))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	s := &Server{log: slog.New(slog.DiscardHandler), keys: providerkeys.NewStore(d, box, time.Now, nil)}
	if p, err := newDeveloperProviders(s).findProvider(t.Context(), "wac_1", "openai"); !db.IsUnavailable(err) {
		t.Errorf("a provider: %t, %v", p != nil, err)
	}
	if key, err := s.findVoiceKey(t.Context(), "wac_1"); !db.IsUnavailable(err) {
		t.Errorf("a key: %t, %v", key != "", err)
	}
}

// A developer's own key serves calls, whether or not the operator has one there,
// and in both ways; nobody else's account finds it.
func TestOwnKeysServeTheirDeveloper(t *testing.T) {
	t.Parallel()
	dbtest.InTurn(t, func(t *testing.T, e db.Engine) {
		w := newOwnWorld(t, e)
		for name, model := range ownModels {
			if p, err := w.inference.DeveloperProvider(t.Context(), w.developer, name); p != nil || err != nil {
				t.Errorf("%s: a key before one was stored", name)
			}
			w.putKey(t, name, "a-key-of-the-developers-own-"+name)
			p, err := w.inference.DeveloperProvider(t.Context(), w.developer, name)
			if p == nil {
				t.Errorf("%s: no provider for a key that was just stored, %v", name, err)
				continue
			}
			if answer, err := p.Complete(t.Context(), ask(model)); err != nil || answer.Usage == nil {
				t.Errorf("%s: %+v, %v", name, answer, err)
			}
			s, err := p.Stream(t.Context(), stream(model))
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			for err == nil {
				_, err = s.Next()
			}
			if closed := s.Close(); closed != nil {
				t.Errorf("%s: %v", name, closed)
			}
			if !errors.Is(err, io.EOF) {
				t.Errorf("%s: the stream ended with %v", name, err)
			}
			if again, _ := w.inference.DeveloperProvider(t.Context(), w.developer, name); again != p {
				t.Errorf("%s: the same key makes another provider, whose circuit breaker knows nothing", name)
			}
			w.putKey(t, name, "another-key-of-the-developers-own")
			if other, _ := w.inference.DeveloperProvider(t.Context(), w.developer, name); other == nil || other == p {
				t.Errorf("%s: the key before is still used", name)
			}
			if p, err := w.inference.DeveloperProvider(t.Context(), "wac_somebody_else", name); p != nil || err != nil {
				t.Errorf("%s: somebody else's key is used", name)
			}
			if err := w.keys.Delete(t.Context(), w.developer, name); err != nil {
				t.Error(err)
			}
			if p, err := w.inference.DeveloperProvider(t.Context(), w.developer, name); p != nil || err != nil {
				t.Errorf("%s: a deleted key is used", name)
			}
		}
	})
}

// What is wrong with a developer's key is the developer's to read, as a refusal
// of the request, and never wakes the operator. The operator's own key does.
func TestOwnKeysRaiseNoAlarm(t *testing.T) {
	t.Parallel()
	w := newOwnWorld(t, db.SQLite)
	for name, model := range ownModels {
		for key, says := range map[string]string{"bad-key": "the key is refused", "no-quota": "out of"} {
			p := w.newDeveloperProvider(name, providerkeys.NewSecret(key))
			_, whole := p.Complete(t.Context(), ask(model))
			_, streamed := p.Stream(t.Context(), stream(model))
			for _, err := range []error{whole, streamed} {
				e, ok := errors.AsType[*provider.Error](err)
				if !ok || e.Kind != provider.Rejected || e.Retry || e.Alarm != "" ||
					!strings.HasPrefix(e.Message, "your own key for "+name+" does not serve this call: ") ||
					!strings.Contains(e.Message, says) {
					t.Errorf("%s with %s: %+v", name, key, err)
				} else if strings.Contains(e.Error(), key) {
					t.Errorf("%s: the error shows the key: %v", name, err)
				}
			}
		}
		if _, err := w.newDeveloperProvider(name, providerkeys.NewSecret("a-good-key")).Complete(t.Context(),
			ask("no-such-model")); err == nil {
			t.Errorf("%s: a model that does not exist", name)
		}
	}
	if got := w.alarms(t); got != "" {
		t.Errorf("the operator got alarms:\n%s", got)
	}
	for _, key := range []string{"bad-key", "no-quota"} {
		if strings.Contains(w.log.String(), key) {
			t.Errorf("the log shows a key:\n%s", w.log)
		}
	}
	_, _ = upstream.NewReliable(w.newProviderClient("openai", "bad-key", false), w.DB.Now, w.Server.log,
		w.reportAlarm).Complete(t.Context(), ask("gpt-6-luna"))
	if got := w.alarms(t); !strings.Contains(got, "the key is refused") {
		t.Errorf("the canary: the operator's own refused key raised %q", got)
	}
}

// Providers with keys of their own share the connections, not the circuit.
func TestOwnKeysShareConnections(t *testing.T) {
	t.Parallel()
	w := newOwnWorld(t, db.SQLite)
	a, b := w.newDeveloperProvider("openai", providerkeys.NewSecret("one")),
		w.newDeveloperProvider("openai", providerkeys.NewSecret("two"))
	w.DB.SetBack(time.Minute)
	for i := range 30 { // more than it takes to open a circuit, and for longer
		if i == 29 {
			w.DB.SetBack(0)
		}
		q := ask("gpt-6-luna")
		q.Turns[0].Blocks[0].Text = "!emu status=500 should_retry=false"
		if _, err := a.Complete(t.Context(), q); err == nil {
			t.Fatal("a failure of the emulator was no error")
		}
	}
	_, err := a.Complete(t.Context(), ask("gpt-6-luna"))
	if e, ok := errors.AsType[*provider.Error](err); !ok || e.RetryAfter == 0 ||
		!strings.Contains(e.Message, "not answering") {
		t.Errorf("the circuit of the one whose calls fail: %v", err)
	}
	if _, err := b.Complete(t.Context(), ask("gpt-6-luna")); err != nil {
		t.Errorf("the other one: %v", err)
	}
}

// Contract §7, sandbox_live_cost_limited: beyond the daily allowance a developer's own
// key for the model's provider serves the call; without one it is refused. A key
// that its provider refuses is told to the app, and nothing is billed.
func TestOwnKeysServeBeyondTheAllowance(t *testing.T) {
	t.Parallel()
	dbtest.InTurn(t, func(t *testing.T, e db.Engine) {
		w := newOwnWorld(t, e)
		p := w.startNode(t)
		server := apitest.Client{Base: w.url, User: p.App.ClientID, Secret: p.App.ClientSecret}
		token := apitest.Client{Base: w.url, Bearer: p.Connection.AccessToken}
		call := func(model, text string, stream bool, status int, says string) {
			t.Helper()
			req := fmt.Sprintf(`{"stream":%t,"max_tokens":50,"messages":[{"role":"user","content":%q}]}`, stream,
				text)
			if got := token.Do(t, "POST", "/v1/chat/completions",
				`{"model":"`+model+`",`+req[1:]); got.Status != status || !strings.Contains(got.Body, says) {
				t.Errorf("%s, streamed %t: %v, want %d that says %q", model, stream, got, status, says)
			}
		}
		for name, model := range ownModels {
			status, says := 429, "sandbox_live_cost_limited"
			if name == "anthropic" { // the operator has no key for it
				status, says = 400, "has no key for anthropic"
			}
			call(model, "Hello", false, status, says)
			if got := server.Do(t, "PUT", "/v1/provider-keys/"+name,
				`{"key":"a-key-of-the-developers-own"}`); got.Status != 200 {
				t.Fatal(got)
			}
			for _, stream := range []bool{false, true} {
				call(model, "!emu status=401", stream, 400,
					"your own key for "+name+" does not serve this call: the key is refused")
			}
			call(model, "Hello", false, 200, `"svc"`)
			call(model, "Hello", true, 200, "data: [DONE]")
			if got := server.Do(t, "DELETE", "/v1/provider-keys/"+name, ""); got.Status != 204 {
				t.Error(got)
			}
			call(model, "Hello", false, status, says)
		}
		if got := w.alarms(t); got != "" {
			t.Errorf("the operator got alarms:\n%s", got)
		}
		var rows int
		if err := w.DB.QueryRowContext(t.Context(),
			`SELECT COUNT(*) FROM ledger WHERE type = 'spend'`).Scan(&rows); err != nil ||
			rows != 2*len(ownModels) {
			t.Errorf("%d calls billed, %v", rows, err)
		}
		var out strings.Builder
		if findings, err := audit.VerifyAndPrint(t.Context(), w.Config.Database, &out, time.Now()); err != nil ||
			findings > 0 {
			t.Errorf("%d findings, %v\n%s", findings, err, &out)
		}
	})
}
