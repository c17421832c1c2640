package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/purserhq/purser/internal/apps/payouts"
	"github.com/purserhq/purser/internal/backup"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/telemetry"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/people/identity"
)

// Load reads the settings as Read does, and checks that a node has all that it needs. Its error names all faults, a
// line each.
func Load(file string, text []byte, environ, flags []string) (Config, error) {
	c, faults := readAll(file, text, environ, flags)
	if err := c.runEnvelopeCommand(); err != nil {
		faults = append(faults, fault{"envelope_key", err})
	}
	var missing error
	if !faults.isUnread() { // else nearly everything would be missing
		missing = c.reportMissing(faults)
	}
	if err := errors.Join(faults.list(), missing); err != nil {
		return Config{}, err
	}
	if c.AuthURL == "" {
		c.AuthURL = c.BaseURL
	}
	if c.DashboardURL == "" {
		c.DashboardURL = c.AuthURL
	}
	return c, nil
}

// reportMissing returns one error that names all settings that a node still needs, a line each. It leaves out those
// that have a fault.
func (c Config) reportMissing(faults faults) error {
	var missing []error
	for _, required := range []struct {
		absent bool
		text   string
	}{
		{c.Database == "", "database: required, sqlite:PATH or postgres://…"},
		{c.BaseURL == "", "base_url: required, the URL by which apps reach the API"},
		{c.EnvelopeKeys == nil,
			"envelope_key: required, 32 bytes in base64; make one with: head -c 32 /dev/urandom | base64"},
		{c.Backup.At != "" && c.Backup.Folder == "",
			"backup.dir: required with backup.at, the folder of the daily backups"},
		{c.Payouts.Every > 0 && c.Stripe.Key == "",
			"stripe.key: required with payouts.every, to pay by Stripe Connect"},
		{c.SMTP.Host != "" && c.SMTP.From.Address == "",
			"smtp.from: required with smtp.url, the address that mail comes from"},
	} {
		name, _, _ := strings.Cut(required.text, ":")
		if required.absent && !faults.has(name) {
			missing = append(missing, errors.New(required.text))
		}
	}
	if !faults.has("oidc.") {
		missing = append(missing, c.OIDC.Validate())
	}
	if !faults.has("stripe.") {
		missing = append(missing, c.Stripe.Validate())
	}
	return errors.Join(missing...)
}

// commandTime bounds the program that prints the envelope key.
const commandTime = 10 * time.Second

// runEnvelopeCommand sets EnvelopeKeys from what EnvelopeCommand prints. An error has what the program says on its
// standard error, and never what it prints.
func (c *Config) runEnvelopeCommand() error {
	words := strings.Fields(c.EnvelopeCommand)
	if len(words) == 0 {
		return nil
	}
	if c.EnvelopeKeys != nil {
		return errors.New("envelope_key_command: envelope_key is set, too")
	}
	ctx, cancel := context.WithTimeout(context.Background(), commandTime)
	defer cancel()
	command := exec.CommandContext(ctx, words[0], words[1:]...)
	command.WaitDelay = time.Second
	var said bytes.Buffer
	command.Stderr = &said
	printed, err := command.Output()
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("no answer within %s", commandTime)
		}
		text := strings.TrimSpace(said.String())
		return fmt.Errorf("envelope_key_command: %s: %w: %s", words[0], err, text[:min(len(text), 300)])
	}
	k, _ := findKey(func(k Key) bool { return k.Name == "envelope_key" })
	if err := k.set(c, strings.TrimSpace(string(printed))); err != nil {
		return fmt.Errorf("envelope_key_command: what %s prints %w", words[0], err)
	}
	return nil
}

// A fault is a setting that is unknown or wrong.
type fault struct {
	name string // of the setting; "" = the file as a whole
	err  error
}

type faults []fault

// has reports whether a setting whose name begins with a text has a fault.
func (f faults) has(name string) bool {
	return slices.ContainsFunc(f, func(one fault) bool { return strings.HasPrefix(one.name, name) })
}

// isUnread reports whether the file as a whole has a fault, so that its settings are unknown.
func (f faults) isUnread() bool {
	return slices.ContainsFunc(f, func(one fault) bool { return one.name == "" })
}

// list returns one error with a line for each fault; nil if there is none.
func (f faults) list() error {
	list := make([]error, len(f))
	for i, one := range f {
		list[i] = one.err
	}
	return errors.Join(list...)
}

