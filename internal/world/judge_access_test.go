package world

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/testkit/bank"
)

// A token is an access token that an app got once, with what ends it.
type token struct {
	text, connectionID string
	refresh, code      string
	issued             time.Time
	grant              *family
}

// tokenAge is how long an access token may be used (F-59), with a minute for what is under way.
const tokenAge = 16 * time.Minute

// A standing is what a credential stands on, read from the tables that the acts of people and operators write.
type standing struct {
	status                        string // of the connection
	isSuspended, isClosed, isIdle bool   // of the account, and of the app (suspended)
}

func (w *world) standingOf(connectionID string) (s standing, err error) {
	err = w.Server.DB.QueryRowContext(context.Background(), `SELECT c.status, a.suspended_us IS NOT NULL,
			a.closed_us IS NOT NULL, p.suspension_by IS NOT NULL OR p.suspended <> 0
		FROM connections c JOIN accounts a ON a.id = c.account_id JOIN apps p ON p.id = c.app_id WHERE c.id = $1`,
		connectionID).Scan(&s.status, &s.isSuspended, &s.isClosed, &s.isIdle)
	return s, err
}

// checkAccess tries every credential that was ever given: who may use it now follows from what it stands on.
func (w *world) checkAccess() error {
	var wrong error
	for i, t := range w.api.tokens {
		s, err := w.standingOf(t.connectionID)
		if err != nil {
			return err
		}
		isDead := w.since(t.issued) > tokenAge || t.grant.ended != "" // until then it tells that it is revoked
		mayNotSpend := isDead || s.isClosed || s.status != "active" || s.isSuspended || s.isIdle
		reads, err := w.send(context.Background(), nil, "GET", "/v1/connection", "", "Authorization", "Bearer "+t.text)
		if err != nil {
			return err
		}
		if isDead && reads.Status == http.StatusOK {
			wrong = errors.Join(wrong, fmt.Errorf("access: token %d of %s reads, after %s, %+v", i, t.connectionID,
				w.since(t.issued), s))
		}
		calls, err := w.send(context.Background(), nil, "POST", "/v1/chat/completions",
			`{"model":"gpt-6-luna","max_tokens":5,"messages":[{"role":"user","content":"`+canaryPrompt+`"}]}`,
			"Authorization", "Bearer "+t.text, "Content-Type", "application/json", "Idempotency-Key",
			id.NewUUID())
		if err != nil {
			return err
		}
		if mayNotSpend && calls.Status == http.StatusOK {
			wrong = errors.Join(wrong, fmt.Errorf("access: token %d of %s spends, after %s, %+v", i, t.connectionID,
				w.since(t.issued), s))
		}
		if !mayNotSpend {
			w.api.drawn[fmt.Sprint("a call of who may spend: ", calls.Status)]++
		}
	}
	for _, old := range w.cast.leaked {
		a, err := w.send(context.Background(), nil, "GET", "/v1/account", "", "Authorization", old.basic())
		if err != nil {
			return err
		} else if a.Status != http.StatusUnauthorized {
			wrong = errors.Join(wrong, fmt.Errorf("access: a client secret that was replaced gets %d", a.Status))
		}
	}
	return errors.Join(wrong, w.checkSessions())
}

// checkSessions tries the session of each browser: who is suspended or has left is signed in nowhere.
func (w *world) checkSessions() error {
	for i, cookies := range w.reader.ended {
		jar, _ := cookiejar.New(nil) // it has no options that could be wrong
		home, err := url.Parse(w.URL(purserHost))
		if err != nil {
			return err
		}
		jar.SetCookies(home, cookies)
		if a, err := w.send(context.Background(), jar, "GET", "/top-up", ""); err != nil {
			return err
		} else if a.Status == http.StatusOK {
			return fmt.Errorf("access: the cookies of session %d, which its person has ended, open a page", i)
		}
	}
	for person, jar := range w.reader.jars {
		if w.money.People[ownerOf(person)] == "" {
			continue // no history closes or suspends them
		}
		var isOut bool
		err := w.Server.DB.QueryRowContext(context.Background(), `SELECT suspended_us IS NOT NULL
			OR closed_us IS NOT NULL FROM accounts WHERE id = $1`, w.money.People[ownerOf(person)]).Scan(&isOut)
		if err != nil {
			return err
		}
		if !isOut {
			continue
		}
		var a bank.Answer
		if a, err = w.send(context.Background(), jar, "GET", "/top-up", ""); err != nil {
			return err
		}
		if a.Status == http.StatusOK || a.Status == http.StatusSeeOther && !strings.HasPrefix(a.To, "/sign-in") {
			return fmt.Errorf("access: the browser of %s, who is suspended or has left, gets %d %s", person,
				a.Status, a.To)
		}
	}
	return nil
}
