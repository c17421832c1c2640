package config

import (
	"encoding/base64"
	"fmt"
	netmail "net/mail"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/purserhq/purser/internal/apps/payouts"
	"github.com/purserhq/purser/internal/backup"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/telemetry"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/people/identity"
	"github.com/purserhq/purser/internal/people/mail"
)

var envelope = base64.StdEncoding.EncodeToString([]byte(strings.Repeat("s", 32)))

var minimal = "database: sqlite:x.db\nbase_url: https://api.example.com\nenvelope_key: " + envelope + "\n"

// Flags win over the environment, which wins over the file, which wins over the defaults.
func TestLoad(t *testing.T) {
	t.Parallel()
	file := minimal + `
auth_url: "HTTPS://Connect.example.com:443/"   # neither the case, nor the usual port, nor a slash at the end matters
fee_rate: 0.10
lease: 1m
trusted_proxies: 10.1.2.3/16, 2001:db8::/32
providers:
  anthropic: {key: 'sk-flow-style'}
  openai:
    base_url: http://127.0.0.1:9/
    key: sk-from-file
  google:
    key: 0123456789012345678901234567890
smtp: {from: "Purser <no-reply@example.com>", tls: off}
otlp: {url: "http://127.0.0.1:4318/", sample: 0.1}
oidc: {name: Acme, issuer: "https://login.example.com/", client_id: us}   # here it does
`
	environ := []string{"PURSER_PROVIDERS_OPENAI_KEY=sk-environment", "PURSER_PROVIDERS_OPENAI_STORE=true",
		"PURSER_LEASE=30s", "PURSER_OIDC_CLIENT_SECRET=sesame", "PURSER_LOG_LEVEL=warn",
		"PURSER_SMTP_URL=smtp://u:sesame@mail.example.com", "HOME=/", "PURSER_TEST_POSTGRES=x",
		"PURSER_OTLP_HEADERS=api-key=sesame, tenant = b",
		"PURSER_PORT_8080_TCP=x", "PURSER_SERVICE_HOST=x"}
	got, err := Load("p.yaml", []byte(file), environ,
		[]string{"lease=20s", "listen=:80", "metrics_listen=127.0.0.1:9090"})
	if err != nil {
		t.Fatal(err)
	}
	set := policy.Default
	set.Fee, set.SandboxTotalDayMC = money.One/10, 100*money.Dollar
	want := Config{
		Database:      "sqlite:x.db",
		Listen:        ":80",
		MetricsListen: "127.0.0.1:9090",
		BaseURL:       "https://api.example.com",
		AuthURL:       "https://connect.example.com",
		DashboardURL:  "https://connect.example.com",
		Policy:        set,
		EnvelopeKeys:  [][]byte{[]byte(strings.Repeat("s", 32))},

		SignUps: "open",

		VerifyAt:         "03:00",
		Backup:           backup.Settings{Keep: 14},
		Lease:            20 * time.Second,
		Drain:            5 * time.Second,
		Grace:            5 * time.Minute,
		Retention:        DefaultRetention,
		Payouts:          payouts.Config{Window: payouts.DefaultWindow, MinimumMC: payouts.DefaultMinimum},
		MaxCalls:         10_000,
		MaxProviderCalls: 6_000,
		StoredBytes:      10_000_000_000,
		VoiceIdleTimeout: 2 * time.Minute,
		LogLevel:         "warn",
		LogFormat:        "auto",
		LogSample:        money.One,
		TrustedProxies:   []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("2001:db8::/32")},
		Providers: map[string]Provider{
			"anthropic": {Keys: []string{"sk-flow-style"}},
			"openai":    {BaseURL: "http://127.0.0.1:9", Keys: []string{"sk-environment"}, Store: true},
			"google":    {Keys: []string{"0123456789012345678901234567890"}}, // not a number
		},
		OIDC: identity.OpenIDConfig{
			Name:         "Acme",
			Issuer:       "https://login.example.com/",
			ClientID:     "us",
			ClientSecret: "sesame",
		},
		SMTP: mail.Server{
			Host:        "mail.example.com",
			Port:        587,
			User:        "u",
			Password:    "sesame",
			Unencrypted: true,
			From:        netmail.Address{Name: "Purser", Address: "no-reply@example.com"},
		},
		OTLP: telemetry.Config{
			URL:     "http://127.0.0.1:4318",
			Headers: map[string]string{"api-key": "sesame", "tenant": "b"},
			Sample:  money.One / 10,
		},
	}
	if d := cmp.Diff(want, got, cmpopts.IgnoreUnexported(mail.Server{}), cmpopts.IgnoreFields(Config{}, "Given"),
		cmpopts.EquateComparable(netip.Prefix{})); d != "" {
		t.Error(d)
	}
	if !slices.Contains(got.Given, "fee_rate") || slices.Contains(got.Given, "grace") {
		t.Errorf("given are %v", got.Given)
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	c, err := Load("", nil,
		[]string{"PURSER_DATABASE=postgres://u:p@h/d", "PURSER_BASE_URL=https://x", "PURSER_ENVELOPE_KEY=" + envelope},
		nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Policy.Fee != 50_000 || c.Lease != 10*time.Second || c.Listen != "127.0.0.1:8080" || c.LogLevel != "info" ||
		c.MetricsListen != "" || c.AuthURL != "https://x" || c.DashboardURL != "https://x" || c.SignUps != "open" ||
		c.Policy.SandboxTotalDayMC != 100*money.Dollar {
		t.Errorf("%#v", c)
	}
}

// Each wrong setting is named with its place, and no secret is repeated.
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ file, env, flag, want string }{
		{file: "databse: x\n", want: "p.yaml:1: databse is not a setting"},
		{file: "\n# a comment\nListen: x\n", want: "p.yaml:3: Listen is not a setting"},
		{
			file: minimal + "providers:\n  anthropic:\n    key: long-enough\n  openai:\n    kye: x\n",
			want: "p.yaml:8: providers.openai.kye is not a setting",
		},
		{
			file: minimal + "providers:\n  openai:\n    store: perhaps\n",
			want: "providers.openai.store: must be true or false",
		},
		{file: minimal + "providers:\n  google:\n    store: true\n", want: "providers.google.store is not a setting"},
		{
			file: minimal + "providers:\n  openai:\n    key: [a, b]\n",
			want: "p.yaml:6: providers.openai.key: must be one value",
		},
		{file: minimal + "provider:\n  openai: x\n", want: "p.yaml:4: provider is not a setting"},
		{file: minimal + "providers: openai\n", want: `p.yaml:4: "providers" must hold keys`},
		{file: minimal + "fee_rate: 5%\n", want: "p.yaml:4: fee_rate: "},
		{file: minimal + "fee_rate: -0.05\n", want: "p.yaml:4: fee_rate: "},
		{file: minimal + "fee_rate: 1.5\n", want: "fee_rate: must be at most 1"},
		{file: minimal + "fee_rate: [1]\n", want: "p.yaml:4: fee_rate: must be one value"},
		{file: minimal + "fee_rate: *x\n", want: "fee_rate: must be one value"},
		{file: minimal + "lease: soon\n", want: "lease: must be a duration"},
		{file: minimal + "lease: 2h\n", want: "lease: must be a duration between 1s and 1h"},
		{file: minimal + "call_memory: 63MB\n", want: "call_memory: must be a whole number of MB or GB, at least 64MB"},
		{file: minimal + "call_memory: 1000000000\n", want: "call_memory: must be a whole number of MB or GB"},
		{file: minimal + "call_memory: -1GB\n", want: "call_memory: must be a whole number of MB or GB"},
		{file: minimal + "retention: {response_bytes: 1.5GB}\n", want: "response_bytes: must be a whole number"},
		{file: minimal + "listen: 8080\n", want: "p.yaml:4: listen: must be HOST:PORT"},
		{file: "base_url: ftp://x\n", want: "p.yaml:1: base_url: must be an http"},
		{file: "base_url: https://x?y=secret\n", want: "p.yaml:1: base_url: must be an http"},
		{file: minimal + "base_url: https://y\n", want: "already defined"},
		{file: minimal + "---\nlease: 1m\n", want: "p.yaml: must be one YAML document"},
		{file: "database: mysql://secret\n", want: "database: must be sqlite:PATH"},
		{file: "- a\n- b\n", want: "must hold keys with values"},
		{file: "envelope_key: \"c2VjcmV0\nx", want: "p.yaml: "},
		{file: minimal + "smtp:\n  url: smtp://u:secret@\n", want: "p.yaml:5: smtp.url: must be smtp://"},
		{file: minimal + "otlp:\n  sample: 2\n", want: "p.yaml:5: otlp.sample: must be at most 1"},
		{file: minimal, env: "PURSER_OTLP_HEADERS=secret", want: "PURSER_OTLP_HEADERS: must be NAME=VALUE"},
		{file: minimal + "smtp:\n  from: me\n", want: "p.yaml:5: smtp.from: must be an address"},
		{file: minimal + "smtp:\n  tls: maybe\n", want: "p.yaml:5: smtp.tls: must be required or off"},
		{file: minimal, env: "PURSER_SMTP_URL=smtp://u:secret@h", want: "smtp.from: required with smtp.url"},
		{file: minimal, flag: "smtp.url=smtp://u:secret@h\n", want: "smtp.from: required"},
		{file: "base_url: https://x\nenvelope_key: " + envelope, want: "database: required"},
		{file: "database: sqlite:x\nbase_url: https://x\n", want: "envelope_key: required"},
		{file: "database: sqlite:x\nenvelope_key: " + envelope, want: "base_url: required"},
		{file: minimal, env: "PURSER_DATABASE=postgres://u:c2Vj@cmV0@db/purser", want: "PURSER_DATABASE: is not a URL"},
		{file: minimal, env: "PURSER_DATABASE=postgres://u:c2Vj/cmV0@db/purser", want: "%2F"},
		{
			file: minimal + "stripe: {key: sk_test_0123456789abcdef}\n",
			want: "stripe.webhook_secret: required with stripe.key",
		},
		{
			file: minimal + "stripe: {key: sk_test_0123456789abcdef, webhook_secret: whsec_short}\n",
			want: "stripe.webhook_secret: must be the signing secret",
		},
		{file: "envelope_key: c2VjcmV0\n", want: "p.yaml:1: envelope_key: must be 32 bytes"},
		{file: minimal + "operator_token: c2VjcmV0-too-short\n", want: "p.yaml:4: operator_token: must be at least 32"},
		{
			file: minimal,
			env:  "PURSER_OPERATOR_TOKEN=secret with spaces, and long enough for one",
			want: "PURSER_OPERATOR_TOKEN: must be at least 32",
		},
		{file: minimal, env: "PURSER_FEE=1", want: "environment: PURSER_FEE is not a setting"},
		{
			file: minimal,
			env:  "PURSER_PROVIDERS_GOOGLE_KEY=se cret",
			want: "environment: PURSER_PROVIDERS_GOOGLE_KEY: has white space",
		},
		{
			file: minimal,
			env:  "PURSER_PROVIDERS_GOOGLE_KEY=se-cret",
			want: "PURSER_PROVIDERS_GOOGLE_KEY: has 7 characters, and a key has at least 8",
		},
		{file: minimal + "# as Latin-1\noperator: {name: M\xfcller}\n", want: "p.yaml:5: is not text in UTF-8"},
		{
			file: minimal + "oidc: {name: Acme, issuer: 'https://x.example', client_id: us, client_secret: ''}\n",
			want: "oidc.client_secret: required",
		},
		{
			file: minimal + "oidc: {name: Acme, issuer: 'https://x.example', client_id: us}\n",
			want: "oidc.client_secret: required",
		},
		{
			file: minimal + "oidc: {issuer: 'https://x.example', client_id: us, client_secret: secret}\n",
			want: "oidc.name: required",
		},
		{file: minimal + "oidc: {name: Acme, client_id: us, client_secret: secret}\n", want: "oidc.issuer: required"},
		{file: minimal + "oidc: {issuer: 'http://x.example'}\n", want: "p.yaml:4: oidc.issuer: must be an https URL"},
		{file: minimal + "oidc: {issuer: 'https://u:secret@x.example'}\n", want: "oidc.issuer: must be an http"},
		{file: minimal + "oidc: {name: \"A\\u202Ecme\"}\n", want: "oidc.name: must be 1 to 40"},
		{file: minimal + "oidc: {scopes: x}\n", want: "oidc.scopes is not a setting"},
		{file: minimal, flag: "nothing=1", want: "nothing is not a setting"},
		{file: minimal, flag: "log_level=loud", want: "--log-level: must be one of debug"},
	} {
		noSecret := strings.NewReplacer("client_secret", "", "webhook_secret", "", "signing secret", "")
		_, err := Load("p.yaml", []byte(c.file), []string{c.env}, strings.Fields(c.flag))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q %q %q: got %v, want %q", c.file, c.env, c.flag, err, c.want)
		} else if strings.Contains(noSecret.Replace(err.Error()), "secret") ||
			strings.Contains(err.Error(), "c2Vj") || strings.Contains(err.Error(), "se cret") ||
			strings.Contains(err.Error(), "se-cret") ||
			strings.Contains(err.Error(), envelope) {
			t.Errorf("a secret stands in %q", err)
		}
	}
}

