package purser

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestRefresh lets fifty goroutines ask for a token that is about to expire. One of them refreshes it.
func TestRefresh(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]TokenStore{
		"memory": NewMemoryTokenStore(),
		"file":   NewFileTokenStore(filepath.Join(t.TempDir(), "tokens")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var refreshes atomic.Int64
			c, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
				n := refreshes.Add(1)
				kept, err := store.Load(r.Context(), "conn_1")
				if err != nil || kept.RefreshKey == "" || r.Header.Get("Idempotency-Key") != kept.RefreshKey ||
					r.FormValue("refresh_token") != "refresh-0" || kept.RefreshToken != "refresh-0" {
					t.Errorf("the key is %q, stored was %+v: %v", r.Header.Get("Idempotency-Key"), kept, err)
				}
				writeTokens(w, int(n))
			})
			c.options.Tokens = store
			connection := connect(t, c, refreshMargin)
			var all sync.WaitGroup
			for range 50 {
				all.Add(1)
				go func() {
					defer all.Done()
					if token, err := connection.Token(t.Context()); err != nil || token != "access-1" {
						t.Errorf("%q: %v", token, err)
					}
				}()
			}
			all.Wait()
			if refreshes.Load() != 1 {
				t.Errorf("%d refreshes", refreshes.Load())
			}
			if tokens, err := store.Load(t.Context(), "conn_1"); err != nil || tokens.RefreshToken != "refresh-1" {
				t.Errorf("%+v: %v", tokens, err)
			}
		})
	}
}

// TestRejectedToken answers 401 to a token that looks fresh. It is refreshed once.
func TestRejectedToken(t *testing.T) {
	t.Parallel()
	var refreshes, calls atomic.Int64
	accepted := "Bearer access-1"
	c, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/oauth/token" {
			writeTokens(w, int(refreshes.Add(1)))
			return
		}
		calls.Add(1)
		if r.Header.Get("Authorization") != accepted {
			refuse(w, 401, "unauthorized")
			return
		}
		writeCompletion(w)
	})
	connection := connect(t, c, time.Hour)
	if _, err := connection.Call(t.Context(), "gpt-6-luna", question); err != nil || refreshes.Load() != 1 ||
		calls.Load() != 2 {
		t.Errorf("%d refreshes, %d calls: %v", refreshes.Load(), calls.Load(), err)
	}
	accepted = "none"
	_, err := connection.Call(t.Context(), "gpt-6-luna", question)
	if refused := asError(err); refused == nil || refused.Action != ActionConnectAgain || refreshes.Load() != 2 {
		t.Errorf("%d refreshes: %v", refreshes.Load(), err)
	}
}

func TestNotConnected(t *testing.T) {
	t.Parallel()
	c, _ := newTestClient(t, func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, 400, map[string]any{"error": map[string]any{
			"code":    "invalid_grant",
			"details": map[string]any{"reason": "app_suspended"},
		}})
	})
	_, err := c.Connection("conn_9").Call(t.Context(), "gpt-6-luna", question)
	if refused := asError(err); refused == nil || refused.Code != CodeNotConnected ||
		refused.Action != ActionConnectAgain {
		t.Errorf("%v", err)
	}
	_, err = connect(t, c, 0).Token(t.Context())
	if refused := asError(err); refused == nil || refused.Action != ActionContactDeveloper {
		t.Errorf("%v", err)
	}
}