// Read reads the text of a YAML file (none if it is empty; file is its name),
// then the environment given as NAME=value, then flags given as key=value. Its error names all faults, a line each.
func Read(file string, text []byte, environ, flags []string) (Config, error) {
	c, faults := readAll(file, text, environ, flags)
	if err := faults.list(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// ReadSound reads what Read reads, without the settings that are wrong, whose names it returns. all reports whether the
// rest is complete: it is not when the file as a whole can't be read.
func ReadSound(file string, text []byte, environ []string) (c Config, wrong []string, all bool) {
	c, faults := readAll(file, text, environ, nil)
	for _, f := range faults {
		wrong = append(wrong, f.name)
	}
	return c, wrong, !faults.isUnread()
}

// readAll reads the settings, and goes on behind a fault.
func readAll(file string, text []byte, environ, flags []string) (c Config, all faults) {
	c = Config{
		Listen:           "127.0.0.1:8080",
		Policy:           policy.Default,
		VerifyAt:         "03:00",
		Backup:           backup.Settings{Keep: 14},
		Lease:            10 * time.Second,
		Drain:            5 * time.Second,
		Grace:            5 * time.Minute,
		Retention:        DefaultRetention,
		Payouts:          payouts.Config{Window: payouts.DefaultWindow, MinimumMC: payouts.DefaultMinimum},
		StoredBytes:      10_000_000_000,
		MaxCalls:         10_000,
		MaxProviderCalls: 6_000,
		VoiceIdleTimeout: 2 * time.Minute,
		OTLP:             telemetry.Config{Sample: money.One},
		LogLevel:         "info",
		LogFormat:        "auto",
		LogSample:        money.One,
		Providers:        map[string]Provider{},
		SignUps:          identity.OpenSignUps,
	}
	all = append(c.readFile(file, text), c.readEnvironment(environ)...)
	for _, pair := range flags {
		name, value, _ := strings.Cut(pair, "=")
		k, ok := findKey(func(k Key) bool { return k.Name == name })
		if !ok {
			all = append(all, fault{name, unknownSettingError(name)})
		} else if err := c.apply(k, value); err != nil {
			all = append(all, fault{name, fmt.Errorf("--%s: %w", k.Flag(), err)})
		}
	}
	return c, all
}

// apply sets a value that was given. An empty one leaves the setting as it is: Compose files, charts and .env files
// have names for all that they may set.
func (c *Config) apply(k Key, value string) error {
	if value == "" {
		return nil
	}
	before := *c
	if err := k.set(c, value); err != nil {
		*c = before // the setting is missing, and not half there
		return err
	}
	c.Given = append(c.Given, k.Name)
	return nil
}

// Override sets what the environment has. Its error names all faults, a line each.
func (c *Config) Override(environ []string) error { return c.readEnvironment(environ).list() }

func (c *Config) readEnvironment(environ []string) (all faults) {
	set := map[string]string{} // the variable by the setting
	for _, pair := range environ {
		if folder, ok := strings.CutPrefix(pair, credentialsVariable+"="); ok && folder != "" {
			all = append(all, c.readCredentials(folder, set)...)
		}
	}
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, "PURSER_") || isIgnoredVariable(name) {
			continue
		}
		k, ok := findKey(func(k Key) bool { return k.Variable() == name || k.FileVariable() == name })
		if ok && value == "" {
			continue
		}
		if before, twice := set[k.Name]; ok && twice {
			all = append(all, fault{k.Name, fmt.Errorf("environment: %s and %s are both set", before, name)})
			continue
		}
		set[k.Name] = name
		if ok && k.FileVariable() == name {
			text, err := readValue(value)
			if err != nil {
				all = append(all, fault{k.Name, fmt.Errorf("environment: %s: %w", name, err)})
				continue
			}
			value = text
		}
		if !ok {
			all = append(all, fault{name, fmt.Errorf("environment: %w", unknownSettingError(name))})
		} else if err := c.apply(k, value); err != nil {
			all = append(all, fault{k.Name, fmt.Errorf("environment: %s: %w", name, err)})
		}
	}
	return all
}

// credentialsVariable names the folder in which systemd puts the credentials of a service (LoadCredential).
const credentialsVariable = "CREDENTIALS_DIRECTORY"

