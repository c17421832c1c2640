package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/purserhq/purser/emulator"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/config"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestKeysOfAProvider gives a node two keys, of which OpenAI refuses one: every call is served and charged once, whole
// and streamed, the refused key is asked once, and the operator is told.
func TestKeysOfAProvider(t *testing.T) {
	t.Parallel()
	var refused atomic.Int64
	served := emulator.New(emulator.Options{})
	openai := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer sk-refused-0001" {
			served.ServeHTTP(w, r)
			return
		}
		refused.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"error":{"message":"Incorrect key: sk-refused-0001","code":"invalid_api_key"}}`))
	}))
	t.Cleanup(openai.Close)
	url := dbtest.URL(t, db.SQLite)
	n := startNode(t, url, nil, func(c *config.Config) {
		c.Providers = map[string]config.Provider{
			"openai": {BaseURL: openai.URL + "/v1", Keys: []string{"sk-refused-0001", "sk-working-0002"}},
		}
	})
	for range 6 {
		if status, _ := n.call("gpt-6-luna", "Say hello."); status != http.StatusOK {
			t.Errorf("a call: %d", status)
		}
	}
	if refused.Load() != 1 {
		t.Errorf("the refused key was asked %d times", refused.Load())
	}
	states := n.pools["openai"].States()
	if states[0].ID != "…0001" || len(states[0].Rests) != 1 || states[0].Rests[0].Model != "" || states[1].Served != 6 {
		t.Errorf("%+v", states)
	}
	_, metrics := fetch(t, n.metrics+"/metrics")
	if !strings.Contains(metrics, `purser_alarms_total{alarm="the key is refused",subject="openai"} 1`) {
		t.Error("no alarm is raised")
	}
	var rows, keys int64
	if err := n.DB.QueryRowContext(t.Context(), `SELECT COUNT(*), COUNT(DISTINCT key_hash) FROM ledger
		WHERE type = 'spend' AND status = 'settled'`).Scan(&rows, &keys); err != nil || rows != 6 || keys != 6 {
		t.Errorf("%d rows of %d calls, %v", rows, keys, err)
	}
	n.stop()
}
