package config

import (
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/purserhq/purser/internal/pages/operator"
)

// A Warning is a setting with which a node works, and which is not safe.
type Warning struct {
	Setting string
	Text    string // why, without the setting's value
	Remedy  string
}

// Warnings returns what is not safe. A node logs it when it starts, and purser doctor shows it.
func (c Config) Warnings() (list []Warning) {
	warn := func(setting, text, remedy string) { list = append(list, Warning{setting, text, remedy}) }
	if !isDatabaseSafe(c.Database) {
		warn("database", "the way to the database is not sure to be encrypted and to lead to the right server",
			"add sslmode=verify-full (and sslrootcert) to the URL")
	}
	for _, u := range []struct{ name, url string }{
		{"base_url", c.BaseURL}, {"auth_url", c.AuthURL}, {"dashboard_url", c.DashboardURL},
	} {
		if strings.HasPrefix(u.url, "http://") && !isLocalURL(u.url) {
			warn(u.name, "an http URL: tokens and passwords cross the network in plain text, and cookies lack Secure",
				"put a proxy with TLS before the nodes, and name its https URL")
		}
	}
	for _, n := range c.TrustedProxies {
		if n.Bits() == 0 {
			warn("trusted_proxies", n.String()+" trusts everybody: any client may say that its address is another",
				"name the addresses of your proxies")
		}
	}
	if len(c.TrustedProxies) == 0 && strings.HasPrefix(c.BaseURL, "https://") {
		warn("trusted_proxies", "no proxy is trusted, and base_url is https: everybody seems to have the address of "+
			"the proxy with TLS, and one who guesses passwords locks all others out",
			"name the networks of your proxies")
	}
	for _, token := range c.OperatorTokens {
		_, token = operator.SplitToken(token)
		if characters := slices.Compact(slices.Sorted(strings.SplitSeq(token, ""))); len(characters) < 12 {
			warn("operator_token", "a token with so few different characters may be guessed",
				"make one with: head -c 32 /dev/urandom | base64")
		}
	}
	for name, p := range c.Providers {
		// Each provider's own form: a wrong one is answered 404 for every call.
		if hasVersion := strings.HasSuffix(strings.TrimRight(p.BaseURL, "/"), "/v1"); p.BaseURL != "" &&
			hasVersion != (name == "openai") {
			remedy := "remove it: https://api.example.com"
			if name == "openai" {
				remedy = "end it like OpenAI's: https://api.openai.com/v1"
			}
			warn("providers."+name+".base_url", "its path is unusual: calls may be answered 404", remedy)
		}
	}
	if c.StripeMode() == StripeTest && strings.HasPrefix(c.BaseURL, "https://") && c.buysCalls() {
		warn("stripe.key", "a key of the test mode: users top up by test cards, and spend that at real providers",
			"use a key of the live mode, sk_live_…, on a new database")
	}
	if c.StripeMode() == StripeLive && c.Stripe.BaseURL != "" {
		warn("stripe.base_url", "the live key is sent to an address that is not Stripe's",
			"remove stripe.base_url, or use a test key")
	}
	return list
}

// buysCalls reports whether calls of live apps cost the operator money.
func (c Config) buysCalls() bool {
	for _, p := range c.Providers {
		if len(p.Keys) > 0 {
			return true
		}
	}
	return false
}

// isDatabaseSafe reports whether nobody between can read what goes to a database, or answer in its place.
func isDatabaseSafe(database string) bool {
	u, err := url.Parse(database)
	if err != nil || !strings.HasPrefix(u.Scheme, "postgres") {
		return true
	}
	q := u.Query()
	hosts := strings.Split(u.Host, ",")
	if host := q.Get("host"); host != "" {
		hosts = strings.Split(host, ",")
	}
	for _, host := range hosts {
		if !strings.HasPrefix(host, "/") && !isLocalHost(host) && q.Get("sslmode") != "verify-full" {
			return false
		}
	}
	return true
}

// IsLocal reports whether the service is reached on this machine alone.
func (c Config) IsLocal() bool {
	return isLocalURL(c.BaseURL) && isLocalURL(c.AuthURL) && isLocalURL(c.DashboardURL)
}

func isLocalURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && isLocalHost(u.Host)
}

// isLocalHost reports whether a host, with or without a port, is this machine.
func isLocalHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && ip.IsLoopback()
}
