package apps_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// management is the API of an app, and of another one of the same developer.
type management struct {
	d           *db.DB
	store       *apps.Store
	mine, other apitest.Client
	id          string
	changes     atomic.Int64
}

func (m *management) path() string { return "/v1/apps/" + m.id }

func newManagement(t *testing.T, d *db.DB) *management {
	t.Helper()
	m := &management{d: d, store: apps.NewStore(d, d.Now, false)}
	m.store.OnChange = func(string) { m.changes.Add(1) }
	rt := web.NewRouter(slog.New(slog.NewTextHandler(io.Discard, nil)), web.Links{})
	(&apps.Handler{Store: m.store, Offered: func(model string) bool {
		return strings.HasPrefix(model, "gpt-")
	}}).Mount(rt)
	server := httptest.NewServer(rt)
	t.Cleanup(server.Close)
	m.exec(t, `INSERT INTO accounts (id, email, password_hash, developer, created_us)
		VALUES ('wac_dev', 'developer@example.com', 'x', 1, 1)`)
	for _, client := range []*apitest.Client{&m.other, &m.mine} {
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			app, secret, err := m.store.Create(ctx, tx, apps.New{
				OwnerID:   "wac_dev",
				Name:      "Reader",
				DevMargin: money.One / 5,
			})
			m.id, *client = app.ID, apitest.Client{Base: server.URL, User: app.ClientID, Secret: secret}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func (m *management) exec(t *testing.T, text string, args ...any) {
	t.Helper()
	if _, err := m.d.ExecContext(t.Context(), text, args...); err != nil {
		t.Fatal(err)
	}
}

func shows(t *testing.T, what string, got apitest.Answer, status int, says ...string) {
	t.Helper()
	for _, s := range says {
		if got.Status != status || !strings.Contains(got.Body, s) {
			t.Errorf("%s: %v; want %d that says %q", what, got, status, s)
		}
	}
}

func TestAppIsShownAndChanged(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		m := newManagement(t, d)
		patch := func(body string) apitest.Answer { return m.mine.Do(t, "PATCH", m.path(), body) }
		shows(t, "at first", m.mine.Do(t, "GET", m.path(), ""), 200,
			`"redirect_uris":[],"allowed_models":[],"default_max_tokens":null,"fit":false,"fit_min_tokens":256,`+
				`"dev_margin_rate":0.2,"tier":"sandbox"`,
			`"max_cap_mc":null,"max_cap_display":null,"connection_day_mc":null`,
			`"provider_mode":"mock","test_allowlist":[],"suspended":false,"suspension":null`)
		all := patch(`{"name":"Reader 2","redirect_uris":["https://app.example.com/cb"],"allowed_models":["gpt-a","gpt-b"],"default_max_tokens":500,"fit":true,"fit_min_tokens":64,"dev_margin_rate":1e-06,"provider_mode":"live","test_allowlist":["Some.One@Example.com"],"suspended":true}`)
		shows(t, "all of it", all, 200, `"name":"Reader 2"`,
			`"allowed_models":["gpt-a","gpt-b"],"default_max_tokens":500,"fit":true,"fit_min_tokens":64,`+
				`"dev_margin_rate":0.000001`,
			`"provider_mode":"live","test_allowlist":["some.one@example.com"],"suspended":true,"suspension":{"by":"developer","reason":null`)
		if got := m.mine.Do(t, "GET", m.path(), ""); got.Body != all.Body {
			t.Errorf("GET shows %s, PATCH %s", got.Body, all.Body)
		}
		shows(t, "nothing", patch(`{}`), 200, strings.TrimSpace(all.Body))
		shows(t, "cleared",
			patch(`{"default_max_tokens":null,"fit":false,"fit_min_tokens":null,"allowed_models":null,`+
				`"test_allowlist":[],"suspended":false}`), 200,
			`"allowed_models":[],"default_max_tokens":null,"fit":false,"fit_min_tokens":256`,
			`"test_allowlist":[],"suspended":false,"suspension":null`)
		shows(t, "prompt cache off", patch(`{"prompt_cache":false}`), 200, `"prompt_cache":false`)
		shows(t, "prompt cache on", patch(`{"prompt_cache":true}`), 200, `"prompt_cache":true`)
		shows(t, "own work on", patch(`{"own_work":true}`), 200, `"own_work":true`)
		shows(t, "own work off", patch(`{"own_work":false}`), 200, `"own_work":false`)
		shows(t, "transcripts on", patch(`{"transcripts":true}`), 200, `"transcripts":true`)
		shows(t, "transcripts off", patch(`{"transcripts":false}`), 200, `"transcripts":false`)
		shows(t, "transcripts null", patch(`{"transcripts":null}`), 400, "transcripts: must not be null")
		shows(t, "own work null", patch(`{"own_work":null}`), 400, "own_work: must not be null")
		shows(t, "prompt cache null", patch(`{"prompt_cache":null}`), 400, "prompt_cache: must not be null")
		if n := m.changes.Load(); n != 9 {
			t.Errorf("told of %d changes", n)
		}

		// A model that has retired since may stay, but not come back.
		m.exec(t, `UPDATE apps SET allowed_models = '["retired"]' WHERE id = $1`, m.id)
		shows(t, "retired stays", patch(`{"allowed_models":["gpt-a","retired"]}`), 200, `["gpt-a","retired"]`)
		shows(t, "retired goes", patch(`{"allowed_models":["gpt-a"]}`), 200, `["gpt-a"]`)
		shows(t, "retired comes", patch(`{"allowed_models":["gpt-a","retired"]}`), 400, "allowed_models[1]")

		// Only a public client keeps a loopback address.
		shows(t, "loopback", patch(`{"redirect_uris":["http://127.0.0.1/cb"]}`), 400, "redirect_uris[0]")
		shows(t, "a client type", patch(`{"client_type":"native"}`), 400, "client_type: must be confidential or public")
		shows(t, "no client type", patch(`{"client_type":null}`), 400, "client_type: must not be null")
		shows(t, "public", patch(`{"client_type":"public","redirect_uris":["http://127.0.0.1/cb"]}`), 200,
			`"client_type":"public","name":"Reader 2","redirect_uris":["http://127.0.0.1/cb"]`)
		shows(t, "confidential with it", patch(`{"client_type":"confidential"}`), 400, "redirect_uris[0]")
		shows(t, "confidential without it", patch(`{"client_type":"confidential","redirect_uris":[]}`), 200,
			`"client_type":"confidential"`)

		// Outside the sandbox the providers are real.
		m.exec(t, `UPDATE apps SET tier = 'limited-live' WHERE id = $1`, m.id)
		shows(t, "live stays", patch(`{"provider_mode":"live"}`), 200, `"tier":"limited-live"`,
			`"max_cap_mc":2500000000`, `"connection_day_mc":500000000`, `"app_day_mc":25000000000`)
		shows(t, "back to mock", patch(`{"provider_mode":"mock"}`), 400,
			"provider_mode: is always live in tier limited-live")

		for _, method := range []string{"GET", "PATCH"} {
			foreign := m.other.Do(t, method, m.path(), `{"name":"mine now"}`)
			absent := m.other.Do(t, method, "/v1/apps/app_absent", `{"name":"mine now"}`)
			if foreign.Status != 404 || foreign.Body != absent.Body {
				t.Errorf("%s of a foreign app: %v, of an absent one: %v", method, foreign, absent)
			}
		}
	})
}