// TestEmptyIsUnset gives each setting in each way without a value, as Compose files, charts and .env files do: it is as
// if it were not there. A file that should have a value and is empty is a fault.
func TestEmptyIsUnset(t *testing.T) {
	t.Parallel()
	want, err := Load("p.yaml", []byte(minimal), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	empty := save(t, t.TempDir(), "empty", "\n")
	for _, k := range Keys() {
		group, name, nested := strings.Cut(k.Name, ".")
		lines := []string{k.Name + ":\n", k.Name + ": \"\"\n"}
		if nested {
			if in, leaf, deeper := strings.Cut(name, "."); deeper {
				name = in + ":\n    " + leaf
			}
			lines = []string{group + ":\n", group + ":\n  " + name + ":\n", group + ":\n  " + name + ": ''\n"}
		}
		for _, line := range lines {
			if strings.Contains(minimal, "\n"+k.Name+":") || strings.HasPrefix(minimal, k.Name+":") {
				continue // it stands there already
			}
			got, err := Load("p.yaml", []byte(minimal+line), []string{"CREDENTIALS_DIRECTORY="}, nil)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%q: %v", line, err)
			}
		}
		got, err := Load("p.yaml", []byte(minimal), []string{k.Variable() + "=", k.FileVariable() + "="},
			[]string{k.Name + "="})
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s=: %v", k.Variable(), err)
		}
		if _, err := Read("", nil, []string{k.FileVariable() + "=" + empty}, nil); err == nil ||
			!strings.Contains(err.Error(), empty+" is empty") {
			t.Errorf("%s=%s: %v", k.FileVariable(), empty, err)
		}
	}
}

