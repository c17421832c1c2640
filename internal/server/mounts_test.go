package server

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/config"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// pages are for browsers, and no part of the contract.
var pages = []string{
	"GET /components/v1/purser.js",           // a script, for pages of apps
	"GET /checkpoint", "GET /tile/{path...}", // files of the public log, in the form of others' specification
	"GET /favicon.ico", "GET /robots.txt", "GET /docs", "GET /docs/search", "GET /models",
	"GET /search",
	"GET /status",
	"GET /docs/{page}", "POST /docs/{page}", "GET /reference", "POST /reference",
	"GET /sign-in", "GET /signed-out", "GET /{$}", "POST /oauth/authorize", "GET /device", "POST /device",
	"POST /sign-in",
	"POST /sign-out", "GET /sign-out/here",
	"GET /dashboard", "GET /activity", "GET /activity.csv", "GET /activity/{id}", "GET /activity/{id}/proof",
	"GET /activity/{id}/proof.json", "GET /activity/history.json", "GET /requests/{id}",
	"GET /dashboard/running", "GET /dashboard/pause", "POST /dashboard/pause",
	"GET /statements/{file}", "POST /connections/{id}/calls/{call}/stop", "POST /connections/{id}/children/{child}/end",
	"GET /connections/{id}", "GET /connections/{id}/live", "POST /connections/{id}/freeze",
	"POST /connections/{id}/resume",
	"GET /connections/{id}/revoke", "POST /connections/{id}/revoke",
	"GET /connections", "GET /connections/{id}/increase", "POST /connections/{id}/increase",
	"GET /connections/{id}/review", "POST /connections/{id}/review",
	"GET /allocation-requests/{id}", "POST /allocation-requests/{id}",
	"GET /sign-up", "POST /sign-up", "GET /sign-up/confirm/{token}", "POST /sign-up/confirm/{token}",
	"GET /sign-up/invited/{token}", "POST /sign-up/invited/{token}",
	"GET /forgot", "POST /forgot", "GET /reset/{token}", "POST /reset/{token}",
	"GET /sign-in/code", "POST /sign-in/code", "GET /settings", "POST /settings/developer", "GET /settings/data",
	"POST /settings/data/export", "GET /settings/data/close", "POST /settings/data/close",
	"GET /settings/security", "POST /settings/security/sessions", "GET /settings/password", "POST /settings/password",
	"GET /settings/email", "POST /settings/email", "GET /settings/email/confirm/{token}",
	"POST /settings/email/confirm/{token}",
	"GET /settings/two-step", "POST /settings/two-step", "GET /settings/two-step/setup",
	"POST /settings/two-step/setup",
	"POST /sign-in/provider", "GET /sign-in/provider/callback", "GET /settings/provider", "POST /settings/provider",
	"POST /settings/provider/unlink",
	"GET /settings/two-step/codes", "POST /settings/two-step/codes", "GET /settings/two-step/off",
	"POST /settings/two-step/off",
	"POST /sign-in/passkey", "GET /sign-in/passkey", "POST /sign-in/passkey/answer", "GET /settings/passkeys/new",
	"POST /settings/passkeys/new",
	"GET /settings/passkeys/make", "POST /settings/passkeys/make", "GET /settings/passkeys/{id}",
	"POST /settings/passkeys/{id}",
	// the last is for Stripe
	"GET /top-up", "POST /top-up", "GET /top-ups", "GET /top-ups/{id}", "GET /top-ups/{id}/invoice",
	"GET /top-up/auto", "POST /top-up/auto", "GET /top-up/refund", "POST /top-up/refund",
	"POST /top-up/auto/off", "POST /top-up/auto/card", "POST /top-up/auto/card/remove", "POST /stripe/events",
	"GET /settings/notices", "POST /settings/notices", "GET /unsubscribe/{token}", "POST /unsubscribe/{token}",
	"GET /developer", "GET /developer/apps/new", "POST /developer/apps", "GET /developer/test-accounts",
	"POST /developer/test-accounts", "POST /developer/test-accounts/{account}/fund",
	"GET /developer/test-accounts/{account}/delete", "POST /developer/test-accounts/{account}/delete",
	"GET /developer/payouts", "POST /developer/payouts", "GET /developer/statements/{file}",
	"GET /developer/keys", "GET /developer/keys/{provider}/delete",
	"POST /developer/keys", "POST /developer/keys/{provider}/delete", "GET /developer/apps/{id}",
	"GET /developer/apps/{id}/live", "GET /developer/apps/{id}/settings", "POST /developer/apps/{id}/settings",
	"POST /developer/apps/{id}/profile", "POST /developer/apps/{id}/domain",
	"POST /developer/apps/{id}/logo", "POST /developer/apps/{id}/logo/delete", "GET /developer/apps/{id}/secret",
	"GET /developer/apps/{id}/client-type", "POST /developer/apps/{id}/client-type",
	"POST /developer/apps/{id}/secret", "GET /developer/apps/{id}/switch", "POST /developer/apps/{id}/switch",
	"GET /developer/apps/{id}/features", "POST /developer/apps/{id}/features",
	"GET /developer/apps/{id}/features/{slug}",
	"POST /developer/apps/{id}/features/{slug}", "GET /developer/apps/{id}/webhooks",
	"POST /developer/apps/{id}/webhooks", "GET /developer/apps/{id}/webhooks/{endpoint}",
	"POST /developer/apps/{id}/webhooks/{endpoint}",
	"GET /developer/apps/{id}/webhooks/{endpoint}/rotate", "GET /developer/apps/{id}/webhooks/{endpoint}/delete",
	"POST /developer/apps/{id}/webhooks/{endpoint}/rotate", "POST /developer/apps/{id}/webhooks/{endpoint}/delete",
	"POST /developer/apps/{id}/webhooks/{endpoint}/test", "POST /developer/apps/{id}/webhooks/{endpoint}/recover",
	"GET /developer/apps/{id}/webhooks/events", "POST /developer/apps/{id}/webhooks/events",
	"GET /developer/apps/{id}/webhooks/{endpoint}/deliveries.csv",
	"GET /developer/apps/{id}/webhooks/{endpoint}/deliveries/{delivery}/state",
	"GET /developer/apps/{id}/webhooks/{endpoint}/deliveries/{delivery}",
	"POST /developer/apps/{id}/webhooks/{endpoint}/deliveries/{delivery}",
	"GET /developer/apps/{id}/analytics", "GET /developer/apps/{id}/analytics.csv", "GET /developer/apps/{id}/requests",
	"GET /developer/apps/{id}/requests.csv",
	"GET /developer/apps/{id}/requests/{request}/refund", "POST /developer/apps/{id}/requests/{request}/refund",
	"GET /developer/apps/{id}/requests/{request}", "GET /developer/apps/{id}/go-live",
	"POST /developer/apps/{id}/go-live",
	"GET /developer/apps/{id}/members", "GET /developer/apps/{id}/members/invite",
	"POST /developer/apps/{id}/members/invite", "GET /developer/apps/{id}/members/{member}",
	"POST /developer/apps/{id}/members/{member}", "GET /developer/apps/{id}/members/{member}/remove",
	"POST /developer/apps/{id}/members/{member}/remove",
	"POST /developer/apps/{id}/invitations/{invitation}/revoke",
	"GET /developer/apps/{id}/leave", "POST /developer/apps/{id}/leave",
	"GET /invitations", "GET /invitations/{token}", "POST /invitations/{token}",
	"GET /developer/apps/{id}/playground", "POST /developer/apps/{id}/playground",
	"POST /developer/apps/{id}/playground/stream", "POST /developer/apps/{id}/playground/stop",
	"POST /developer/apps/{id}/playground/code",
	"GET /developer/apps/{id}/playground/voice", "POST /developer/apps/{id}/playground/voice",
	"GET /developer/apps/{id}/voice/{session}", "POST /developer/apps/{id}/voice/{session}/end",
	"GET /operator", "GET /operator/verify", "POST /operator/verify", "GET /operator/reviews",
	"GET /operator/reviews/{id}", "POST /operator/reviews/{id}",
	"GET /operator/apps", "GET /operator/apps/{id}", "POST /operator/apps/{id}", "GET /operator/accounts",
	"GET /operator/accounts/{id}", "GET /operator/accounts/{id}/timeline",
	"GET /operator/accounts/{id}/credit", "POST /operator/accounts/{id}/credit",
	"GET /operator/accounts/{id}/sign-out", "POST /operator/accounts/{id}/sign-out",
	"GET /operator/accounts/{id}/reset-two-step", "POST /operator/accounts/{id}/reset-two-step",
	"GET /operator/accounts/{id}/suspend", "POST /operator/accounts/{id}/suspend",
	"GET /operator/accounts/{id}/lift", "POST /operator/accounts/{id}/lift",
	"GET /operator/accounts/{id}/close", "POST /operator/accounts/{id}/close",
	"GET /operator/accounts/{id}/return", "POST /operator/accounts/{id}/return",
	"GET /operator/accounts/{id}/settle", "POST /operator/accounts/{id}/settle",
	"GET /operator/connections/{id}/revoke", "POST /operator/connections/{id}/revoke",
	"GET /operator/invitations", "POST /operator/invitations",
	"GET /operator/connections/{id}", "POST /operator/connections/{id}", "GET /operator/ledger/{id}",
	"GET /operator/ledger/{id}/reverse", "POST /operator/ledger/{id}/reverse",
	"GET /operator/risk", "GET /operator/providers", "GET /operator/prices", "GET /operator/prices.csv",
	"GET /operator/prices/compare", "GET /operator/log", "GET /operator/log.csv",
	"GET /operator/log/{id}",
	"GET /operator/settings", "POST /operator/settings", "POST /operator/settings/{id}",
	"GET /operator/incidents", "POST /operator/incidents", "GET /operator/incidents/{id}",
	"POST /operator/incidents/{id}"}

