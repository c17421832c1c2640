package features_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// bundle is a server with two apps on it.
type bundle struct {
	mine, other     apitest.Client
	mineID, otherID string
	store           *features.Store
	changes         atomic.Int64
}

func newBundle(t *testing.T, d *db.DB) *bundle {
	t.Helper()
	var mu sync.Mutex
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	now := func() time.Time { // every look at the clock is a moment later
		mu.Lock()
		defer mu.Unlock()
		at = at.Add(time.Second)
		return at
	}
	registry := apps.NewStore(d, now, false)
	store := features.NewStore(d, now, func(model string) bool { return model == "gpt-5.6-terra" })
	rt := web.NewRouter(slog.New(slog.NewTextHandler(io.Discard, nil)), web.Links{})
	b := &bundle{store: store}
	registry.OnChange = func(string) { b.changes.Add(1) }
	(&features.Handler{Store: store, Apps: registry}).Mount(rt)
	server := httptest.NewServer(rt)
	t.Cleanup(server.Close)
	if _, err := d.ExecContext(t.Context(), `INSERT INTO accounts (id, email, password_hash, developer, created_us)
		VALUES ('wac_dev', 'developer@example.com', 'x', 1, 1)`); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		client *apitest.Client
		id     *string
	}{{&b.mine, &b.mineID}, {&b.other, &b.otherID}} {
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			app, secret, err := registry.Create(ctx, tx, apps.New{OwnerID: "wac_dev", Name: "Reader"})
			*c.id, *c.client = app.ID, apitest.Client{Base: server.URL, User: app.ClientID, Secret: secret}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func (b *bundle) collection() string { return "/v1/apps/" + b.mineID + "/features" }

func (b *bundle) path(slug string) string { return b.collection() + "/" + slug }

func want(t *testing.T, got apitest.Answer, status int, code string) {
	t.Helper()
	if got.Status != status || got.Code != code {
		t.Errorf("got %v; want %d %s", got, status, code)
	}
}

func wantJSON(t *testing.T, got apitest.Answer, expected string) {
	t.Helper()
	var a, b any
	if err := json.Unmarshal([]byte(got.Body), &a); err != nil || got.Status != 200 {
		t.Fatalf("got %v (%v)", got, err)
	}
	if err := json.Unmarshal([]byte(expected), &b); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b, a); diff != "" {
		t.Error(diff)
	}
}

func TestFeatureLife(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d)
		wantJSON(t, b.mine.Do(t, "GET", b.collection(), ""), `[]`)
		created := b.mine.Do(t, "POST", b.collection(),
			`{"slug":"summaries","display_name":"Summaries","description":"Sums up pages.","dev_margin_rate":0.290000,"default_model":"gpt-5.6-terra"}`)
		const shown = `{"slug":"summaries","display_name":"Summaries","description":"Sums up pages.","max_cost_per_call_mc":null,"max_tokens":null,"fit":null,"fit_min_tokens":null,"rate_limit":null,"default_model":"gpt-5.6-terra","dev_margin_rate":0.29}`
		wantJSON(t, created, shown)
		if !strings.Contains(created.Body, `"dev_margin_rate":0.29}`) {
			t.Errorf("the rate is written as a float would be: %s", created.Body)
		}
		wantJSON(t, b.mine.Do(t, "GET", b.collection(), ""), `[`+shown+`]`)
		wantJSON(t, b.mine.Do(t, "PATCH", b.path("summaries"), strings.TrimSpace(created.Body)), shown)

		patched := b.mine.Do(t, "PATCH", b.path("summaries"),
			`{"max_cost_per_call_mc":5000000,"max_tokens":500,"fit":true,"fit_min_tokens":64,"rate_limit":60,"default_model":null,"dev_margin_rate":1e-06}`)
		const after = `{"slug":"summaries","display_name":"Summaries","description":"Sums up pages.","max_cost_per_call_mc":5000000,"max_tokens":500,"fit":true,"fit_min_tokens":64,"rate_limit":60,"default_model":null,"dev_margin_rate":0.000001}`
		wantJSON(t, patched, after)
		wantJSON(t, b.mine.Do(t, "GET", b.collection(), ""), `[`+after+`]`)

		refused := b.mine.Do(t, "PATCH", b.path("summaries"), `{"display_name":"New","max_tokens":0}`)
		want(t, refused, 400, "invalid_request")
		wantJSON(t, b.mine.Do(t, "GET", b.collection(), ""), `[`+after+`]`)

		again := b.mine.Do(t, "POST", b.collection(), `{"slug":"summaries","display_name":"S","description":"D"}`)
		want(t, again, 400, "invalid_request")
		reserved := b.mine.Do(t, "POST", b.collection(), `{"slug":"other","display_name":"O","description":"D"}`)
		if reserved.Status != 400 || !strings.Contains(reserved.Message, "not registered") {
			t.Errorf("the label of other slugs: %v", reserved)
		}
		if !strings.Contains(again.Message, "already exists") {
			t.Errorf("a taken slug: %v", again)
		}
		if n := b.changes.Load(); n != 3 {
			t.Errorf("1 creation and 2 patches were told as %d changes", n)
		}
		got, err := b.store.ListAll(t.Context(), b.mineID)
		if err != nil || len(got) != 1 || *got[0].DevMargin != 1 {
			t.Errorf("the store has %+v (%v)", got, err)
		}
	})
}