// TestByteOrderMark reads files that an editor of Windows has saved: they begin with a mark.
func TestByteOrderMark(t *testing.T) {
	t.Parallel()
	key := save(t, t.TempDir(), "key", "\ufeff"+keyText('b')+"\r\n")
	c, err := Load("p.yaml", []byte("\ufeffdatabase: sqlite:x.db\r\nbase_url: https://api.example.com\r\n"),
		[]string{"PURSER_ENVELOPE_KEY_FILE=" + key}, nil)
	if err != nil || c.Database != "sqlite:x.db" || len(c.EnvelopeKeys) != 1 {
		t.Errorf("%q, %d keys, %v", c.Database, len(c.EnvelopeKeys), err)
	}
}

// U5: who runs the service is set by links for users.
func TestSite(t *testing.T) {
	t.Parallel()
	c, err := Load("p.yaml", []byte(minimal+"operator:\n  name: Example Ltd\n  support_url: mailto:help@example.com\n"+
		"  terms_url: https://example.com/terms?v=2\n"),
		[]string{"PURSER_OPERATOR_PRIVACY_URL=https://example.com/p"}, nil)
	want := web.Site{
		Operator:   "Example Ltd",
		SupportURL: "mailto:help@example.com",
		TermsURL:   "https://example.com/terms?v=2",
		PrivacyURL: "https://example.com/p",
	}
	if err != nil || c.Site != want {
		t.Errorf("%+v, %v", c.Site, err)
	}
	for _, wrong := range []string{"help@example.com", "javascript:alert(1)", "mailto:", "https://", "/support",
		"https://u:p@example.com/"} {
		environ := []string{"PURSER_OPERATOR_SUPPORT_URL=" + wrong}
		if _, err := Load("p.yaml", []byte(minimal), environ, nil); err == nil {
			t.Errorf("%s is accepted", wrong)
		}
	}
}

