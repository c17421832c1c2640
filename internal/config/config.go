// Package config is what the operator of `purser serve` may set: one struct,
// filled from a YAML file, then the environment, then flags, and checked once
// (decisions, Command line). An unknown or wrong key is an error that names it.
package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"purser/internal/money"
)

// Config is a checked configuration.
type Config struct {
	Database     string        // sqlite:PATH or postgres://…
	Listen       string        // where the API is served
	AuthListen   string        // where the browser's authorization is served; "" = Listen
	BaseURL      string        // how apps reach the API
	AuthURL      string        // how browsers reach authorization
	DashboardURL string        // how users reach their dashboard
	FeeRate      money.PPM     // the service fee, a share of the provider's cost
	EnvelopeKey  []byte        // 32 bytes; encrypts secrets at rest
	Lease        time.Duration // how long holds outlive their node
	Prices       string        // the operator's own price book; "" = the built-in one
	LogLevel     string        // debug, info, warn, error
	Providers    map[string]Provider
}

// Provider is how one AI provider is reached. Without a key it is not offered
// to live apps.
type Provider struct{ BaseURL, Key string }

// A key is one thing that can be set.
type key struct {
	name   string // as in the file: providers.openai.key
	help   string
	secret bool
	set    func(c *Config, value string) error
}

var keys = []key{
	{"database", "sqlite:PATH or postgres://…", true, func(c *Config, v string) error {
		if !strings.HasPrefix(v, "sqlite:") && !strings.HasPrefix(v, "postgres://") && !strings.HasPrefix(v, "postgresql://") {
			return errors.New("must be sqlite:PATH or postgres://…")
		}
		c.Database = v
		return nil
	}},
	{"listen", "address of the API, such as 127.0.0.1:8080", false, text(func(c *Config) *string { return &c.Listen })},
	{"auth_listen", "address of the authorization pages, if not the API's", false, text(func(c *Config) *string { return &c.AuthListen })},
	{"base_url", "URL by which apps reach the API", false, address(func(c *Config) *string { return &c.BaseURL })},
	{"auth_url", "URL by which browsers reach authorization", false, address(func(c *Config) *string { return &c.AuthURL })},
	{"dashboard_url", "URL by which users reach their dashboard", false, address(func(c *Config) *string { return &c.DashboardURL })},
	{"fee_rate", "service fee as a share of the provider's cost, such as 0.05", false, func(c *Config, v string) (err error) {
		if c.FeeRate, err = money.ParseRate(v); err == nil && c.FeeRate > money.One {
			err = errors.New("must be at most 1")
		}
		return err
	}},
	{"envelope_key", "32 bytes in base64, which encrypt secrets at rest", true, func(c *Config, v string) (err error) {
		if c.EnvelopeKey, err = base64.StdEncoding.DecodeString(v); err != nil || len(c.EnvelopeKey) != 32 {
			return errors.New("must be 32 bytes in base64; make one with: head -c 32 /dev/urandom | base64")
		}
		return nil
	}},
	{"lease", "how long holds outlive their node, such as 5m", false, func(c *Config, v string) (err error) {
		if c.Lease, err = time.ParseDuration(v); err != nil || c.Lease < time.Second || c.Lease > time.Hour {
			return errors.New("must be a duration between 1s and 1h, such as 5m")
		}
		return nil
	}},
	{"prices", "file with the operator's own price book", false, text(func(c *Config) *string { return &c.Prices })},
	{"log_level", "debug, info, warn or error", false, func(c *Config, v string) error {
		if !slices.Contains([]string{"debug", "info", "warn", "error"}, v) {
			return errors.New("must be debug, info, warn or error")
		}
		c.LogLevel = v
		return nil
	}},
	providerURL("openai"), providerKey("openai"),
	providerURL("anthropic"), providerKey("anthropic"),
	providerURL("google"), providerKey("google"),
}

func text(at func(*Config) *string) func(*Config, string) error {
	return func(c *Config, v string) error {
		if v == "" || strings.ContainsAny(v, "\x00\n") {
			return errors.New("must not be empty")
		}
		*at(c) = v
		return nil
	}
}

func address(at func(*Config) *string) func(*Config, string) error {
	return func(c *Config, v string) error {
		u, err := url.Parse(v)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			return errors.New("must be an http or https URL without query")
		}
		*at(c) = strings.TrimSuffix(v, "/")
		return nil
	}
}

func providerURL(name string) key {
	return key{"providers." + name + ".base_url", "where " + name + " is reached", false, func(c *Config, v string) error {
		p := c.Providers[name]
		err := address(func(*Config) *string { return &p.BaseURL })(c, v)
		c.Providers[name] = p
		return err
	}}
}

