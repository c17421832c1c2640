package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/purserhq/purser/internal/config"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/people/stripeapi"
)

// doctorClient follows no redirects: they would take a key along, and apps follow none.
var doctorClient = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
	return http.ErrUseLastResponse
}}

// getStatus sends a GET and returns the status of the answer, and where it redirects to.
func getStatus(ctx context.Context, address string, header http.Header) (status int, location string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	r.Header = header
	resp, err := doctorClient.Do(r)
	if err != nil {
		if e, isURL := errors.AsType[*url.Error](err); isURL {
			err = e.Err // without the address
		}
		return 0, "", err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, resp.Header.Get("Location"), resp.Body.Close()
}

// urlChecks checks each public URL once.
func urlChecks(c config.Config) (list []check) {
	var seen []string
	for _, u := range []struct{ name, address string }{
		{"base_url", c.BaseURL}, {"auth_url", c.AuthURL}, {"dashboard_url", c.DashboardURL},
	} {
		if u.address == "" || slices.Contains(seen, u.address) {
			continue
		}
		seen = append(seen, u.address)
		list = append(list, check{u.name, func(ctx context.Context) finding { return checkURL(ctx, u.address) }})
	}
	return list
}

// checkURL checks that a public URL is https, and that purser answers there.
func checkURL(ctx context.Context, address string) finding {
	u, err := url.Parse(address)
	if err != nil {
		return failure(err.Error(), "write it as https://HOST")
	}
	if u.Scheme != "https" && !isLoopback(u.Hostname()) {
		return failure(address+" is not https: tokens and passwords would be sent in the clear",
			"let your reverse proxy serve TLS, and write https://")
	}
	status, location, err := getStatus(ctx, address+"/healthz", http.Header{})
	switch {
	case err != nil:
		return warning(fmt.Sprintf("%s can't be reached from here: %v", address, err),
			"once purser runs: check DNS, the reverse proxy and its certificate")
	case location != "":
		return failure(fmt.Sprintf("%s redirects to %s; apps follow no redirects", address, location),
			"use the final address, or take the redirect away")
	case status != http.StatusOK:
		return warning(fmt.Sprintf("%s/healthz answers %d, not 200", address, status),
			"once purser runs: check that your reverse proxy leads here")
	case u.Scheme != "https":
		return warning(address+" is not https, and reaches this machine only", "for production use an https address")
	}
	return ok(address + " is https, and purser answers there")
}

func isLoopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// A modelList is the request by which a provider lists its models, and costs nothing.
type modelList struct {
	base, path string
	header     func(key string) http.Header
}

var modelLists = map[string]modelList{
	"openai": {"https://api.openai.com/v1", "/models", func(key string) http.Header {
		return http.Header{"Authorization": {"Bearer " + key}}
	}},
	"anthropic": {"https://api.anthropic.com", "/v1/models?limit=1", func(key string) http.Header {
		return http.Header{"X-Api-Key": {key}, "Anthropic-Version": {"2023-06-01"}}
	}},
	"google": {"https://generativelanguage.googleapis.com", "/v1beta/models?pageSize=1", func(key string) http.Header {
		return http.Header{"X-Goog-Api-Key": {key}}
	}},
}

// providerChecks checks the key of each provider that has one.
func providerChecks(c config.Config) (list []check) {
	for _, name := range []string{"openai", "anthropic", "google"} {
		p := c.Providers[name]
		for i, key := range p.Keys {
			who := name
			if len(p.Keys) > 1 {
				who = fmt.Sprintf("%s, key %d of %d", name, i+1, len(p.Keys))
			}
			list = append(list, check{"providers." + name, func(ctx context.Context) finding {
				return checkProvider(ctx, name, who, p.BaseURL, key)
			}})
		}
	}
	if len(list) == 0 {
		list = append(list, check{"providers", func(context.Context) finding {
			return warning("no provider has a key: live apps can call no model",
				"set providers.openai.key or another one")
		}})
	}
	return list
}

func checkProvider(ctx context.Context, name, who, baseURL, key string) finding {
	models := modelLists[name]
	base := cmp.Or(baseURL, models.base)
	status, _, err := getStatus(ctx, base+models.path, models.header(key))
	return describeKeyAnswer(who, "providers."+name+".key", base, status, err)
}

// describeKeyAnswer says what an answer to an authenticated request means for the key.
func describeKeyAnswer(who, setting, base string, status int, err error) finding {
	switch {
	case err != nil:
		return failure(fmt.Sprintf("%s can't be reached: %v", base, err),
			"check the network, and the base_url if you set one")
	case status == http.StatusOK:
		return ok(who + " accepts the key")
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusBadRequest:
		return failure(fmt.Sprintf("%s does not accept the key (status %d)", who, status),
			"set "+setting+" to a key that is valid, and has the permissions that the documentation names")
	case status == http.StatusTooManyRequests:
		return warning(who+" answers 429: too many requests, or no credit",
			"check the account's limits and its balance")
	}
	return warning(fmt.Sprintf("%s answers %d", who, status), "try again later")
}

func checkStripe(ctx context.Context, c config.Config) finding {
	if c.Stripe.Key == "" {
		return warning("stripe.key is not set: users cannot top up", "set stripe.key and stripe.webhook_secret")
	}
	if c.Stripe.WebhookSecret == "" {
		return failure("stripe.webhook_secret is not set: purser serve refuses to start",
			"add the endpoint DASHBOARD_URL/stripe/events at Stripe, and set its signing secret")
	}
	base := c.Stripe.BaseURL
	if base == "" {
		base = "https://api.stripe.com"
	}
	status, _, err := getStatus(ctx, base+"/v1/checkout/sessions?limit=1",
		http.Header{"Authorization": {"Bearer " + c.Stripe.Key}})
	f := describeKeyAnswer("Stripe", "stripe.key", base, status, err)
	if strings.HasPrefix(c.Stripe.Key, "rk_") && (f.State == checkOK || status == http.StatusForbidden) {
		if lacks := findLacks(ctx, c, base); len(lacks) > 0 {
			return failure("stripe.key lacks permissions: "+strings.Join(lacks, ", "),
				"add them to the restricted key in Stripe's dashboard")
		}
	}
	if f.State == checkOK && (strings.HasPrefix(c.Stripe.Key, "sk_test_") ||
		strings.HasPrefix(c.Stripe.Key, "rk_test_")) {
		return warning("Stripe accepts the key, which is for test payments", "for production use the live key")
	}
	return f
}

// findLacks returns the permissions that a restricted key lacks. What Stripe does not answer is no lack.
func findLacks(ctx context.Context, c config.Config, base string) (lacks []string) {
	client := stripeapi.NewClient(c.Stripe.Key, base, nil, 0)
	for _, p := range stripeapi.Permissions(c.Payouts.Every > 0) {
		if p.Probe(ctx, client).Outcome == stripeapi.Ours {
			lacks = append(lacks, p.Name)
		}
	}
	return lacks
}

func checkMail(ctx context.Context, c config.Config) finding {
	if c.SMTP.Host == "" {
		return warning("smtp.url is not set: no sign-up can be confirmed, no password reset",
			"set smtp.url and smtp.from; until then, purser operator invite opens accounts")
	}
	if err := c.SMTP.Check(ctx); err != nil {
		return failure(fmt.Sprintf("%s: %v", c.SMTP, err),
			"check smtp.url: host, port, user, password, and its certificate")
	}
	if c.SMTP.Unencrypted {
		return warning(c.SMTP.String()+" accepts the connection, without TLS", "use TLS unless it is on this network")
	}
	return ok(c.SMTP.String() + " accepts the connection and the sign-in")
}

// checkPrices checks that the file of prices can be read.
func checkPrices(path string) finding {
	if _, err := catalog.Open(path, slog.New(slog.DiscardHandler)); err != nil {
		return failure(err.Error(), "correct the file; its head explains each member")
	}
	return ok(path + " is correct")
}