// A file that cannot be read is the one fault: the settings that it has are not called missing.
func TestUnreadFile(t *testing.T) {
	t.Parallel()
	_, err := Load("p.yaml", []byte(minimal+"listen: 127.0.0.1:1\nlisten: 127.0.0.1:2\n"), nil, nil)
	if err == nil || !strings.Contains(err.Error(), "already defined") || strings.Contains(err.Error(), "required") {
		t.Errorf("got %v", err)
	}
}

// U18: one run names every setting that is missing.
func TestAllMissingAreNamed(t *testing.T) {
	t.Parallel()
	_, err := Load("p.yaml", []byte("smtp: {url: 'smtp://u:p@h'}\noidc: {name: A}\n"), nil, nil)
	if err == nil {
		t.Fatal("accepted without a database")
	}
	lines := strings.Split(err.Error(), "\n")
	for i, want := range []string{"database: required, ", "base_url: required, ", "envelope_key: required, ",
		"smtp.from: required ", "oidc."} {
		if i >= len(lines) || !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %d is not about %q:\n%v", i+1, want, err)
		}
	}
}

// One run names every fault, and does not call a setting missing that is wrong.
func TestAllFaultsAreNamed(t *testing.T) {
	t.Parallel()
	_, err := Load("p.yaml", []byte("fee_rate: 5\nbaseurl: x\ndatabase: mysql://x\nlisten: 8080\noidc: {issuer: x}\n"),
		[]string{"PURSER_FEE=1", "PURSER_LEASE=soon"}, []string{"grace=soon"})
	if err == nil {
		t.Fatal("accepted")
	}
	lines := strings.Split(err.Error(), "\n")
	want := []string{"p.yaml:1: fee_rate: ", "p.yaml:2: baseurl is not a setting", "p.yaml:3: database: must be",
		"p.yaml:4: listen: ", "p.yaml:5: oidc.issuer: ", "environment: PURSER_FEE is not a setting",
		"environment: PURSER_LEASE: ", "--grace: ", "base_url: required", "envelope_key: required"}
	if len(lines) != len(want) {
		t.Fatalf("got %d lines:\n%v", len(lines), err)
	}
	for i := range want {
		if !strings.HasPrefix(lines[i], want[i]) {
			t.Errorf("line %d is not %q: %s", i+1, want[i], lines[i])
		}
	}
}

