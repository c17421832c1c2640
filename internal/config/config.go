// Package config has the settings of `purser serve`: one struct, filled from a YAML file,
// then the environment, then flags, and checked once (decision 048). An unknown key or a
// wrong value is an error that names the key and its place, and repeats no secret.
package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"filippo.io/age"

	"github.com/purserhq/purser/internal/apps/payouts"
	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/backup"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/seal"
	"github.com/purserhq/purser/internal/base/telemetry"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/ledger/proofs"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/pages/operator"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/identity"
	"github.com/purserhq/purser/internal/people/mail"
	"github.com/purserhq/purser/internal/people/topups"
)

// Config is a checked configuration.
type Config struct {
	Database         string           // sqlite:PATH or postgres://…
	Listen           string           // where the API is served
	AuthListen       string           // where the browser's authorization is served; "" = Listen
	MetricsListen    string           // where the metrics are served, for the operator; "" = nowhere
	BaseURL          string           // how apps reach the API
	AuthURL          string           // how browsers reach authorization
	DashboardURL     string           // how users reach their dashboard
	Policy           policy.Policy    // the first one of a database (decision 096)
	Given            []string         // names of the settings that are not by default
	SignUps          identity.SignUps // who may create an account
	EnvelopeKeys     [][]byte         // 32 bytes each, for secrets at rest: the first seals, all open
	Site             web.Site         // who runs the service, for pages and emails
	EnvelopeCommand  string           // prints EnvelopeKeys in their place, such as a client of a KMS
	OperatorTokens   []string         // bearer tokens of the operator's API; none = there is no such API
	TrustedProxies   []netip.Prefix   // proxies whose X-Forwarded-For is trusted
	Lease            time.Duration    // how long holds outlive their node
	Drain            time.Duration    // how long a stopping node serves while it is not ready
	Grace            time.Duration    // how long a stopping node lets calls finish
	MaxCalls         int              // calls in flight on a node; 0 = no bound
	MaxProviderCalls int              // of them, those of one provider; 0 = no bound
	StoredBytes      int64            // of responses that an app may have stored
	CallMemory       int64            // bytes that calls may take on a node; 0 = by the machine's memory
	Retention        Retention        // how long what is not money is kept
	PricesFile       string           // file of prices that go before the built-in ones; "" = none
	WebhookAllow     []netip.Prefix   // non-public addresses that webhooks may go to
	NodeURL          string           // how other nodes reach this one; "" = they cannot
	VerifyAt         string           // time of day in UTC, as 03:00, of the daily verification; "" = none
	Backup           backup.Settings  // the daily backups
	Witnesses        []*proofs.Witness
	Drill            bool          // reach nothing outside: only by the flag --drill
	DrillWrites      bool          // take requests that change something in a drill: only by the flag --drill-writes
	VoiceIdleTimeout time.Duration // how long a voice session may be silent
	LogLevel         string        // debug, info, warn, error
	LogFormat        string        // auto, text, json; auto is text on a terminal
	LogSample        money.PPM     // share of successful requests that are logged
	Providers        map[string]Provider
	Stripe           topups.Config
	Payouts          payouts.Config        // to developers; Every 0 = none
	OIDC             identity.OpenIDConfig // the identity provider; the zero value = none
	SMTP             mail.Server           // the mail server; the zero value = mail stays queued
	OTLP             telemetry.Config      // where traces and metrics go; the zero value = nowhere
}

// String names the configuration without its secrets, for formatted printing.
func (c Config) String() string { return "configuration of " + c.BaseURL }

// The modes of Stripe.
const StripeTest, StripeLive = "test", "live"

// StripeMode returns the mode that the key at Stripe is of; "" = it does not say, or there is none.
func (c Config) StripeMode() string {
	for _, mode := range []string{StripeTest, StripeLive} {
		if strings.HasPrefix(c.Stripe.Key, "sk_"+mode+"_") || strings.HasPrefix(c.Stripe.Key, "rk_"+mode+"_") {
			return mode
		}
	}
	return ""
}