func TestFileTokenStore(t *testing.T) {
	t.Parallel()
	ctx, folder := t.Context(), filepath.Join(t.TempDir(), "tokens")
	store, other := NewFileTokenStore(folder), NewFileTokenStore(folder)
	if _, err := store.Load(ctx, "conn_1"); err != ErrNoTokens {
		t.Errorf("%v", err)
	}
	want := Tokens{ConnectionID: "conn_1", AccessToken: "a", RefreshToken: "r", ExpiresAt: testTime, RefreshKey: "k"}
	if err := store.Save(ctx, "conn_1", want); err != nil {
		t.Fatal(err)
	}
	if got, err := other.Load(ctx, "conn_1"); err != nil || got != want {
		t.Errorf("%+v: %v", got, err)
	}
	if info, err := os.Stat(filepath.Join(folder, "conn_1.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v: %v", info, err)
	}
	unlock, err := store.Lock(ctx, "conn_1")
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := other.Lock(ended, "conn_1"); err == nil {
		t.Error("a lock was given twice")
	}
	if unlockOther, err := other.Lock(ctx, "conn_2"); err != nil {
		t.Error(err)
	} else {
		unlockOther()
	}
	unlock()
	if unlock, err = other.Lock(ctx, "conn_1"); err != nil {
		t.Fatal(err)
	}
	unlock()
	for range 2 {
		if err := store.Delete(ctx, "conn_1"); err != nil {
			t.Error(err)
		}
	}
	for _, id := range []string{"", "../conn_1", "a/b", strings.Repeat("a", 129)} {
		if err := store.Save(ctx, id, want); err == nil {
			t.Errorf("saved %q", id)
		}
	}
}

// A store of columns that drops the key of a refresh gets one that follows from the token.
type droppingStore struct{ *MemoryTokenStore }

func (s droppingStore) Save(ctx context.Context, id string, tokens Tokens) error {
	tokens.RefreshKey = ""
	return s.MemoryTokenStore.Save(ctx, id, tokens)
}

func TestDroppedRefreshKey(t *testing.T) {
	t.Parallel()
	var keys []string
	c, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		writeTokens(w, len(keys))
	})
	c.options.Tokens = droppingStore{NewMemoryTokenStore()}
	if token, err := connect(t, c, 0).Token(t.Context()); err != nil || token != "access-1" ||
		len(keys) != 1 || keys[0] != deriveRefreshKey("refresh-0") {
		t.Errorf("%q, keys %q: %v", token, keys, err)
	}
	if key := deriveRefreshKey("refresh"); len(key) != 36 || key[14] != '8' ||
		!strings.ContainsRune("89ab", rune(key[19])) || key != deriveRefreshKey("refresh") ||
		key == deriveRefreshKey("other") {
		t.Errorf("%s", key)
	}
}

// A transactionStore's lock is a transaction: what is saved under it is there after unlock.
type transactionStore struct {
	*MemoryTokenStore
	open map[string]Tokens // not committed yet
}

func (s *transactionStore) Load(ctx context.Context, id string) (Tokens, error) {
	if tokens, ok := s.open[id]; ok {
		return tokens, nil
	}
	return s.MemoryTokenStore.Load(ctx, id)
}

func (s *transactionStore) Save(_ context.Context, id string, tokens Tokens) error {
	s.open[id] = tokens
	return nil
}

func (s *transactionStore) Lock(ctx context.Context, id string) (func(), error) {
	unlock, err := s.MemoryTokenStore.Lock(ctx, id)
	s.open = map[string]Tokens{}
	return func() {
		for id, tokens := range s.open {
			_ = s.MemoryTokenStore.Save(ctx, id, tokens)
		}
		unlock()
	}, err
}

// A crash while the answer is on its way rolls back the transaction of the lock. The key was committed before.
func TestKeySurvivesARollback(t *testing.T) {
	t.Parallel()
	store := &transactionStore{MemoryTokenStore: NewMemoryTokenStore()}
	sent := ""
	c, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		committed, err := store.MemoryTokenStore.Load(r.Context(), "conn_1")
		sent = r.Header.Get("Idempotency-Key")
		if err != nil || sent == "" || committed.RefreshKey != sent || committed.RefreshToken != "refresh-0" {
			t.Errorf("a crash would leave %+v of key %q: %v", committed, sent, err)
		}
		writeTokens(w, 1)
	})
	connection := connect(t, c, 0)
	before, err := c.options.Tokens.Load(t.Context(), "conn_1")
	if err != nil {
		t.Fatal(err)
	}
	_ = store.MemoryTokenStore.Save(t.Context(), "conn_1", before)
	c.options.Tokens = store
	if token, err := connection.Token(t.Context()); err != nil || token != "access-1" || sent == "" {
		t.Errorf("%q: %v", token, err)
	}
	if kept, err := store.MemoryTokenStore.Load(t.Context(), "conn_1"); err != nil || kept.RefreshToken != "refresh-1" {
		t.Errorf("kept %+v, %v", kept, err)
	}
}

