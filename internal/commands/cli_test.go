package commands

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/config"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

func command(environ []string, args ...string) (code int, out, err string) {
	var o, e bytes.Buffer
	code = (&program{out: &o, err: &e, environ: environ}).runCommand(args)
	return code, o.String(), e.String()
}

// Standard output is for answers, standard error for what went wrong; a wrong
// command line or setting is 2 and tells what was wrong.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	wrong, empty := write("wrong.yaml", "\nbaseurl: x\n"), write("empty.yaml", "")
	for _, c := range []struct {
		args     string
		code     int
		out, err string
	}{
		{args: "version", out: "contract 0.1.0"},
		{args: "--help", out: "Exit codes: 0 success"},
		{args: "dev --help", out: "purser dev --data"},
		{args: "dev --help", out: "from 14d to 366d"}, // history.MinDays and MaxDays
		{args: "dev --history=1d", code: 2, err: "from 14d to 366d"},
		{args: "serve --help", out: "PURSER_PROVIDERS_OPENAI_KEY"},
		{args: "serve --help", out: "--fee-rate=VALUE"},
		{args: "listen --help", out: "purser listen --forward-to http"},
		{args: "trigger --help", out: "realtime_session.ended"},
		{args: "login --help", out: "purser login --server https://purser.example.com --client"},
		{args: "token --help", out: "$(purser token)"},
		{args: "logout --help", out: "purser logout"},
		{args: "init --help", out: "purser doctor --config"},
		{args: "doctor --help", out: "purser doctor --config purser.yaml"},
		{args: "new --help", out: "purser new chat --template python-chat"},
		{args: "new x", code: 2, err: "--template"},
		{args: "open --help", out: "purser open docs"},
		{args: "logs --help", out: "purser logs --follow"},
		{args: "events resend --help", out: "purser events resend evt_"},
		{args: "events list --help", out: "purser events list --json"},
		{args: "apps --help", out: "purser apps"},
		{args: "apps login --help", out: "purser apps login shop"},
		{args: "apps logout --help", out: "purser apps logout shop"},
		{args: "apps", code: 1, err: "there is no profile"},
		{args: "apps login", code: 2, err: "--app"},
		{args: "apps login ../x --app a --client-id b", code: 2, err: "HOME or XDG_CONFIG_HOME"},
		{args: "logs", code: 2, err: "no app is known"},
		{args: "logs --since yesterday", code: 2, err: "--since"},
		{args: "token", code: 2, err: "HOME or XDG_CONFIG_HOME: required"},
		{args: "listen", code: 2, err: "--forward-to"},
		{
			args: "listen --app a --client-id b --client-secret c --forward-to localhost:3000",
			code: 2,
			err:  "--forward-to: must be an address",
		},
		{
			args: "listen --app a --client-id b --client-secret c --forward-to http://localhost:3000 --secret whsec_%",
			code: 2,
			err:  "--secret: must be a signing secret",
		},
		{
			args: "listen --app a --client-id b --client-secret c --forward-to http://localhost:3000 --url http://127.0.0.1:1",
			code: 1,
			err:  "connection refused",
		},
		{args: "trigger connection.revoked", code: 2, err: "run purser apps login"},
		{args: "trigger connection.revoked --app a --client-id b", code: 2, err: "PURSER_CLIENT_SECRET: required"},
		{args: "ledger verify --help", out: "purser ledger verify --database"},
		{args: "backup --help", out: "purser backup --config purser.yaml /backups/"},
		{args: "backup verify --help", out: "purser backup verify /backups/"},
		{args: "backup key --help", out: "purser backup key purser-backup.key"},
		{args: "backup", code: 2, err: "--database"},
		{args: "backup " + folder + "/a.backup", code: 2, err: "--database"},
		{
			args: "backup " + folder + "/a.backup --database sqlite:" + folder + "/absent.db",
			code: 1,
			err:  "no such file",
		},
		{args: "backup " + folder + "/a.backup --config " + empty, code: 2, err: "names no database"},
		{
			args: "backup " + folder + "/a.backup --database sqlite:x --recipient age1",
			code: 2,
			err:  "--recipient: must",
		},
		{args: "backup verify " + folder + "/absent", code: 1, err: "no such file"},
		{args: "backup verify " + empty, code: 1, err: "cut off"},
		{args: "backup verify " + wrong, code: 1, err: "no backup of Purser"},
		{args: "backup verify " + wrong + " --identity " + wrong, code: 2, err: "no file of identities"},
		{args: "backup verify " + wrong + " --passphrase-file " + empty, code: 2, err: "at least 12"},
		{args: "restore --help", out: "purser restore /backups/"},
		{args: "restore " + wrong, code: 2, err: "--database"},
		{args: "restore " + wrong + " --database sqlite:" + wrong, code: 1, err: "exists already"},
		{args: "db copy --help", out: "purser db copy --from sqlite:"},
		{args: "db copy --from sqlite:x", code: 2, err: "--to"},
		{args: "db copy --from sqlite:" + folder + "/absent.db --to sqlite:x", code: 1, err: "no such file"},
		{args: "serve --help", out: "--drill"},
		{args: "serve --backup-at noon", code: 2, err: "--backup-at: must be a time of day"},
		{args: "serve --backup-at 04:00", code: 2, err: "backup.dir: required with backup.at"},
		{args: "serve --backup-recipient age1", code: 2, err: "--backup-recipient: must be a public key"},
		{args: "version --help", out: "purser version"},
		{args: "operator --help", out: "PURSER_OPERATOR_TOKEN"},
		{args: "operator suspend --help", out: "purser operator suspend app_"},
		{args: "operator suspend app_x", code: 2, err: "--reason"},
		{args: "operator grant --help", out: "purser operator grant person@example.com operator"},
		{args: "operator grant person@example.com admin", code: 2, err: `must be one of "operator","viewer","none"`},
		{args: "operator requests", code: 2, err: "set PURSER_OPERATOR_TOKEN"},
		{args: "operator --token x requests", code: 2, err: "unknown flag"}, // no secrets on a command line
		{args: "", out: "Start here:"},
		{args: "--version", out: ", contract 0.1.0"},
		{args: "version --json", out: `"contract":"0.1.0"`},
		{args: "help", out: "Start here:"},
		{args: "help ledger verify", out: "purser ledger verify --database"},
		{args: "help nothing", code: 2, err: "unexpected argument nothing"},
		{args: "help --help", out: "purser help ledger verify"},
		{args: "completion --help", out: "~/.bashrc"},
		{args: "completion tcsh", code: 2, err: "bash"},
		{args: "ledger", code: 2, err: `expected one of "verify", "journal"`},
		{args: "sevre", code: 2, err: "sevre"},
		{args: "dev --lease=soon", code: 2, err: "--lease"},
		{args: "serve", code: 2, err: "database: required"},
		{args: "serve --config " + wrong, code: 2, err: wrong + ":2: baseurl is not a setting"},
		{args: "serve --config " + folder + "/absent", code: 2, err: "absent: no such file"},
		{args: "serve --fee-rate 5%", code: 2, err: "--fee-rate: "},
		{args: "serve --providers-openai-key x", code: 2, err: "unknown flag"}, // no secrets on a command line
		{args: "ledger verify", code: 2, err: "--database"},
		{args: "ledger verify --database sqlite:x --config y", code: 2, err: "can't be used together"},
		{args: "ledger verify --database sqlite:" + folder + "/absent.db", code: 2, err: "no such file"},
		{args: "ledger verify --config " + empty, code: 2, err: "names no database"},
	} {
		code, out, err := command(nil, strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(err, c.err) {
			t.Errorf("purser %s: exit %d\n%s%s", c.args, code, out, err)
		}
		if code == exitOK && err != "" || code == exitUsage && out != "" {
			t.Errorf("purser %s mixes its outputs: %q, %q", c.args, out, err)
		}
	}
	if code, _, err := command([]string{"PURSER_PROVIDERS_OPENAI_BASE_URL=ftp://x"}, "dev"); code != exitUsage ||
		!strings.Contains(err, "PURSER_PROVIDERS_OPENAI_BASE_URL: must be an http") {
		t.Errorf("purser dev with a wrong variable: exit %d\n%s", code, err)
	}
}

