package purser

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// A fakeClock stands still until someone sleeps.
type fakeClock struct {
	mu     sync.Mutex
	time   time.Time
	sleeps []time.Duration
}

func (c *fakeClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.time
}

func (c *fakeClock) sleep(ctx context.Context, d time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sleeps = append(c.sleeps, d)
	c.time = c.time.Add(d)
	return ctx.Err()
}

var testTime = time.Date(2026, 11, 21, 10, 15, 0, 0, time.UTC)

// newTestClient returns a client of a server that handle plays, and its clock.
func newTestClient(t *testing.T, handle http.HandlerFunc) (*Client, *fakeClock) {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	c := New(Options{
		BaseURL:      server.URL,
		ClientID:     "cid_test",
		ClientSecret: "secret",
		RedirectURI:  "https://app.example.com/callback",
	})
	now := &fakeClock{time: testTime}
	c.clock = clock{now.now, now.sleep}
	return c, now
}

// connect saves tokens of conn_1 that are valid for some time.
func connect(t *testing.T, c *Client, validFor time.Duration) *Connection {
	t.Helper()
	tokens := Tokens{
		ConnectionID: "conn_1",
		AccessToken:  "access-0",
		RefreshToken: "refresh-0",
		ExpiresAt:    c.clock.now().Add(validFor),
	}
	if err := c.options.Tokens.Save(t.Context(), "conn_1", tokens); err != nil {
		t.Fatal(err)
	}
	return c.Connection("conn_1")
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Request-Id", "req_1")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value)
}

// refuse answers with the envelope of a code.
func refuse(w http.ResponseWriter, status int, code string) {
	writeJSON(w, status, map[string]any{"error": map[string]any{"code": code, "message": "no", "type": "test"}})
}

// writeTokens answers with the n-th tokens.
func writeTokens(w http.ResponseWriter, n int) {
	writeJSON(w, 200, map[string]any{
		"access_token":  fmt.Sprintf("access-%d", n),
		"refresh_token": fmt.Sprintf("refresh-%d", n),
		"token_type":    "Bearer",
		"expires_in":    900,
		"connection_id": "conn_1",
		"allocation_mc": 500_000_000,
	})
}

// writeCompletion answers a call.
func writeCompletion(w http.ResponseWriter) {
	writeJSON(w, 200, map[string]any{
		"choices": []any{map[string]any{
			"message": map[string]any{
				"role":          "assistant",
				"content":       "Because.",
				"extra_content": map[string]any{"x": 1},
			},
			"finish_reason": "stop",
		}},
		"usage": map[string]any{"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14},
		"svc":   map[string]any{"user_charge_mc": 9600, "user_charge_display": "$0.000096", "settlement": "settled"},
	})
}

var question = ChatRequest{Messages: []Message{UserMessage("Why is the sky blue?")}, MaxTokens: 200}
