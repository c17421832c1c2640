package server

import (
	"bytes"
	"io"
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/config"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/people/topups"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestNodesThatDiffer starts a node with another address and another key of Stripe: both nodes name the settings, once
// and without their values, and nothing of what may differ.
func TestNodesThatDiffer(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t, db.Postgres)
	var log bytes.Buffer
	start := func(change func(*config.Config)) *Server {
		c := config.Config{
			Database:       url,
			BaseURL:        "https://api.example.com",
			AuthURL:        "https://auth.example.com",
			DashboardURL:   "https://auth.example.com",
			Lease:          time.Minute,
			EnvelopeKeys:   [][]byte{make([]byte, 32)},
			Policy:         policy.Default,
			TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
			Stripe:         topups.Config{Key: "sk_test_first_key", WebhookSecret: "whsec_0123456789abcdef"},
		}
		change(&c)
		s, err := Open(t.Context(), c, slog.New(slog.NewTextHandler(&log, nil)), false)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.DB.Close() })
		if err := s.node.RenewLease(t.Context()); err != nil { // as the node's job does
			t.Fatal(err)
		}
		return s
	}
	compare := func(s *Server) (metrics string) {
		t.Helper()
		if err := s.compareNodes(t.Context()); err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		s.metrics.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		b, err := io.ReadAll(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	first := start(func(*config.Config) {})
	same := start(func(c *config.Config) { c.Listen, c.NodeURL, c.MaxCalls = ":81", "http://10.0.0.2", 7 })
	for _, s := range []*Server{first, same} {
		if got := compare(s); !strings.Contains(got, "purser_nodes_differ 0") || log.Len() > 0 {
			t.Fatalf("alike, but:\n%s", log.String())
		}
	}
	other := start(func(c *config.Config) {
		c.BaseURL, c.Stripe.Key = "https://other.example.com", "sk_test_second_key"
	})
	for _, s := range []*Server{first, other, first} {
		got := compare(s)
		for _, want := range []string{
			"purser_nodes_differ 2",
			`purser_alarms_total{alarm="nodes differ",subject="stripe"} 1`,
			`purser_alarms_total{alarm="nodes differ",subject="base_url"} 1`,
		} {
			if !strings.Contains(got, want) {
				t.Errorf("no %s", want)
			}
		}
	}
	if n := strings.Count(log.String(), "nodes differ"); n != 4 {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
	var stored string
	if err := first.DB.QueryRowContext(t.Context(), `SELECT MAX(settings) FROM nodes`).Scan(&stored); err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"sk_test", "example.com", "whsec"} {
		if strings.Contains(log.String()+stored, value) {
			t.Errorf("%q is told:\n%s\n%s", value, log.String(), stored)
		}
	}
	if err := other.node.EndLease(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := compare(first); !strings.Contains(got, "purser_nodes_differ 0") {
		t.Error("a node that has left differs")
	}
}
