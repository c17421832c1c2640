package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/purserhq/purser/internal/testkit/bank"
)

// canaryPrompt is in each prompt, and, since the emulator answers about what it is asked, in most answers.
const canaryPrompt = "canary-prompt"

// canaryReason is in the reason of each suspension of an account, which its apps are not told.
const canaryReason = "canary-reason"

// textMember is a member of a call's body that has what a person says.
var textMember = regexp.MustCompile(`"(content|input|text)":\s*"`)

// markPrompts marks what is said in the body of a call.
func markPrompts(path, body string) string {
	if strings.Contains(path, "/accounts/") && strings.HasSuffix(path, "/suspend") {
		return strings.Replace(body, `"reason":"`, `"reason":"`+canaryReason+" ", 1)
	}
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
	"a prompt": {"stored_responses.body", "checkpoints.body", "to providers"},
	// Addresses are those of an account, of its mails, and of whom somebody has invited.
	"an address": {"to Stripe", "accounts.email", "mails.recipient", "mails.subject", "mails.text",
		"mails.html", "identity_links.email", "invitations.email", "app_invitations.email", "openid_logins.email",
		"apps.test_allowlist", "passkey_challenges.options"},
	"why an account is suspended": {"accounts.suspended_reason", "operator_log.reason", "operator_log.after",
		"operator_log.before", "mails.text", "mails.html", "security_events.detail"},
	// Of who has left there is the last email, until it is sent.
	"the address of who has left": {"mails.recipient", "mails.subject", "mails.text", "mails.html"},
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
	for _, e := range w.receiver.endpoints {
		for _, s := range e.secrets {
			list = append(list, canary{"the secret of " + e.id, s.text})
		}
	}
	return list
}

// A wire keeps what the product sends to the outside, by where to.
type wire struct {
	mu   sync.Mutex
	sent map[string]*bytes.Buffer
}

// keep returns a handler that keeps what h gets, but for headers, which have the keys of the outside.
func (l *wire) keep(to string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			l.note(to, r.URL.String(), string(body))
		}
		h.ServeHTTP(w, r)
	})
}

func (l *wire) note(to, address, body string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sent[to] == nil {
		l.sent[to] = &bytes.Buffer{}
	}
	if form, err := url.QueryUnescape(body); err == nil {
		body = form
	}
	fmt.Fprintln(l.sent[to], address, body)
}

// rowsScanned bounds how many rows of a table are read: the newest of more.
const rowsScanned = 20_000

// checkCanaries looks for canaries in all tables, in the log, and in what was sent to Stripe, providers and receivers.
func (w *world) checkCanaries() error {
	canaries := append(w.secrets(), canary{"a prompt", canaryPrompt},
		canary{"why an account is suspended", canaryReason})
	for _, name := range names {
		canaries = append(canaries, canary{"an address", bank.Address(name)})
	}
	tables, err := w.tables()
	for _, table := range tables {
		err = errors.Join(err, w.scan(table, canaries))
	}
	texts := map[string]string{"the log": w.log.String()}
	for to, sent := range w.wire.sent {
		texts[to] = sent.String()
	}
	for place, text := range texts {
		for _, c := range canaries {
			at := strings.Index(text, c.text)
			if at >= 0 && c.text != "" && !slices.Contains(places[c.what], place) {
				err = errors.Join(err, fmt.Errorf("canary: %s has %s: %s", place, c.what,
					text[max(0, at-200):min(len(text), at+100)]))
			}
		}
	}
	return err
}

// checkErased looks for the addresses of those who have left, in all tables.
func (w *world) checkErased() error {
	var canaries []canary
	for _, name := range names {
		is, err := w.person(name)
		again, failed := w.texts(`SELECT id FROM accounts WHERE email = $1`, bank.Address(name)) // a new account
		if err = errors.Join(err, failed); err != nil {
			return err
		} else if is.isClosed && len(again) == 0 {
			canaries = append(canaries, canary{"the address of who has left", bank.Address(name)})
		}
	}
	tables, err := w.tables()
	for _, table := range tables {
		err = errors.Join(err, w.scan(table, canaries))
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