// A process that ends within a refresh leaves its key. The next one sends the same key with the same token, and
// refreshes once more if the repeated answer is old.
func TestRefreshIsResumed(t *testing.T) {
	t.Parallel()
	var keys, used []string
	c, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		keys, used = append(keys, r.Header.Get("Idempotency-Key")), append(used, r.FormValue("refresh_token"))
		if len(keys) == 1 {
			writeJSON(w, 200, map[string]any{"access_token": "access-1", "refresh_token": "refresh-1", "expires_in": 1})
			return
		}
		writeTokens(w, len(keys))
	})
	connection := connect(t, c, 0)
	if err := c.options.Tokens.Save(t.Context(), "conn_1", Tokens{
		ConnectionID: "conn_1",
		AccessToken:  "access-0",
		RefreshToken: "refresh-0",
		ExpiresAt:    c.clock.now(),
		RefreshKey:   "key-of-the-first-process",
	}); err != nil {
		t.Fatal(err)
	}
	token, err := connection.Token(t.Context())
	if err != nil || token != "access-2" || len(keys) != 2 || keys[0] != "key-of-the-first-process" ||
		keys[1] == keys[0] || used[0] != "refresh-0" || used[1] != "refresh-1" {
		t.Errorf("%q, keys %q, tokens %q: %v", token, keys, used, err)
	}
	if kept, err := c.options.Tokens.Load(t.Context(), "conn_1"); err != nil || kept.RefreshKey != "" {
		t.Errorf("kept %+v, %v", kept, err)
	}
}

// A refresh whose caller stops waiting goes on: what the service has done is stored.
func TestRefreshOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	came, answer := make(chan struct{}), make(chan struct{})
	c, _ := newTestClient(t, func(w http.ResponseWriter, _ *http.Request) {
		close(came)
		<-answer
		writeTokens(w, 1)
	})
	connection := connect(t, c, 0)
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := connection.Token(ctx)
		ended <- err
	}()
	<-came
	leave()
	if err := <-ended; err != context.Canceled {
		t.Errorf("the caller got %v", err)
	}
	close(answer)
	if token, err := connection.Token(t.Context()); err != nil || token != "access-1" { // it waits for the lock
		t.Errorf("%q: %v", token, err)
	}
	if kept, err := c.options.Tokens.Load(t.Context(), "conn_1"); err != nil || kept.RefreshToken != "refresh-1" {
		t.Errorf("kept %+v, %v", kept, err)
	}
}

// An answer that is swallowed without a reset is asked for again soon, with the same key.
func TestSwallowedRefresh(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var keys []string
	gone := make(chan struct{})
	c, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		n := len(keys)
		mu.Unlock()
		if n == 1 {
			<-gone
			return
		}
		writeTokens(w, 1)
	})
	defer close(gone)
	c.firstTryLimit = 10 * time.Millisecond
	token, err := connect(t, c, 0).Token(t.Context())
	if err != nil || token != "access-1" || len(keys) != 2 || keys[0] != keys[1] {
		t.Errorf("%q, keys %q: %v", token, keys, err)
	}
	if exchangeLimit != 15*time.Second || firstTryLimit >= exchangeLimit {
		t.Errorf("limits %s, %s", firstTryLimit, exchangeLimit)
	}
}