func TestPrintingShowsNoSecret(t *testing.T) {
	t.Parallel()
	c, err := Load("p.yaml",
		[]byte(minimal+"providers:\n  openai:\n    key: sk-hidden\nsmtp: {url: 'smtp://u:sk-hidden@h', from: "+
			"a@example.com}\noidc: {name: A, issuer: 'https://a', client_id: a, client_secret: sk-hidden}\n"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"%v", "%+v", "%s"} {
		if text := fmt.Sprintf(format, struct{ C Config }{c}); strings.Contains(text, "sk-hidden") ||
			strings.Contains(text, "115 115") {
			t.Errorf("%s shows %s", format, text)
		}
	}
}

// Every key can be set under each of its names.
func TestNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, k := range Keys() {
		for _, name := range []string{k.Name, k.Variable(), k.Flag()} {
			if seen[name] && name != k.Name {
				t.Errorf("%s names two keys", name)
			}
			seen[name] = true
		}
		if k.Help == "" {
			t.Errorf("%s has no help", k.Name)
		}
	}
	for _, name := range []string{"PURSER_BASE_URL", "PURSER_PROVIDERS_OPENAI_KEY", "providers-openai-base-url",
		"fee-rate"} {
		if !seen[name] {
			t.Errorf("no key is called %s", name)
		}
	}
}