// readCredentials reads the settings that a folder has files for, which are named as the settings, and notes them in
// set. Other files are not ours.
func (c *Config) readCredentials(folder string, set map[string]string) (all faults) {
	for _, k := range keys {
		path := filepath.Join(folder, k.Name)
		value, err := readValue(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		set[k.Name] = "the credential " + k.Name
		if err == nil {
			err = c.apply(k, value)
		}
		if err != nil {
			all = append(all, fault{k.Name, fmt.Errorf("credential %s: %w", k.Name, err)})
		}
	}
	return all
}

// maxValue is the size in bytes of a file with a setting's value.
const maxValue = 64 << 10

// readValue reads a setting's value from a file, without the line's end.
func readValue(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > maxValue {
		return "", fmt.Errorf("%s is no file of at most 64 KB", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	value := strings.TrimRight(strings.TrimPrefix(string(text), byteOrderMark), "\r\n")
	if value == "" { // unlike an empty variable, this is a secret that was not written
		return "", fmt.Errorf("%s is empty", path)
	}
	return value, nil
}

// byteOrderMark is what editors of Windows write before a text in UTF-8.
const byteOrderMark = "\ufeff"

// The variables of the commands that work for an app. Shells that use them run the others too.
const (
	AppVariable           = "PURSER_APP"
	ClientIDVariable      = "PURSER_CLIENT_ID"
	ClientSecretVariable  = "PURSER_CLIENT_SECRET"
	WebhookSecretVariable = "PURSER_WEBHOOK_SECRET"
	ProfileVariable       = "PURSER_PROFILE"
)

var commandVariables = []string{AppVariable, ClientIDVariable, ClientSecretVariable, WebhookSecretVariable,
	ProfileVariable}

// isIgnoredVariable reports whether a variable is no setting: those of other commands, those of the tests,
// and those that Kubernetes sets in every container when a service is called purser.
func isIgnoredVariable(name string) bool {
	return slices.Contains(commandVariables, name) || strings.HasPrefix(name, "PURSER_TEST_") ||
		strings.HasPrefix(name, "PURSER_SERVICE_") || strings.HasPrefix(name, "PURSER_PORT")
}

func findKey(is func(Key) bool) (Key, bool) {
	i := slices.IndexFunc(keys, is)
	if i < 0 {
		return Key{}, false
	}
	return keys[i], true
}

func unknownSettingError(name string) error {
	return fmt.Errorf("%s is not a setting of purser; see purser serve --help", name)
}

// readFile walks the syntax tree and not its values, so that each key has its
// line, and a key that looks like a number keeps its digits.
func (c *Config) readFile(file string, text []byte) (all faults) {
	text = bytes.TrimPrefix(text, []byte(byteOrderMark))
	if !utf8.Valid(text) {
		return faults{{"", fmt.Errorf("%s:%d: is not text in UTF-8: save the file in this encoding", file,
			findInvalidLine(text))}}
	}
	tree, err := parser.ParseBytes(text, 0)
	if err != nil {
		message, _, _ := strings.Cut(yaml.FormatError(err, false, false), "\n")
		return faults{{"", fmt.Errorf("%s: %s", file, message)}}
	}
	documents := 0
	for _, d := range tree.Docs {
		if d.Body == nil || d.Body.Type() == ast.CommentType {
			continue
		}
		if documents++; documents > 1 {
			return append(all, fault{"", fmt.Errorf("%s: must be one YAML document", file)})
		}
		all = append(all, c.setKeysOf(file, "", d.Body)...)
	}
	return all
}

// findInvalidLine returns the number of the first line that is not UTF-8; 0 = all are.
func findInvalidLine(text []byte) int {
	n := 0
	for line := range bytes.Lines(text) {
		if n++; !utf8.Valid(line) {
			return n
		}
	}
	return 0
}

// setKeysOf sets the keys below prefix.
func (c *Config) setKeysOf(file, prefix string, n ast.Node) (all faults) {
	var pairs []*ast.MappingValueNode
	switch m := n.(type) {
	case *ast.MappingNode:
		pairs = m.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{m}
	case *ast.NullNode:
		return nil // a group without settings
	default:
		return faults{{prefix, fmt.Errorf("%s:%d: %q must hold keys with values", file, n.GetToken().Position.Line,
			strings.TrimSuffix(prefix, "."))}}
	}
	for _, p := range pairs {
		token := p.Key.GetToken()
		name := prefix + token.Value
		if _, isGroup := findKey(func(k Key) bool { return strings.HasPrefix(k.Name, name+".") }); isGroup {
			all = append(all, c.setKeysOf(file, name+".", p.Value)...)
		} else if err := c.setScalar(name, p.Value); err != nil {
			all = append(all, fault{name, fmt.Errorf("%s:%d: %w", file, token.Position.Line, err)})
		}
	}
	return all
}

func (c *Config) setScalar(name string, n ast.Node) error {
	k, ok := findKey(func(k Key) bool { return k.Name == name })
	if !ok {
		return unknownSettingError(name)
	}
	var value string
	switch v := n.(type) {
	case *ast.StringNode:
		value = v.Value
	case *ast.LiteralNode:
		value = strings.TrimSpace(v.Value.Value)
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		value = n.GetToken().Value // as it was written
	case *ast.NullNode:
		return nil
	default:
		return fmt.Errorf("%s: must be one value", name)
	}
	if err := c.apply(k, value); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