func providerKey(name string) key {
	return key{"providers." + name + ".key", "our key at " + name, true, func(c *Config, v string) error {
		if len(v) < 8 || strings.ContainsAny(v, " \t\r\n\x00") {
			return errors.New("is too short or has white space")
		}
		p := c.Providers[name]
		p.Key = v
		c.Providers[name] = p
		return nil
	}}
}

// Variable is the environment's name of a key: PURSER_PROVIDERS_OPENAI_KEY.
func variable(name string) string {
	return "PURSER_" + strings.ToUpper(strings.ReplaceAll(name, ".", "_"))
}

// Help lists every key with its variable, for `purser serve --help`.
func Help() string {
	var b strings.Builder
	for _, k := range keys {
		fmt.Fprintf(&b, "  %-30s %-38s %s\n", k.name, variable(k.name), k.help)
	}
	return b.String()
}

// Load reads a file (none if text is nil), then the environment given as
// NAME=value, then settings given as key=value, and checks the whole.
func Load(file string, text []byte, environ, settings []string) (Config, error) {
	c := Config{Listen: "127.0.0.1:8080", FeeRate: money.One / 20, Lease: 5 * time.Minute, LogLevel: "info", Providers: map[string]Provider{}}
	if err := c.fromFile(file, text); err != nil {
		return Config{}, err
	}
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, "PURSER_") || strings.HasPrefix(name, "PURSER_TEST_") {
			continue
		}
		i := slices.IndexFunc(keys, func(k key) bool { return variable(k.name) == name })
		if i < 0 {
			return Config{}, fmt.Errorf("environment: %s is not a setting of purser; see purser serve --help", name)
		}
		if err := keys[i].apply(&c, value); err != nil {
			return Config{}, fmt.Errorf("environment: %s: %w", name, err)
		}
	}
	for _, pair := range settings {
		name, value, _ := strings.Cut(pair, "=")
		i := slices.IndexFunc(keys, func(k key) bool { return k.name == name })
		if i < 0 {
			return Config{}, fmt.Errorf("--set: %s is not a setting of purser; see purser serve --help", name)
		}
		if err := keys[i].apply(&c, value); err != nil {
			return Config{}, fmt.Errorf("--set %s: %w", name, err)
		}
	}
	return c, c.check()
}

// apply sets the key; its error never repeats a secret.
func (k key) apply(c *Config, value string) error { return k.set(c, value) }

func (c *Config) fromFile(file string, text []byte) error {
	if len(text) == 0 {
		return nil
	}
	var tree yaml.MapSlice
	if err := yaml.UnmarshalWithOptions(text, &tree, yaml.UseOrderedMap()); err != nil {
		return fmt.Errorf("%s: not YAML with one mapping: %s", file, firstLine(yaml.FormatError(err, false, false)))
	}
	return c.walk(file, text, "", tree)
}

func (c *Config) walk(file string, text []byte, prefix string, tree yaml.MapSlice) error {
	for _, item := range tree {
		name := prefix + fmt.Sprint(item.Key)
		at := fmt.Sprintf("%s:%d: %s", file, lineOf(text, name), name)
		if sub, ok := item.Value.(yaml.MapSlice); ok {
			if !slices.ContainsFunc(keys, func(k key) bool { return strings.HasPrefix(k.name, name+".") }) {
				return fmt.Errorf("%s is not a setting of purser; see purser serve --help", at)
			}
			if err := c.walk(file, text, name+".", sub); err != nil {
				return err
			}
			continue
		}
		i := slices.IndexFunc(keys, func(k key) bool { return k.name == name })
		if i < 0 {
			return fmt.Errorf("%s is not a setting of purser; see purser serve --help", at)
		}
		switch item.Value.(type) {
		case nil, []any:
			return fmt.Errorf("%s: must be one value", at)
		}
		if err := keys[i].apply(c, fmt.Sprint(item.Value)); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
	}
	return nil
}

// lineOf finds the line of a nested key by its indentation's order.
func lineOf(text []byte, name string) int {
	parts := strings.Split(name, ".")
	for i, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), parts[0]+":") {
			if parts = parts[1:]; len(parts) == 0 {
				return i + 1
			}
		}
	}
	return 1
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

// check refuses what cannot work together, or is missing.
func (c *Config) check() error {
	switch {
	case c.Database == "":
		return errors.New("database: required, sqlite:PATH or postgres://…")
	case c.BaseURL == "":
		return errors.New("base_url: required, the URL by which apps reach the API")
	case c.EnvelopeKey == nil:
		return errors.New("envelope_key: required, 32 bytes in base64; make one with: head -c 32 /dev/urandom | base64")
	}
	if c.AuthURL == "" {
		c.AuthURL = c.BaseURL
	}
	if c.DashboardURL == "" {
		c.DashboardURL = c.AuthURL
	}
	return nil
}