// WithoutOutside returns the configuration of a drill: without all by which a node acts outside its database.
func (c Config) WithoutOutside() Config {
	c.Providers = map[string]Provider{}
	c.Stripe = topups.Config{}
	c.Payouts = payouts.Config{}
	c.SMTP = mail.Server{}
	c.OTLP = telemetry.Config{}
	c.WebhookAllow = nil
	c.Witnesses = nil
	c.NodeURL = ""
	c.Backup = backup.Settings{}
	return c
}

// Provider is how one AI provider is reached. Without a key it is not offered
// to live apps.
type Provider struct {
	BaseURL string
	Keys    []string // they serve in turn, and for each other (decision 099)
	// Store lets OpenAI keep prompts and answers for up to 30 days, so that a broken stream
	// is charged by its record. The consent screen says so.
	Store bool
}

// A Key is one setting.
type Key struct {
	Name   string // as in the file: providers.openai.key
	Help   string
	Secret bool // not to be given as a flag, which every user of the machine can read
	set    func(c *Config, value string) error
}

// Variable is the key's name in the environment: PURSER_PROVIDERS_OPENAI_KEY.
func (k Key) Variable() string {
	return "PURSER_" + strings.ToUpper(strings.ReplaceAll(k.Name, ".", "_"))
}

// FileVariable names a file with the value in the environment: PURSER_PROVIDERS_OPENAI_KEY_FILE.
func (k Key) FileVariable() string { return k.Variable() + "_FILE" }

// Flag is the key's name on the command line: providers-openai-base-url.
func (k Key) Flag() string { return strings.NewReplacer(".", "-", "_", "-").Replace(k.Name) }

// CheckDatabase returns an error, which repeats no password, unless a text is the URL of a database.
func CheckDatabase(url string) error {
	if strings.HasPrefix(url, "sqlite:") {
		return nil
	}
	if !strings.HasPrefix(url, "postgres://") && !strings.HasPrefix(url, "postgresql://") {
		return errors.New("must be sqlite:PATH or postgres://…")
	}
	if hasBarePassword(url) {
		return errors.New("is not a URL: write @ / : ? and # of a password as %40 %2F %3A %3F and %23")
	}
	return nil
}

// hasBarePassword reports whether the address of a database has an @ that belongs to a password. It would be taken for
// the end of the password, and the rest of it for a host, which errors name.
func hasBarePassword(database string) bool {
	_, rest, _ := strings.Cut(database, "://")
	rest, _, _ = strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	return strings.Count(authority, "@") > 1 || strings.Contains(path, "@")
}

// Keys returns all settings.
func Keys() []Key { return slices.Clone(keys) }

var keys = append(ownKeys, policyKeys()...)

// policyKeys returns the keys of the policy.
func policyKeys() (list []Key) {
	for _, s := range policy.Settings {
		list = append(list, Key{s.Name, s.Help, false, func(c *Config, v string) error {
			return s.Set(&c.Policy, v)
		}})
	}
	return list
}

