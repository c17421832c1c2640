package providerkeys_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/providerkeys"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/seal"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// Keys that the fake providers know. What else is sent they refuse.
const (
	goodKey  = "sk-good-0123456789-abcdef-WxYz"
	otherKey = "sk-other-0123456789-abcdef-QrSt"
	shortKey = "exactly-20-character"
)

// providers stands in for all three: each path wants its own header. A key that
// begins with "status-" is answered with the status that follows, and the key in the body.
func providers(t *testing.T) map[string]string {
	t.Helper()
	mux := http.NewServeMux()
	for pattern, key := range map[string]func(*http.Request) string{
		"GET /openai/v1/models": func(r *http.Request) string {
			k, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			return k
		},
		"GET /anthropic/v1/models": func(r *http.Request) string {
			if r.Header.Get("Anthropic-Version") != "2023-06-01" {
				return "status-400 no version"
			}
			return r.Header.Get("X-Api-Key")
		},
		"GET /google/v1beta/models": func(r *http.Request) string { return r.Header.Get("X-Goog-Api-Key") },
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { answer(t, w, r, key(r)) })
	}
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return map[string]string{
		"openai":    s.URL + "/openai/v1",
		"anthropic": s.URL + "/anthropic",
		"google":    s.URL + "/google",
	}
}

func answer(t *testing.T, w http.ResponseWriter, r *http.Request, key string) {
	if strings.Contains(r.URL.String(), "key") || strings.Contains(r.URL.String(), "0123456789") {
		t.Errorf("a key stands in the address %s", r.URL)
	}
	w.Header().Set("Content-Type", "application/json")
	status, body := http.StatusUnauthorized,
		`{"error":{"message":"Incorrect API key provided: `+key+`, `+strings.TrimSuffix(key, "9")+`"}}`
	switch {
	case key == goodKey || key == otherKey || key == shortKey:
		status, body = http.StatusOK, `{"data":[]}`
	case key == "cut":
		panic(http.ErrAbortHandler)
	case strings.HasPrefix(key, "status-403"):
		status = http.StatusForbidden
	case strings.HasPrefix(key, "status-400-google"):
		status, body = http.StatusBadRequest,
			`{"error":{"code":400,"status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}`
	case strings.HasPrefix(key, "status-400"):
		status = http.StatusBadRequest
	case strings.HasPrefix(key, "status-302"):
		w.Header().Set("Location", "/openai/v1/models")
		status = http.StatusFound
	case strings.HasPrefix(key, "status-404"):
		status = http.StatusNotFound
	case strings.HasPrefix(key, "status-429"):
		status = http.StatusTooManyRequests
	case strings.HasPrefix(key, "status-500"):
		status = http.StatusInternalServerError
	}
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body)) // whoever asked may have left
}

// clock moves on by a second with every look.
func clock() func() time.Time {
	var mu sync.Mutex
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		at = at.Add(time.Second)
		return at
	}
}

func newStore(t *testing.T, d *db.DB, fill byte) *providerkeys.Store {
	t.Helper()
	box, err := seal.New(bytes.Repeat([]byte{fill}, seal.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	return providerkeys.NewStore(d, box, clock(), providers(t))
}

func addDeveloper(t *testing.T, d *db.DB, id string) {
	t.Helper()
	if _, err := d.ExecContext(t.Context(), `INSERT INTO accounts (id, email, password_hash, developer, created_us)
		VALUES ($1, $2, 'x', 1, 1)`, id, id+"@example.com"); err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, s *providerkeys.Store, account, provider, key string) providerkeys.Key {
	t.Helper()
	k, err := s.Put(t.Context(), account, provider, providerkeys.NewSecret(key))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func sealedAs(t *testing.T, d *db.DB, account, provider string) (sealed []byte) {
	t.Helper()
	if err := d.QueryRowContext(t.Context(), `SELECT sealed FROM provider_keys
		WHERE account_id = $1 AND provider = $2`, account, provider).Scan(&sealed); err != nil {
		t.Fatal(err)
	}
	return sealed
}

func TestKeysAreSealedAtRest(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := newStore(t, d, 1)
		addDeveloper(t, d, "wac_a")
		put(t, s, "wac_a", "openai", goodKey)
		first := sealedAs(t, d, "wac_a", "openai")
		put(t, s, "wac_a", "openai", goodKey)
		second := sealedAs(t, d, "wac_a", "openai")
		if bytes.Equal(first, second) {
			t.Error("the same key is sealed twice alike")
		}
		for n := 5; n <= len(goodKey); n += 5 {
			if piece := []byte(goodKey[n-5 : n]); bytes.Contains(first, piece) || bytes.Contains(second, piece) {
				t.Errorf("%s can be read", piece)
			}
		}
		if got, err := s.Get(t.Context(), "wac_a", "openai"); err != nil || got.Reveal() != goodKey {
			t.Errorf("got %q (%v)", got.Reveal(), err)
		}
		if got, err := newStore(t, d, 2).Get(t.Context(), "wac_a", "openai"); err == nil {
			t.Errorf("another envelope key opens %q", got.Reveal())
		}
	})
}

// Whoever can write to the table still cannot give one developer the key of another,
// or send it to another provider.
func TestAKeyMovedToAnotherRowDoesNotOpen(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := newStore(t, d, 1)
		addDeveloper(t, d, "wac_a")
		addDeveloper(t, d, "wac_b")
		put(t, s, "wac_a", "openai", goodKey)
		put(t, s, "wac_a", "google", otherKey)
		put(t, s, "wac_b", "openai", otherKey)
		if _, err := d.ExecContext(t.Context(), `UPDATE provider_keys SET sealed = $1`,
			sealedAs(t, d, "wac_a", "openai")); err != nil {
			t.Fatal(err)
		}
		for _, at := range [][2]string{{"wac_a", "google"}, {"wac_b", "openai"}} {
			if got, err := s.Get(t.Context(), at[0], at[1]); err == nil || errors.Is(err, sql.ErrNoRows) {
				t.Errorf("%v: opens as %q (%v)", at, got.Reveal(), err)
			}
		}
		if got, err := s.Get(t.Context(), "wac_a", "openai"); err != nil || got.Reveal() != goodKey {
			t.Errorf("in its own row: %q (%v)", got.Reveal(), err)
		}
	})
}

