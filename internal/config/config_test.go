package config

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"
)

var envelope = base64.StdEncoding.EncodeToString(make([]byte, 32))

var minimal = "database: sqlite:x.db\nbase_url: https://api.example.com\nenvelope_key: " + envelope + "\n"

func TestLoad(t *testing.T) {
	t.Parallel()
	c, err := Load("p.yaml", []byte(minimal+"fee_rate: 0.075\nproviders:\n  openai:\n    base_url: http://127.0.0.1:9/\n    key: sk-from-file\n"),
		[]string{"PURSER_PROVIDERS_OPENAI_KEY=sk-from-environment", "PURSER_LEASE=30s", "HOME=/"}, []string{"lease=20s"})
	if err != nil {
		t.Fatal(err)
	}
	if c.FeeRate != 75_000 || c.Lease != 20*time.Second || c.Providers["openai"] != (Provider{"http://127.0.0.1:9", "sk-from-environment"}) || c.DashboardURL != "https://api.example.com" {
		t.Errorf("%+v", c)
	}
}

// TestRefused shows that each wrong setting is named, with its line, and that no
// secret is repeated.
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ file, env, set, want string }{
		{file: "databse: x\n", want: "p.yaml:1: databse is not a setting"},
		{file: minimal + "providers:\n  openai:\n    kye: x\n", want: "p.yaml:6: providers.openai.kye is not a setting"},
		{file: minimal + "provider:\n  openai: x\n", want: "p.yaml:4: provider is not a setting"},
		{file: minimal + "fee_rate: 5%\n", want: "p.yaml:4: fee_rate"},
		{file: minimal + "fee_rate: 1.5\n", want: "fee_rate: must be at most 1"},
		{file: minimal + "fee_rate: [1]\n", want: "fee_rate: must be one value"},
		{file: minimal + "lease: soon\n", want: "lease: must be a duration"},
		{file: "base_url: ftp://x\n", want: "p.yaml:1: base_url: must be an http"},
		{file: minimal + "base_url: https://y\n", want: "already defined"},
		{file: "database: mysql://secret\n", want: "database: must be sqlite:PATH"},
		{file: "- a\n- b\n", want: "p.yaml: not YAML"},
		{file: "base_url: https://x\nenvelope_key: " + envelope, want: "database: required"},
		{file: "database: sqlite:x\nbase_url: https://x\n", want: "envelope_key: required"},
		{file: "database: sqlite:x\nenvelope_key: " + envelope, want: "base_url: required"},
		{file: "envelope_key: c2VjcmV0\n", want: "p.yaml:1: envelope_key: must be 32 bytes"},
		{file: minimal, env: "PURSER_FEE=1", want: "PURSER_FEE is not a setting"},
		{file: minimal, env: "PURSER_PROVIDERS_GOOGLE_KEY=se cret", want: "PURSER_PROVIDERS_GOOGLE_KEY: is too short or has white space"},
		{file: minimal, set: "nothing=1", want: "--set: nothing is not a setting"},
		{file: minimal, set: "log_level=loud", want: "--set log_level: must be debug"},
	} {
		_, err := Load("p.yaml", []byte(c.file), []string{c.env}, strings.Fields(c.set))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q %q %q: got %v, want %q", c.file, c.env, c.set, err, c.want)
		} else if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "c2Vj") {
			t.Errorf("a secret stands in %q", err)
		}
	}
}
