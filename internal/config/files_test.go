package config

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// keyText is an envelope key as text, of 32 equal bytes.
func keyText(b byte) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(b), 32)))
}

// withoutKey are the settings that a node needs, but for its envelope key.
const withoutKey = "database: sqlite:x\nbase_url: https://api.example.com\n"

func save(t *testing.T, folder, name, text string) string {
	t.Helper()
	path := filepath.Join(folder, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSecretsFromFiles takes the envelope key from each place that it may stand in.
func TestSecretsFromFiles(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file := save(t, folder, "envelope_key", keyText('b')+"\n")
	save(t, folder, "unknown", "not ours")
	variable := "PURSER_ENVELOPE_KEY=" + keyText('x')
	wrong := t.TempDir()
	save(t, wrong, "envelope_key", "short")
	silent := save(t, t.TempDir(), "silent.sh", "echo 'no such key in the vault' >&2; echo secret; exit 3")
	for name, tt := range map[string]struct {
		text    string
		environ []string
		first   byte   // of the keys
		keys    int    // 0 = refused
		says    string // of a refusal
	}{
		"a file":          {"", []string{"PURSER_ENVELOPE_KEY_FILE=" + file}, 'b', 1, ""},
		"a credential":    {"", []string{"CREDENTIALS_DIRECTORY=" + folder}, 'b', 1, ""},
		"two keys":        {"envelope_key: " + keyText('x') + ", " + keyText('y'), nil, 'x', 2, ""},
		"two by variable": {"", []string{"PURSER_ENVELOPE_KEY=" + keyText('x') + "," + keyText('y')}, 'x', 2, ""},
		"a command":       {"envelope_key_command: cat " + file, nil, 'b', 1, ""},
		"variable and file": {"", []string{"PURSER_ENVELOPE_KEY=" + keyText('x'), "PURSER_ENVELOPE_KEY_FILE=" + file},
			0, 0, "PURSER_ENVELOPE_KEY and PURSER_ENVELOPE_KEY_FILE are both set"},
		"variable and credential": {"", []string{variable, "CREDENTIALS_DIRECTORY=" + folder},
			0, 0, "the credential envelope_key and PURSER_ENVELOPE_KEY are both set"},
		"credential and variable": {"", []string{"CREDENTIALS_DIRECTORY=" + folder, variable},
			0, 0, "the credential envelope_key and PURSER_ENVELOPE_KEY are both set"},
		"credential and file": {"", []string{"PURSER_ENVELOPE_KEY_FILE=" + file, "CREDENTIALS_DIRECTORY=" + folder},
			0, 0, "the credential envelope_key and PURSER_ENVELOPE_KEY_FILE are both set"},
		"key and command": {"envelope_key: " + keyText('x') + "\nenvelope_key_command: cat " + file, nil,
			0, 0, "envelope_key is set, too"},
		"a command that fails": {"envelope_key_command: sh " + silent, nil, 0, 0, "no such key in the vault"},
		"a command of rubbish": {"envelope_key_command: echo secret", nil, 0, 0, "must be 32 bytes in base64"},
		"no such command":      {"envelope_key_command: /no/such/program", nil, 0, 0, "envelope_key_command: /no/such"},
		"no such file":         {"", []string{"PURSER_ENVELOPE_KEY_FILE=/no/such"}, 0, 0, "PURSER_ENVELOPE_KEY_FILE: "},
		"a folder":             {"", []string{"PURSER_ENVELOPE_KEY_FILE=" + folder}, 0, 0, "is no file"},
		"a wrong credential":   {"", []string{"CREDENTIALS_DIRECTORY=" + wrong}, 0, 0, "credential envelope_key: "},
		"one of two is wrong":  {"envelope_key: " + keyText('x') + ",short", nil, 0, 0, "must be 32 bytes"},
	} {
		c, err := Load("p.yaml", []byte(withoutKey+tt.text), tt.environ, nil)
		switch {
		case tt.keys == 0:
			if err == nil || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v", name, err)
			}
		case err != nil || len(c.EnvelopeKeys) != tt.keys || c.EnvelopeKeys[0][0] != tt.first:
			t.Errorf("%s: %d keys, %v", name, len(c.EnvelopeKeys), err)
		}
	}
}

// TestOperatorTokens takes one or several, and refuses all if one is too short.
func TestOperatorTokens(t *testing.T) {
	t.Parallel()
	a, b := strings.Repeat("a", 32), strings.Repeat("b", 40)
	for text, want := range map[string]int{a: 1, a + "," + b: 2, a + ", " + b: 2, a + ",b": 0, a + ",": 0,
		"alice:" + a: 1, "alice:" + a + ",bob-2:" + b: 2, "Alice:" + a: 0, "wac_1:" + a: 0, ":" + a: 0, "alice:b": 0} {
		c, err := Read("p.yaml", []byte("operator_token: \""+text+"\""), nil, nil)
		if (err == nil) != (want > 0) || len(c.OperatorTokens) != want {
			t.Errorf("%q: %d tokens, %v", text, len(c.OperatorTokens), err)
		}
	}
}