var ownKeys = []Key{
	{"database", "sqlite:PATH or postgres://…", false, func(c *Config, v string) error {
		c.Database = v
		return CheckDatabase(v)
	}},
	{"listen", "address of the API, such as 127.0.0.1:8080", false,
		setAddress(func(c *Config) *string { return &c.Listen })},
	{"auth_listen", "address of the authorization pages, if not the API's", false,
		setAddress(func(c *Config) *string { return &c.AuthListen })},
	{"metrics_listen", "address of the metrics, which only the operator should reach; none if it is not set", false,
		setAddress(func(c *Config) *string { return &c.MetricsListen })},
	{"base_url", "URL by which apps reach the API", false, setURL(func(c *Config) *string { return &c.BaseURL })},
	{"auth_url", "URL by which browsers reach authorization", false,
		setURL(func(c *Config) *string { return &c.AuthURL })},
	{"dashboard_url", "URL by which users reach their dashboard", false,
		setURL(func(c *Config) *string { return &c.DashboardURL })},
	{"signups", "who may create an account: open (everybody), invited (by you or an app's owner), or closed",
		false, func(c *Config, v string) error {
			switch c.SignUps = identity.SignUps(v); c.SignUps {
			case identity.OpenSignUps, identity.InvitedSignUps, identity.ClosedSignUps:
				return nil
			}
			return errors.New("must be open, invited or closed")
		}},
	{"envelope_key", "32 bytes in base64, which encrypt secrets at rest; the same on every node. Of several, " +
		"separated by commas, the first encrypts and all decrypt", true,
		func(c *Config, v string) error {
			c.EnvelopeKeys = nil
			for text := range strings.SplitSeq(v, ",") {
				key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
				if err != nil || len(key) != seal.KeySize {
					c.EnvelopeKeys = nil
					return errors.New("must be 32 bytes in base64; make one with: head -c 32 /dev/urandom | base64")
				}
				c.EnvelopeKeys = append(c.EnvelopeKeys, key)
			}
			return nil
		}},
	{"envelope_key_command", "program with arguments, separated by spaces, that prints the envelope_key, such as the " +
		"client of a KMS; it is run at the start, for 10 seconds at most", false,
		setText(func(c *Config) *string { return &c.EnvelopeCommand })},
	{"operator.name", "name of the organization that runs the service, for pages and emails", false,
		func(c *Config, v string) error {
			if v == "" || len(v) > 80 || strings.ContainsFunc(v, func(r rune) bool { return !unicode.IsPrint(r) }) {
				return errors.New("must be 1 to 80 printable bytes")
			}
			c.Site.Operator = v
			return nil
		}},
	linkKey("operator.support_url", "where users ask for help, https://… or mailto:…, for pages and emails",
		func(c *Config) *string { return &c.Site.SupportURL }),
	linkKey("operator.terms_url", "the terms of the service, in the same places",
		func(c *Config) *string { return &c.Site.TermsURL }),
	linkKey("operator.privacy_url", "the privacy policy, in the same places",
		func(c *Config) *string { return &c.Site.PrivacyURL }),
	{"operator_token", "bearer token of the operator's API, at least 32 characters; without it there is no such API. " +
		"Several, separated by commas, are all taken. NAME:TOKEN names one for the audit log", true,
		func(c *Config, v string) error {
			c.OperatorTokens = nil
			for token := range strings.SplitSeq(v, ",") {
				token = strings.TrimSpace(token)
				name, secret := operator.SplitToken(token)
				if secret != token && !tokenName.MatchString(name) {
					c.OperatorTokens = nil
					return errors.New("the name of a token must be 1 to 40 of a-z, 0-9 and -, and begin with a letter")
				}
				if !isBearerToken(secret) {
					c.OperatorTokens = nil
					return errors.New("must be at least 32 characters of a bearer token; make one with: " +
						"head -c 32 /dev/urandom | base64")
				}
				c.OperatorTokens = append(c.OperatorTokens, token)
			}
			return nil
		}},
	{"lease", "how long holds outlive their node, such as 10s", false,
		setDuration(func(c *Config) *time.Duration { return &c.Lease }, time.Second, time.Hour)},
	{"drain", "how long a stopping node still serves while GET /readyz is 503, such as 5s; 0s = not at all", false,
		setDuration(func(c *Config) *time.Duration { return &c.Drain }, 0, 10*time.Minute)},
	{"grace", "how long a stopping node then lets calls finish, such as 5m", false,
		setDuration(func(c *Config) *time.Duration { return &c.Grace }, 0, time.Hour)},
	boundKey("max_calls", "calls that one node has in flight at the same time; more are answered 503",
		func(c *Config) *int { return &c.MaxCalls }),
	boundKey("max_provider_calls", "calls that one node has in flight at the same time at one provider",
		func(c *Config) *int { return &c.MaxProviderCalls }),
	{"call_memory", "memory that the requests and answers of calls may take on one node, such as 512MB or 4GB; half " +
		"of what the machine or the container has if it is not set", false,
		setBytes(func(c *Config) *int64 { return &c.CallMemory }, 64_000_000)},
	{"retention.responses", "how long responses are kept for replays, such as 168h", false,
		setDuration(func(c *Config) *time.Duration { return &c.Retention.Calls.Responses }, day, maxRetention)},
	{"retention.response_bytes", "bytes of responses that an app may have stored for replays by one node, such as " +
		"10GB; what is beyond it is answered and not stored", false,
		setBytes(func(c *Config) *int64 { return &c.StoredBytes }, 100_000_000)},
	{"retention.refusals", "how long refused calls are kept for the request log, such as 720h", false,
		setDuration(func(c *Config) *time.Duration { return &c.Retention.Calls.Refusals }, day, maxRetention)},
	{"retention.deliveries", "how long webhook deliveries and their attempts are kept, such as 720h", false,
		setDuration(func(c *Config) *time.Duration { return &c.Retention.Webhooks.Deliveries }, 7*day, maxRetention)},
	{"retention.events", "how long apps can read their events again, such as 2160h", false,
		setDuration(func(c *Config) *time.Duration { return &c.Retention.Webhooks.Events }, 7*day, maxRetention)},
	{"retention.mails", "how long mails that were sent or failed are kept, such as 720h", false,
		setDuration(func(c *Config) *time.Duration { return &c.Retention.Mails }, day, maxRetention)},
	{"retention.security_events", "how long sign-ins and changes of security are shown to users, such as 8760h", false,
		setDuration(func(c *Config) *time.Duration { return &c.Retention.SecurityEvents }, 30*day, maxRetention)},
	{"prices", "file of models and prices that go before the built-in ones; it is read again when it changes", false,
		setText(func(c *Config) *string { return &c.PricesFile })},
	{"webhook_allow",
		"non-public networks that webhooks may go to, separated by commas, such as 10.1.0.0/16", false,
		setNetworks(func(c *Config) *[]netip.Prefix { return &c.WebhookAllow })},
	{"trusted_proxies",
		"networks of your reverse proxies, separated by commas, such as 10.1.0.0/16: their X-Forwarded-For is trusted",
		false, setNetworks(func(c *Config) *[]netip.Prefix { return &c.TrustedProxies })},
	{"node_url", "URL by which other nodes reach this very one, for control channels of voice sessions that it runs",
		false, setURL(func(c *Config) *string { return &c.NodeURL })},
	{"witnesses", "who cosigns the public log's checkpoints by C2SP's tlog-witness: KEY URL, separated by commas",
		false, func(c *Config, v string) error {
			c.Witnesses = nil
			for text := range strings.SplitSeq(v, ",") {
				w, err := proofs.ParseWitness(text)
				if err != nil {
					return err
				}
				c.Witnesses = append(c.Witnesses, w)
			}
			return nil
		}},
	{"verify_at", "time of day in UTC of the daily verification of the ledger, such as 03:00; off = none", false,
		setTimeOfDay(func(c *Config) *string { return &c.VerifyAt })},
	{"backup.at", "time of day in UTC of a daily backup, such as 04:00; off = none (default)", false,
		setTimeOfDay(func(c *Config) *string { return &c.Backup.At })},
	{"backup.dir", "folder of the daily backups, which must exist", false,
		setText(func(c *Config) *string { return &c.Backup.Folder })},
	boundKey("backup.keep", "number of daily backups that are kept (default 14)",
		func(c *Config) *int { return &c.Backup.Keep }),
	{"backup.recipient", "public key that encrypts the daily backups, age1…; see purser backup key", false,
		func(c *Config, v string) error {
			recipient, err := backup.ParseRecipient(v)
			if err == nil {
				c.Backup.Recipients = []age.Recipient{recipient}
			}
			return err
		}},
	{"voice_idle", "how long a voice session may be without speech and reply, such as 2m", false,
		func(c *Config, v string) (err error) {
			if c.VoiceIdleTimeout, err = time.ParseDuration(v); err != nil || c.VoiceIdleTimeout < time.Second ||
				c.VoiceIdleTimeout > time.Hour {
				return errors.New("must be a duration between 1s and 1h, such as 2m")
			}
			return nil
		}},
	{"log_level", "debug, info, warn or error", false,
		setOneOf(func(c *Config) *string { return &c.LogLevel }, "debug", "info", "warn", "error")},
	{"log_format", "auto, text or json; auto is text on a terminal", false,
		setOneOf(func(c *Config) *string { return &c.LogFormat }, "auto", "text", "json")},
	{"log_sample", "share of successful requests that are logged, such as 0.01; others always are", false,
		func(c *Config, v string) (err error) {
			if c.LogSample, err = money.ParseRate(v); err == nil && c.LogSample > money.One {
				err = errors.New("must be at most 1")
			}
			return err
		}},
	providerURLKey("openai"), providerKeyKey("openai"), providerStoreKey("openai"),
	providerURLKey("anthropic"), providerKeyKey("anthropic"),
	providerURLKey("google"), providerKeyKey("google"),
	{"stripe.key", "your secret key at Stripe, sk_…; without it users cannot top up", true,
		func(c *Config, v string) error {
			c.Stripe.Key = v
			return checkKey(v)
		}},
	{"stripe.webhook_secret", "signing secret of Stripe's webhook endpoint, whsec_…; required with stripe.key", true,
		func(c *Config, v string) error {
			c.Stripe.WebhookSecret = v
			return nil
		}},
	{"stripe.base_url", "where Stripe's API is reached, if not at Stripe: an emulator", false,
		setURL(func(c *Config) *string { return &c.Stripe.BaseURL })},
	{"stripe.clearance", "how long a top-up that is paid waits before it can be used, such as 72h; 0s = not at all",
		false, func(c *Config, v string) (err error) {
			if c.Stripe.Clearance, err = time.ParseDuration(v); err != nil || c.Stripe.Clearance < 0 ||
				c.Stripe.Clearance > 90*24*time.Hour {
				return errors.New("must be a duration from 0s to 2160h, such as 72h")
			}
			return nil
		}},
	{"stripe.invoices", "whether Stripe makes an invoice of each top-up: off (default), on, with the customer's tax " +
		"id, or taxed, with the tax that Stripe Tax computes, included in the amount",
		false, func(c *Config, v string) error {
			switch v {
			case "off":
				c.Stripe.Invoices = topups.NoInvoices
			case "on", "taxed":
				c.Stripe.Invoices = topups.Invoices(v)
			default:
				return errors.New("must be off, on or taxed")
			}
			return nil
		}},
	{"payouts.every", "how often developers are paid their apps' margin by Stripe Connect, such as 168h; off = never " +
		"(default)", false, func(c *Config, v string) (err error) {
		if c.Payouts.Every = 0; v == "off" {
			return nil
		}
		return setDuration(func(c *Config) *time.Duration { return &c.Payouts.Every }, time.Minute, 90*day)(c, v)
	}},
	{"payouts.window", "how old calls are before their margin is paid, such as 2880h (default): as long as users may " +
		"dispute payments", false,
		setDuration(func(c *Config) *time.Duration { return &c.Payouts.Window }, day, 2*365*day)},
	{"payouts.minimum", "least payout of an app in dollars, such as 25 (default)", false,
		func(c *Config, v string) (err error) {
			if c.Payouts.MinimumMC, err = money.Parse(v); err != nil || c.Payouts.MinimumMC < money.Cent {
				return errors.New("must be an amount in dollars from 0.01, such as 25")
			}
			return nil
		}},
	{"oidc.name", "name of the OpenID Connect provider for sign-in, as on the button \"Continue with NAME\"", false,
		func(c *Config, v string) error {
			if v == "" || len(v) > 40 || strings.ContainsFunc(v, func(r rune) bool { return !unicode.IsPrint(r) }) {
				return errors.New("must be 1 to 40 printable bytes")
			}
			c.OIDC.Name = v
			return nil
		}},
	{"oidc.issuer", "its issuer URL, exactly as it spells it, such as https://accounts.google.com", false,
		func(c *Config, v string) error {
			if err := setURL(func(*Config) *string { return new(string) })(c, v); err != nil {
				return err
			}
			u, err := url.Parse(v)
			if ip := net.ParseIP(u.Hostname()); err != nil ||
				u.Scheme != "https" && u.Hostname() != "localhost" && !ip.IsLoopback() {
				return errors.New("must be an https URL")
			}
			c.OIDC.Issuer = v
			return nil
		}},
	{"oidc.client_id", "our client id there", false, setText(func(c *Config) *string { return &c.OIDC.ClientID })},
	{"oidc.client_secret", "our client secret there", true,
		setText(func(c *Config) *string { return &c.OIDC.ClientSecret })},
	{"smtp.url", "mail server, as smtp://USER:PASSWORD@HOST:587 (STARTTLS) or smtps://… (TLS); without one mail waits",
		true, func(c *Config, v string) error {
			return c.SMTP.SetURL(v)
		}},
	{"smtp.from", "sender of mail, such as Purser <no-reply@example.com>", false, func(c *Config, v string) error {
		return c.SMTP.SetFrom(v)
	}},
	{"otlp.url", "OpenTelemetry collector that gets traces and metrics, such as http://127.0.0.1:4318", false,
		setURL(func(c *Config) *string { return &c.OTLP.URL })},
	{"otlp.headers", "headers for it as NAME=VALUE, separated by commas, such as an API key", true,
		func(c *Config, v string) (err error) {
			c.OTLP.Headers, err = telemetry.ParseHeaders(v)
			return err
		}},
	{"otlp.sample", "share of the requests that are traced, such as 0.1", false,
		func(c *Config, v string) (err error) {
			if c.OTLP.Sample, err = money.ParseRate(v); err == nil && c.OTLP.Sample > money.One {
				err = errors.New("must be at most 1")
			}
			return err
		}},
	{"smtp.tls", "required, or off for a relay on the same machine or network", false, func(c *Config, v string) error {
		if v != "required" && v != "off" {
			return errors.New("must be required or off")
		}
		c.SMTP.Unencrypted = v == "off"
		return nil
	}},
}

