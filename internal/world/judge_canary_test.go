package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/purserhq/purser/internal/testkit/bank"
)

// canaryPrompt is in each prompt, and, since the emulator answers about what it is asked, in most answers.
const canaryPrompt = "canary-prompt"

// textMember is a member of a call's body that has what a person says.
var textMember = regexp.MustCompile(`"(content|input|text)":\s*"`)

// markPrompts marks what is said in the body of a call.
func markPrompts(path, body string) string {
	for _, part := range []string{"/v1/ai/", "/completions", "/responses", "/messages", "/embeddings"} {
		if strings.Contains(path, part) {
			return textMember.ReplaceAllString(body, "${0}"+canaryPrompt+" ")
		}
	}
	return body
}

// A canary is a text that may be in few places.
type canary struct{ what, text string }

// places are where canaries belong, by what they are. A column that is not here has none.
var places = map[string][]string{
	// What is sent to and answered by models is kept for replays, for seven days (docs/operate/configuration.md).
	"a prompt": {"stored_responses.body", "checkpoints.body"},
	// Addresses are those of an account, of its mails, and of whom somebody has invited.
	"an address": {"accounts.email", "mails.recipient", "mails.subject", "mails.text", "mails.html",
		"identity_links.email", "invitations.email", "app_invitations.email", "openid_logins.email",
		"apps.test_allowlist", "passkey_challenges.options", "sessions.data"},
}

// secrets are what nobody may keep or tell.
func (w *world) secrets() (list []canary) {
	list = []canary{
		{"a password", bank.Password}, {"the operator's token", operatorToken}, {"Stripe's key", stripeKey},
		{"Stripe's secret", stripeSecret}, {"a provider's key", "emulated-key"}, {"a verifier", verifier},
	}
	for i, t := range w.api.tokens {
		list = append(list, canary{fmt.Sprint("access token ", i), t.text},
			canary{fmt.Sprint("refresh token ", i), t.refresh}, canary{fmt.Sprint("code ", i), t.code})
	}
	for id, c := range w.api.apps {
		list = append(list, canary{"the secret of " + id, c.secret})
	}
	return list
}

// rowsScanned bounds how many rows of a table are read: the newest of more.
const rowsScanned = 20_000

// checkCanaries looks for canaries in all tables and in the log.
func (w *world) checkCanaries() error {
	canaries := append(w.secrets(), canary{"a prompt", canaryPrompt})
	for _, name := range names {
		canaries = append(canaries, canary{"an address", bank.Address(name)})
	}
	tables, err := w.texts(`SELECT name FROM sqlite_master WHERE type = 'table'`)
	for _, table := range tables {
		err = errors.Join(err, w.scan(table, canaries))
	}
	text := w.log.String()
	for _, c := range canaries {
		if at := strings.Index(text, c.text); at >= 0 {
			err = errors.Join(err, fmt.Errorf("canary: the log has %s: %s", c.what,
				text[max(0, at-200):min(len(text), at+100)]))
		}
	}
	return err
}

// scan looks for canaries in a table.
func (w *world) scan(table string, canaries []canary) (err error) {
	rows, err := w.Server.DB.QueryContext(context.Background(), `SELECT * FROM "`+table+`" LIMIT $1`, rowsScanned)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	values := make([]any, len(columns))
	into := make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		for i, v := range values {
			var text []byte
			switch v := v.(type) {
			case string:
				text = []byte(v)
			case []byte:
				text = v
			}
			for _, c := range canaries {
				if c.text == "" || len(text) < len(c.text) || !bytes.Contains(text, []byte(c.text)) {
					continue
				}
				if place := table + "." + columns[i]; !slices.Contains(places[c.what], place) {
					return fmt.Errorf("canary: %s has %s: %.300s", place, c.what, text)
				}
			}
		}
	}
	return rows.Err()
}