// variablePattern matches the name of an environment variable of purser in a text.
var variablePattern = regexp.MustCompile(`PURSER_[A-Z_]*[A-Z]\b`)

// U3: a shell that has set everything that help and guides name runs every command. A variable of one command is no
// unknown setting of another.
func TestEveryDocumentedVariableIsAccepted(t *testing.T) {
	t.Parallel()
	values := map[string]string{"PURSER_ENVELOPE_KEY": base64.StdEncoding.EncodeToString(make([]byte, 32)),
		"PURSER_DATABASE": "sqlite:" + t.TempDir() + "/absent.db", "PURSER_BASE_URL": "https://api.example.com",
		"PURSER_OPERATOR_TOKEN": strings.Repeat("t", 32)}
	texts := []string{}
	for _, help := range []string{"serve", "listen", "trigger", "logs", "operator", "ledger verify"} {
		_, out, _ := command(nil, append(strings.Fields(help), "--help")...)
		texts = append(texts, out)
	}
	for _, pattern := range []string{"../../README.md", "../../docs/guide/*.md", "../../docs/operate/*.md"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(text))
		}
	}
	environ := map[string]bool{}
	for _, text := range texts {
		for _, name := range variablePattern.FindAllString(text, -1) {
			if strings.HasSuffix(name, "_FILE") { // instead of a value
				continue
			}
			if !isSetting(name) || values[name] != "" {
				environ[name+"="+cmp.Or(values[name], "x")] = true
			}
		}
	}
	list := slices.Sorted(maps.Keys(environ))
	if joined := strings.Join(list, " "); !strings.Contains(joined, "PURSER_APP=") ||
		!strings.Contains(joined, "PURSER_WEBHOOK_SECRET=") {
		t.Fatalf("only found %s", joined)
	}
	if _, err := config.Load("", nil, list, nil); err != nil {
		t.Errorf("purser serve with %v: %v", list, err)
	}
	settings := filepath.Join(t.TempDir(), "purser.yaml")
	if err := os.WriteFile(settings, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := command(list, "ledger", "verify", "--config", settings); !strings.Contains(err, "absent.db") {
		t.Errorf("purser ledger verify: %s", err)
	}
}