// linkKey returns a key whose value is a link for users.
func linkKey(name, help string, at func(*Config) *string) Key {
	return Key{name, help, false, func(c *Config, v string) error {
		u, err := url.Parse(v)
		isPage := err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil
		isAddress := err == nil && u.Scheme == "mailto" && strings.Contains(u.Opaque, "@")
		if !isPage && !isAddress {
			return errors.New("must be a web address, or mailto: and an email address")
		}
		*at(c) = v
		return nil
	}}
}

// boundKey returns a key whose value is a bound on work in flight.
func boundKey(name, help string, at func(*Config) *int) Key {
	return Key{name, help, false, func(c *Config, v string) (err error) {
		if *at(c), err = strconv.Atoi(v); err != nil || *at(c) < 1 || *at(c) > 1_000_000 {
			return errors.New("must be a whole number from 1 to 1000000")
		}
		return nil
	}}
}

// setBytes reads a number of bytes such as 512MB.
func setBytes(at func(*Config) *int64, least int64) func(*Config, string) error {
	return func(c *Config, v string) error {
		wrong := fmt.Errorf("must be a whole number of MB or GB, at least %dMB, such as 512MB or 4GB", least/1_000_000)
		number, unit := strings.CutSuffix(v, "GB")
		factor := int64(1_000_000_000)
		if !unit {
			number, unit = strings.CutSuffix(v, "MB")
			factor = 1_000_000
		}
		n, err := strconv.ParseInt(number, 10, 32)
		if !unit || err != nil || n*factor < least {
			return wrong
		}
		*at(c) = n * factor
		return nil
	}
}