// Pages are the pages, for tests from outside.
var Pages = pages

// Another envelope key than the database's is refused at the start (decision
// 007).
func TestEnvelopeKeyIsTheDatabases(t *testing.T) {
	t.Parallel()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			c := config.Config{Database: dbtest.URL(t, e), Lease: time.Minute, Policy: policy.Default}
			for _, try := range []struct {
				key  byte
				says string
			}{{1, ""}, {2, "envelope_key: "}, {1, ""}} {
				c.EnvelopeKeys = [][]byte{bytes.Repeat([]byte{try.key}, 32)}
				s, err := Open(t.Context(), c, slog.New(slog.DiscardHandler), false)
				if (err == nil) != (try.says == "") || err != nil && !strings.HasPrefix(err.Error(), try.says) {
					t.Errorf("key %d: %v", try.key, err)
				}
				if err == nil && s.DB.Close() != nil {
					t.Error("the database does not close")
				}
			}
		})
	}
}

// TestMounts compares what the server mounts with the operations of openapi.yaml,
// by method, path and the names of path parameters, both ways.
func TestMounts(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), config.Config{
		Database:       dbtest.URL(t, db.SQLite),
		Lease:          time.Minute,
		EnvelopeKeys:   [][]byte{make([]byte, 32)},
		OperatorTokens: []string{strings.Repeat("x", 32)},
		Policy:         policy.Default,
	}, slog.New(slog.DiscardHandler), false)
	if err != nil {
		t.Fatal(err)
	}
	defer s.DB.Close()
	s.Mount(ui.Home{})
	mounted := slices.DeleteFunc(s.Router.Routes(), func(route string) bool {
		return strings.HasPrefix(route, "GET /assets/")
	})
	documented := apitest.Routes()
	for _, route := range mounted {
		if !slices.Contains(documented, route) && !slices.Contains(pages, route) {
			t.Errorf("%s is mounted, and not in openapi.yaml", route)
		}
	}
	for _, route := range slices.Concat(documented, pages) {
		if !slices.Contains(mounted, route) {
			t.Errorf("%s is promised, and not mounted", route)
		}
	}
	if len(mounted) != len(documented)+len(pages) || len(documented) < 20 {
		t.Errorf("%d mounted, %d documented, %d pages", len(mounted), len(documented), len(pages))
	}
}