// isSetting reports whether a variable is that of a setting.
func isSetting(name string) bool {
	return slices.ContainsFunc(config.Keys(), func(k config.Key) bool { return k.Variable() == name })
}

// The audit ends with 0 on a clean database and with 1 on any finding, reached
// by its URL or by the settings of purser serve.
func TestVerify(t *testing.T) {
	t.Parallel()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			target := dbtest.URL(t, e)
			settings := filepath.Join(t.TempDir(), "purser.yaml")
			if err := os.WriteFile(settings, []byte("database: "+target+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			verify := func(want int, environ []string, args ...string) {
				t.Helper()
				code, out, err := command(environ, append([]string{"ledger", "verify"}, args...)...)
				// On a slow machine it says how far it is.
				err = regexp.MustCompile(`(?m)^\d+ % · .*\n`).ReplaceAllString(err, "")
				if !strings.HasPrefix(err, "database: ") {
					t.Errorf("it does not say of which database: %s", err)
				}
				_, err, _ = strings.Cut(err, "\n")
				if code != want || err != "" || strings.Contains(out, "acc_broken") != (want == exitFailed) {
					t.Errorf("%v: exit %d\n%s%s", args, code, out, err)
				}
			}
			verify(exitOK, nil, "--database", target)
			d, err := db.Open(t.Context(), target)
			if err != nil {
				t.Fatal(err)
			}
			d.RelaxLimits(12)
			t.Cleanup(func() { _ = d.Close() })
			if _, err := d.ExecContext(t.Context(),
				`INSERT INTO balances (account_id, sandbox, available_mc, reserved_mc, seq, head) VALUES ('acc_broken', 0, 1, 0, 0, '')`); err != nil {
				t.Fatal(err)
			}
			verify(exitFailed, nil, "--database", target)
			verify(exitFailed, nil, "--config", settings)
			// the environment wins
			verify(exitOK, []string{"PURSER_DATABASE=" + dbtest.URL(t, e)}, "--config", settings)
		})
	}
}

// An @ in a password would make a host of the rest of it, which is looked up and printed: each command that takes the
// URL of a database refuses it, as purser serve does.
func TestBarePasswords(t *testing.T) {
	t.Parallel()
	url := "postgres://u:a@SECRET@127.0.0.1:1/x"
	folder := t.TempDir()
	for _, args := range [][]string{
		{"ledger", "verify", "--database", url},
		{"ledger", "journal", "--database", url},
		{"backup", "create", folder + "/x", "--database", url},
		{"restore", folder + "/x", "--database", url},
		{"db", "copy", "--from", url, "--to", "sqlite:" + folder + "/x.db"},
		{"db", "copy", "--from", "sqlite:" + folder + "/x.db", "--to", url},
		{"db", "accept-loss", "--database", url},
		{"dev", "--data", folder, "--listen", "127.0.0.1:0", "--database", url},
		{"serve", "--database", url},
	} {
		code, out, err := command(nil, args...)
		if code != exitUsage || strings.Contains(out+err, "SECRET") || !strings.Contains(err, "is not a URL") {
			t.Errorf("%v: exit %d\n%s%s", args, code, out, err)
		}
	}
}
