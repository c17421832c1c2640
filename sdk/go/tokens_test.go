package purser

import (
	"context"
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
				if r.Header.Get("Idempotency-Key") != refreshKey("refresh-0") ||
					r.FormValue("refresh_token") != "refresh-0" {
					t.Errorf("the key is %q", r.Header.Get("Idempotency-Key"))
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
	want := Tokens{"conn_1", "a", "r", testTime}
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

func TestRefreshKey(t *testing.T) {
	t.Parallel()
	if key := refreshKey("refresh"); len(key) != 36 || key[14] != '8' || !strings.ContainsRune("89ab", rune(key[19])) ||
		key != refreshKey("refresh") || key == refreshKey("other") {
		t.Errorf("%s", key)
	}
}
