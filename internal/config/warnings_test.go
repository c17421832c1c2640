package config

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/people/topups"
)

// TestWarnings names each setting with which a node works, and which is not safe. No warning has a setting's value.
func TestWarnings(t *testing.T) {
	t.Parallel()
	token := strings.Repeat("0123456789abcdef", 2)
	proxies := func(network string) Config {
		return Config{TrustedProxies: []netip.Prefix{netip.MustParsePrefix(network)}}
	}
	paid := func(key, url string) Config { return Config{Stripe: topups.Config{Key: key, BaseURL: url}} }
	at := func(provider, url string) Config {
		return Config{Providers: map[string]Provider{provider: {BaseURL: url}}}
	}
	sold := func(key, url string) Config {
		c := at("openai", "")
		c.Providers["openai"] = Provider{Keys: []string{"sk-hidden"}}
		c.Stripe.Key, c.BaseURL = key, url
		c.TrustedProxies = proxies("10.0.0.0/8").TrustedProxies
		return c
	}
	far := "postgres://p:hidden@db"
	for name, tt := range map[string]struct {
		c    Config
		want []string
	}{
		"nothing":             {Config{Database: "sqlite:x", OperatorTokens: []string{token}}, nil},
		"a socket":            {Config{Database: "postgres:///purser?host=/run/postgresql"}, nil},
		"this machine":        {Config{Database: "postgres://p:hidden@127.0.0.1:5432/purser"}, nil},
		"another machine":     {Config{Database: "postgres://p:hidden@db.internal/purser"}, []string{"database"}},
		"encrypted, unproven": {Config{Database: far + "/purser?sslmode=require"}, []string{"database"}},
		"proven":              {Config{Database: "postgres://p:hidden@db/purser?sslmode=verify-full"}, nil},
		"two, one far away":   {Config{Database: "postgres://p:hidden@localhost,db2/purser"}, []string{"database"}},
		"host as parameter":   {Config{Database: "postgres:///purser?host=db"}, []string{"database"}},
		"http here":           {Config{BaseURL: "http://localhost:8080", AuthURL: "http://[::1]:1"}, nil},
		"http": {Config{BaseURL: "http://a", AuthURL: "http://b", DashboardURL: "http://c"},
			[]string{"base_url", "auth_url", "dashboard_url"}},
		"OpenAI without /v1": {
			at("openai", "https://api.openai.com"),
			[]string{"providers.openai.base_url"},
		},
		"OpenAI with /v1":  {at("openai", "https://api.openai.com/v1/"), nil},
		"Google with /v1":  {at("google", "https://x.example/v1"), []string{"providers.google.base_url"}},
		"Google without":   {at("google", "https://x.example"), nil},
		"all are proxies":  {proxies("0.0.0.0/0"), []string{"trusted_proxies"}},
		"all of IPv6":      {proxies("::/0"), []string{"trusted_proxies"}},
		"one proxy":        {proxies("10.0.0.0/8"), nil},
		"a weak token":     {Config{OperatorTokens: []string{strings.Repeat("hidden", 8)}}, []string{"operator_token"}},
		"live key astray":  {paid("sk_live_hidden", "http://x"), []string{"stripe.base_url"}},
		"test key astray":  {paid("sk_test_x", "http://x"), nil},
		"test cards":       {sold("sk_test_hidden", "https://a.example"), []string{"stripe.key"}},
		"restricted key":   {sold("rk_test_hidden", "https://a.example"), []string{"stripe.key"}},
		"test cards here":  {sold("sk_test_hidden", "http://localhost"), nil},
		"real cards":       {sold("sk_live_hidden", "https://a.example"), nil},
		"no proxy":         {Config{BaseURL: "https://a.example"}, []string{"trusted_proxies"}},
		"live key at home": {paid("sk_live_x", ""), nil},
	} {
		var got []string
		for _, w := range tt.c.Warnings() {
			got = append(got, w.Setting)
			if w.Text == "" || w.Remedy == "" || strings.Contains(w.Text+w.Remedy, "hidden") {
				t.Errorf("%s: %+v", name, w)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