func setText(at func(*Config) *string) func(*Config, string) error {
	return func(c *Config, v string) error {
		if v == "" || strings.ContainsAny(v, "\x00\n") {
			return errors.New("must not be empty")
		}
		*at(c) = v
		return nil
	}
}

// setTimeOfDay returns a set for a time of day, or off.
func setTimeOfDay(at func(*Config) *string) func(*Config, string) error {
	return func(c *Config, v string) error {
		if v == "off" {
			*at(c) = ""
			return nil
		}
		if _, err := time.Parse("15:04", v); err != nil {
			return errors.New("must be a time of day such as 03:00, or off")
		}
		*at(c) = v
		return nil
	}
}

// A day, and the longest retention: more than ten years.
const (
	day          = 24 * time.Hour
	maxRetention = 100_000 * time.Hour
)

// Retention is how long what is not money is kept.
type Retention struct {
	Calls          store.Retention
	Webhooks       webhooks.Retention
	Mails          time.Duration
	SecurityEvents time.Duration
}

// DefaultRetention is the retention if the operator sets none.
var DefaultRetention = Retention{
	Calls:          store.DefaultRetention,
	Webhooks:       webhooks.DefaultRetention,
	Mails:          mail.DefaultRetention,
	SecurityEvents: accounts.DefaultRetention,
}