func TestParallelPutsLeaveOneRow(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := newStore(t, d, 1)
		addDeveloper(t, d, "wac_a")
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				if _, err := s.Put(context.WithoutCancel(t.Context()), "wac_a", "openai",
					providerkeys.NewSecret([]string{goodKey, otherKey}[i%2])); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		list, err := s.List(t.Context(), "wac_a")
		if err != nil || len(list) != 1 {
			t.Fatalf("got %+v (%v)", list, err)
		}
		got, err := s.Get(t.Context(), "wac_a", "openai")
		if err != nil || !strings.HasSuffix(got.Reveal(), list[0].Last4) ||
			got.Reveal() != goodKey && got.Reveal() != otherKey {
			t.Errorf("got %q with %+v (%v)", got.Reveal(), list, err)
		}
	})
}

// Each answer of each provider is one of three: the key is good, it is refused,
// nobody knows. What is not known to be good does not replace what was.
func TestKeysAreTestedOnEntry(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, db.SQLite)
	for _, provider := range []string{"openai", "anthropic", "google"} {
		for _, c := range []struct {
			key  string
			want apierr.Code // its zero value = stored
		}{
			{goodKey, apierr.Code{}},
			{"sk-wrong-0123456789", apierr.InvalidRequest},
			{"status-403-0123456789", apierr.InvalidRequest},
			{"status-400-google-0123456789", apierr.InvalidRequest},
			{"status-400-0123456789", apierr.ProviderError},
			{"status-302-0123456789", apierr.ProviderError},
			{"status-404-0123456789", apierr.ProviderError},
			{"status-429-0123456789", apierr.ProviderError},
			{"status-500-0123456789", apierr.ProviderError},
			{"cut", apierr.ProviderError},
		} {
			t.Run(provider+" "+c.key, func(t *testing.T) {
				account := "wac_" + provider + c.key
				s := newStore(t, d, 1)
				addDeveloper(t, d, account)
				put(t, s, account, provider, otherKey)
				k, err := s.Put(t.Context(), account, provider, providerkeys.NewSecret(c.key))
				got, gerr := s.Get(t.Context(), account, provider)
				if gerr != nil {
					t.Fatal(gerr)
				}
				if c.want.Name == "" {
					if err != nil || k.Last4 != "WxYz" || got.Reveal() != goodKey {
						t.Errorf("got %+v, %v; stored %q", k, err, got.Reveal())
					}
					return
				}
				e, ok := errors.AsType[*apierr.Error](err)
				if !ok || e.Code != c.want || got.Reveal() != otherKey ||
					strings.Contains(err.Error(), c.key) && c.key != "cut" {
					t.Errorf("got %v, want %s; stored %q", err, c.want.Name, got.Reveal())
				}
				if c.want == apierr.InvalidRequest && !strings.HasPrefix(e.Message, "key: the provider refuses it") {
					t.Errorf("it says %q", e.Message)
				}
			})
		}
	}
}

// A client that leaves while its key is tested is no failure of the provider.
func TestAClientThatLeftIsNoProviderError(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, db.SQLite)
	addDeveloper(t, d, "wac_a")
	s := newStore(t, d, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Put(ctx, "wac_a", "openai", providerkeys.NewSecret(goodKey)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// The rate limit prevents testing of stolen keys.
func TestTestsAreRateLimited(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, db.SQLite)
	addDeveloper(t, d, "wac_a")
	addDeveloper(t, d, "wac_b")
	box, err := seal.New(make([]byte, seal.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	s := providerkeys.NewStore(d, box, func() time.Time { return at }, providers(t))
	for range 20 {
		put(t, s, "wac_a", "openai", goodKey)
	}
	_, err = s.Put(t.Context(), "wac_a", "google", providerkeys.NewSecret(goodKey))
	e, ok := errors.AsType[*apierr.Error](err)
	if !ok || e.Code != apierr.RateLimited || e.RetryAfter <= 0 || e.RetryAfter > 3*time.Second {
		t.Errorf("the 21st: %v", err)
	}
	put(t, s, "wac_b", "openai", goodKey) // another developer does not wait
	at = at.Add(3 * time.Second)
	put(t, s, "wac_a", "google", goodKey)
}