// Other apps get 404 for existing and unknown features.
func TestForeignFeaturesDoNotExist(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d)
		b.mine.Do(t, "POST", b.collection(), `{"slug":"mine","display_name":"Mine","description":"D"}`)
		for _, c := range []struct{ method, path, body string }{
			{"GET", "/features", ""},
			{"POST", "/features", `{"slug":"s","display_name":"S","description":"D"}`},
			{"POST", "/features", `{`},
			{"PATCH", "/features/mine", `{"display_name":"Theirs"}`},
			{"PATCH", "/features/none", `{}`},
		} {
			foreign := b.other.Do(t, c.method, "/v1/apps/"+b.mineID+c.path, c.body)
			absent := b.other.Do(t, c.method, "/v1/apps/app_none"+c.path, c.body)
			want(t, foreign, 404, "not_found")
			if foreign.Body != absent.Body {
				t.Errorf("%s %s: a foreign app is told from none: %s and %s", c.method, c.path, foreign.Body,
					absent.Body)
			}
		}
		want(t, b.mine.Do(t, "PATCH", b.path("none"), `{"x":1}`), 404, "not_found")
		want(t, b.mine.Do(t, "PATCH", b.path("Not%20a%20slug"), `{}`), 404, "not_found")
		want(t, b.mine.Do(t, "DELETE", b.path("mine"), ""), 405, "method_not_allowed")
		want(t, apitest.Client{Base: b.mine.Base}.Do(t, "GET", b.collection(), ""), 401, "unauthorized")
		want(t, apitest.Client{Base: b.mine.Base, Bearer: "token"}.Do(t, "GET", b.collection(), ""), 401,
			"unauthorized")
		wantJSON(t, b.other.Do(t, "POST", "/v1/apps/"+b.otherID+"/features",
			`{"slug":"mine","display_name":"Theirs","description":"D"}`),
			`{"slug":"mine","display_name":"Theirs","description":"D","max_cost_per_call_mc":null,"max_tokens":null,"fit":null,"fit_min_tokens":null,"rate_limit":null,"default_model":null,"dev_margin_rate":null}`)
	})
}

func TestFeaturePagesAndLimit(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d)
		fill(t, d, b.mineID, features.MaxPerApp)
		full := b.mine.Do(t, "POST", b.collection(), `{"slug":"one-more","display_name":"S","description":"D"}`)
		want(t, full, 400, "invalid_request")
		if full.Message != "an app has at most 200 features" {
			t.Errorf("feature 201: %v", full)
		}
		var seen []string
		pages := 0
		for path := b.collection() + "?limit=33"; path != ""; pages++ {
			page := b.mine.Do(t, "GET", path, "")
			var list []struct{ Slug string }
			if err := json.Unmarshal([]byte(page.Body), &list); err != nil {
				t.Fatal(err)
			}
			for _, f := range list {
				seen = append(seen, f.Slug)
			}
			path, _, _ = strings.Cut(strings.TrimPrefix(page.Header.Get("Link"), "<"), ">")
		}
		var expected []string
		for i := features.MaxPerApp - 1; i >= 0; i-- {
			expected = append(expected, fmt.Sprintf("f%03d", i))
		}
		if diff := cmp.Diff(expected, seen); diff != "" || pages != 7 {
			t.Errorf("%d pages: %s", pages, diff)
		}
		for _, query := range []string{"?limit=0", "?limit=101", "?limit=x", "?limit=1&limit=2",
			"?starting_after=none"} {
			want(t, b.mine.Do(t, "GET", b.collection()+query, ""), 400, "invalid_request")
		}
	})
}

// Of many that race for one slug, or for the last place, one wins.
func TestFeatureRace(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d)
		fill(t, d, b.mineID, features.MaxPerApp-2)
		for _, slug := range []string{"same", "other-%d"} {
			statuses := make(chan int, 16)
			var wg sync.WaitGroup
			for i := range cap(statuses) {
				wg.Go(func() {
					body := fmt.Sprintf(`{"slug":%q,"display_name":"S","description":"D"}`,
						strings.Replace(slug, "%d", fmt.Sprint(i), 1))
					statuses <- b.mine.Do(t, "POST", b.collection(), body).Status
				})
			}
			wg.Wait()
			close(statuses)
			count := map[int]int{}
			for s := range statuses {
				count[s]++
			}
			if diff := cmp.Diff(map[int]int{200: 1, 400: 15}, count); diff != "" {
				t.Errorf("%s: %s", slug, diff)
			}
		}
	})
}

// fill gives an app n features, created two at a time: f000, f001, …
func fill(t *testing.T, d *db.DB, appID string, n int) {
	t.Helper()
	for i := range n {
		if _, err := d.ExecContext(t.Context(), `INSERT INTO features (app_id, slug, display_name, description,
				created_us) VALUES ($1, $2, 'S', 'D', $3)`, appID, fmt.Sprintf("f%03d", i), i/2); err != nil {
			t.Fatal(err)
		}
	}
}