// String returns the values, for comparisons.
func (r Retention) String() string {
	return fmt.Sprint(r.Calls.Responses, r.Calls.Refusals, r.Webhooks.Deliveries, r.Webhooks.Events, r.Mails,
		r.SecurityEvents)
}

// setDuration returns a set for a duration from least to most.
func setDuration(at func(*Config) *time.Duration, least, most time.Duration) func(*Config, string) error {
	return func(c *Config, v string) (err error) {
		if *at(c), err = time.ParseDuration(v); err != nil || *at(c) < least || *at(c) > most {
			return fmt.Errorf("must be a duration between %s and %s, such as 10s", formatDuration(least),
				formatDuration(most))
		}
		return nil
	}
}

// formatDuration writes a duration without zero parts: 1h, not 1h0m0s.
func formatDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func setNetworks(at func(*Config) *[]netip.Prefix) func(*Config, string) error {
	return func(c *Config, v string) error {
		*at(c) = nil
		for text := range strings.SplitSeq(v, ",") {
			p, err := netip.ParsePrefix(strings.TrimSpace(text))
			if err != nil {
				return errors.New("must be networks such as 10.1.0.0/16, separated by commas")
			}
			*at(c) = append(*at(c), p.Masked())
		}
		return nil
	}
}

func setOneOf(at func(*Config) *string, values ...string) func(*Config, string) error {
	return func(c *Config, v string) error {
		if !slices.Contains(values, v) {
			return fmt.Errorf("must be one of %s", strings.Join(values, ", "))
		}
		*at(c) = v
		return nil
	}
}