// Whatever the app is told meanwhile, changes of different members never undo each other.
func TestChangesAtOnce(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		m := newManagement(t, d)
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				body := []string{`{"name":"After"}`, `{"dev_margin_rate":0.5}`,
					`{"redirect_uris":["https://app.example.com/cb"]}`, `{"allowed_models":["gpt-a"]}`}[i%4]
				shows(t, body, m.mine.Do(t, "PATCH", m.path(), body), 200, m.id)
			})
			wg.Go(func() {
				err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
					_, _, err := m.store.Suspend(ctx, tx, m.id, apps.ByRisk, fmt.Sprint("reason ", i))
					return err
				})
				if err != nil && !strings.Contains(err.Error(), "nothing to change") {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		shows(t, "all of it", m.mine.Do(t, "GET", m.path(), ""), 200, `"name":"After"`,
			`"redirect_uris":["https://app.example.com/cb"],"allowed_models":["gpt-a"]`, `"dev_margin_rate":0.5`,
			`"by":"risk","reason":"reason `)
		shows(t, "not the developer's to lift", m.mine.Do(t, "PATCH", m.path(), `{"suspended":false}`), 403,
			"app_suspended")
		shows(t, "his own switch is his", m.mine.Do(t, "PATCH", m.path(), `{"suspended":true}`), 200, `"by":"risk"`)
	})
}