// Waits that go beyond the limit of a refresh are left to the app.
func TestRefreshDoesNotWaitLong(t *testing.T) {
	t.Parallel()
	tries := 0
	c, now := newTestClient(t, func(w http.ResponseWriter, _ *http.Request) {
		tries++
		w.Header().Set("Retry-After", "9")
		refuse(w, 503, "unavailable")
	})
	_, err := connect(t, c, 0).Token(t.Context())
	if refused := asError(err); refused == nil || refused.Code != "unavailable" || tries != 2 || len(now.sleeps) != 1 {
		t.Errorf("%d tries after %s: %v", tries, now.sleeps, err)
	}
}

// An answer of 200 without tokens is refused, and what is stored stays.
func TestEmptyTokenAnswer(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		`{}`, `[]`, `null`, `<html>`,
		`{"access_token": "a", "refresh_token": "", "expires_in": 900}`,
		`{"refresh_token": "r", "expires_in": 900}`,
		`{"access_token": "a", "refresh_token": "r"}`,
	} {
		c, _ := newTestClient(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) })
		_, err := connect(t, c, 0).Token(t.Context())
		if refused := asError(err); refused == nil || refused.Code != CodeInvalidResponse {
			t.Errorf("%s: %v", body, err)
		}
		if kept, err := c.options.Tokens.Load(t.Context(), "conn_1"); err != nil || kept.RefreshToken != "refresh-0" ||
			kept.AccessToken != "access-0" {
			t.Errorf("%s: kept %+v, %v", body, kept, err)
		}
	}
}

// A fullStore is a store whose disk is full from some save on.
type fullStore struct {
	*MemoryTokenStore
	saves, fullFrom, freeFrom int
}

func (s *fullStore) Save(ctx context.Context, id string, tokens Tokens) error {
	if s.saves++; s.saves >= s.fullFrom && s.saves < s.freeFrom {
		return errors.New("no space left on device")
	}
	return s.MemoryTokenStore.Save(ctx, id, tokens)
}

// A disk that is full before a refresh sends nothing. One that fills up within a refresh costs nothing: the new tokens
// stay in memory, are saved when there is space, and are not used up before.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	refreshes := 0
	c, now := newTestClient(t, func(w http.ResponseWriter, _ *http.Request) {
		refreshes++
		writeTokens(w, refreshes)
	})
	store := &fullStore{MemoryTokenStore: NewMemoryTokenStore(), fullFrom: 2, freeFrom: 3}
	c.options.Tokens = store
	connection := connect(t, c, 0) // the first save
	if _, err := connection.Token(t.Context()); err == nil || refreshes != 0 {
		t.Fatalf("the key can't be saved: %d refreshes, %v", refreshes, err)
	}
	store.fullFrom, store.freeFrom = 4, 6 // the third save is that of the key
	for range 2 {
		if token, err := connection.Token(t.Context()); err != nil || token != "access-1" || refreshes != 1 {
			t.Fatalf("the tokens can't be saved: %q after %d refreshes, %v", token, refreshes, err)
		}
	}
	if kept, _ := store.Load(t.Context(), "conn_1"); kept.RefreshToken != "refresh-0" || kept.RefreshKey == "" {
		t.Errorf("the store has %+v", kept)
	}
	store.freeFrom = 100
	now.time = now.time.Add(time.Hour)
	if _, err := connection.Token(t.Context()); err == nil || refreshes != 1 {
		t.Errorf("a token that is not saved was used: %d refreshes, %v", refreshes, err)
	}
	store.fullFrom = 100
	if token, err := connection.Token(t.Context()); err != nil || token != "access-2" {
		t.Errorf("%q: %v", token, err)
	}
	if kept, _ := store.Load(t.Context(), "conn_1"); kept.RefreshToken != "refresh-2" || kept.RefreshKey != "" {
		t.Errorf("the store has %+v", kept)
	}
}