func setAddress(at func(*Config) *string) func(*Config, string) error {
	return func(c *Config, v string) error {
		if _, port, err := net.SplitHostPort(v); err != nil || port == "" {
			return errors.New("must be HOST:PORT, such as 127.0.0.1:8080 or :8080")
		}
		*at(c) = v
		return nil
	}
}

func setURL(at func(*Config) *string) func(*Config, string) error {
	return func(c *Config, v string) error {
		u, err := url.Parse(v)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" ||
			u.Fragment != "" || u.User != nil {
			return errors.New("must be an http or https URL without query")
		}
		// In one spelling, because it is compared with what browsers and providers send (RFC 3986 §6.2).
		host := strings.TrimSuffix(strings.ToLower(u.Host), map[string]string{"http": ":80", "https": ":443"}[u.Scheme])
		*at(c) = strings.TrimSuffix(u.Scheme+"://"+host+u.EscapedPath(), "/")
		return nil
	}
}

func providerURLKey(name string) Key {
	return Key{"providers." + name + ".base_url", "where " + name + " is reached", false,
		func(c *Config, v string) error {
			p := c.Providers[name]
			err := setURL(func(*Config) *string { return &p.BaseURL })(c, v)
			c.Providers[name] = p
			return err
		}}
}

func providerStoreKey(name string) Key {
	return Key{"providers." + name + ".store",
		"true lets " + name + " keep prompts and answers up to 30 days, so that streams that broke are charged exactly",
		false, func(c *Config, v string) error {
			if v != "true" && v != "false" {
				return errors.New("must be true or false")
			}
			p := c.Providers[name]
			p.Store = v == "true"
			c.Providers[name] = p
			return nil
		}}
}

func providerKeyKey(name string) Key {
	help := "our key at " + name + "; several, separated by commas, serve in turn and for each other"
	return Key{"providers." + name + ".key", help, true, func(c *Config, v string) error {
		p := c.Providers[name]
		p.Keys = nil
		for text := range strings.SplitSeq(v, ",") {
			key := strings.TrimSpace(text)
			if err := checkKey(key); err != nil {
				return err
			}
			if slices.Contains(p.Keys, key) {
				return errors.New("has a key twice")
			}
			p.Keys = append(p.Keys, key)
		}
		c.Providers[name] = p
		return nil
	}}
}

// minKey is the length of the shortest key of a provider or Stripe that is no slip of the hand.
const minKey = 8

// checkKey returns an error that says what is wrong with a key, and repeats no part of it.
func checkKey(key string) error {
	if strings.ContainsAny(key, " \t\r\n\x00") {
		return errors.New("has white space: give the key alone")
	}
	if len(key) < minKey {
		return fmt.Errorf("has %d characters, and a key has at least %d", len(key), minKey)
	}
	return nil
}

// tokenName is the form of a token's name, which is neither that of an account's id nor that of an address.
var tokenName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`)

// isBearerToken reports whether a text may be a bearer token that is long enough not to be guessed.
func isBearerToken(text string) bool {
	return len(text) >= 32 &&
		strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~+/=") == ""
}