// TestChartPublishesAllButTheOperators compares the paths that the Helm chart's Ingress publishes with the routes: each
// path serves something, and each route is served, but those of operators, which are not.
func TestChartPublishesAllButTheOperators(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/helm/purser/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values struct{ Ingress struct{ Paths []string } }
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	unused := slices.Clone(values.Ingress.Paths)
	for _, route := range append(slices.Concat(apitest.Routes(), pages), "GET /assets/{path...}") {
		_, path, _ := strings.Cut(route, " ")
		serves := func(prefix string) bool { return strings.HasPrefix(path+"/", prefix+"/") } // as Kubernetes has it
		unused = slices.DeleteFunc(unused, serves)
		published := path == "/{$}" || slices.ContainsFunc(values.Ingress.Paths, serves)
		forOperators := strings.HasPrefix(path+"/", "/operator/") || strings.HasPrefix(path+"/", "/v1/operator/")
		if published == forOperators {
			t.Errorf("%s: published %t", route, published)
		}
	}
	if len(unused) > 0 {
		t.Errorf("nothing is at %q", unused)
	}
}

// Failed attempts are counted by the client's address: behind a proxy of ours by
// what it says, and else by where they really come from.
func TestBehindAProxy(t *testing.T) {
	t.Parallel()
	// requests of httptest come from 192.0.2.1
	for proxies, guesserLocksOut := range map[string]bool{"192.0.2.0/24": false, "10.0.0.0/8": true} {
		t.Run(proxies, func(t *testing.T) {
			t.Parallel()
			s, err := Open(t.Context(), config.Config{
				Database:       dbtest.URL(t, db.SQLite),
				Lease:          time.Minute,
				EnvelopeKeys:   [][]byte{make([]byte, 32)},
				OperatorTokens: []string{strings.Repeat("x", 32)},
				Policy:         policy.Default,
				TrustedProxies: []netip.Prefix{netip.MustParsePrefix(proxies)},
			}, slog.New(slog.DiscardHandler), false)
			if err != nil {
				t.Fatal(err)
			}
			defer s.DB.Close()
			s.Mount(ui.Home{})
			guess := func(from string) int {
				r, w := httptest.NewRequest("POST", "/v1/operator/roles", nil), httptest.NewRecorder()
				r.Header.Set("Authorization", "Bearer wrong")
				r.Header.Set("X-Forwarded-For", "198.51.100.1, "+from)
				s.rootHandler().ServeHTTP(w, r)
				return w.Code
			}
			for i := 0; guess("203.0.113.9") != http.StatusTooManyRequests; i++ {
				if i == 100 {
					t.Fatal("a hundred guesses, and none is refused")
				}
			}
			if got := guess("203.0.113.10") == http.StatusTooManyRequests; got != guesserLocksOut {
				t.Errorf("others are locked out: %t", got)
			}
		})
	}
}
