package world

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"time"

	"github.com/purserhq/purser/emulator/stripe"
	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/payouts"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/audit"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/bank"
)

// names are the people of each history: two who only use apps, and two developers, who use them, too.
var names = []string{"ann", "bob", "dev", "eve"}

// credentials are what an app's server has.
type credentials struct{ clientID, secret string }

// basic returns them as a header.
func (c credentials) basic() string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(c.clientID+":"+c.secret))
}

// A player is the box as the player of money's histories sees it (package bank): people's pages and the API over HTTP,
// Stripe's events, and jobs that run by themselves. What a call asks of the ledger it asks directly.
type player struct {
	*Box
	jars map[string]http.CookieJar // of people's browsers
	apps map[string]credentials
}

// sitDown makes the people with their apps, and returns who plays them.
func sitDown(b *Box) (*bank.Player, *player) {
	b.T.Helper()
	s := &player{Box: b, jars: map[string]http.CookieJar{}, apps: map[string]credentials{}}
	p := bank.Player{Service: s, Stripe: b.Stripe, Network: b.bankNetwork, People: map[string]string{}, Names: names,
		Patience: 3 * day}
	b.clock.set(b.Server.DB, 30*day) // they are no newcomers, for whom there are lower limits
	defer b.clock.set(b.Server.DB, 0)
	err := b.Server.DB.InTx(b.T.Context(), func(ctx context.Context, tx *db.Tx) error {
		for _, name := range names {
			a, err := b.Server.Accounts.Create(ctx, tx, accounts.NewAccount{
				Email: bank.Address(name), PasswordHash: apitest.PasswordHash(b.T), Developer: true,
			})
			if err != nil {
				return err
			}
			p.People[name] = a.ID
		}
		for i, owner := range []string{"dev", "dev", "eve"} {
			a, secret, err := b.Server.Apps.Create(ctx, tx, apps.New{
				OwnerID: p.People[owner], Name: appNames[i], Tier: apps.FullLive, ProviderMode: apps.Live,
				RedirectURIs: []string{"https://app.example.com/back"},
			})
			if err != nil {
				return err
			}
			s.apps[a.ID] = credentials{a.ClientID, secret}
			p.Apps = append(p.Apps, bank.App{ID: a.ID, Developer: owner})
		}
		return nil
	})
	if err != nil {
		b.T.Fatal(err)
	}
	return bank.NewPlayer(p), s
}

// send sends a request to the product. jar has the cookies of a browser; nil = there is none. Headers are pairs of a
// name and a value.
func (b *Box) send(ctx context.Context, jar http.CookieJar, method, path, body string,
	headers ...string) (bank.Answer, error) {
	a, _, err := b.exchange(ctx, jar, method, path, body, headers...)
	return a, err
}

// exchange is send, and returns the headers of the answer, too.
func (b *Box) exchange(ctx context.Context, jar http.CookieJar, method, path, body string,
	headers ...string) (bank.Answer, http.Header, error) {
	b.act()
	b.receiver.watch(method, path, body)
	before, began := b.countStatements(), time.Now()
	ctx, cancel := b.bound(ctx, path)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, b.URL(purserHost)+path, strings.NewReader(body))
	if err != nil {
		return bank.Answer{}, nil, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	client := http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	answer, err := client.Do(r)
	if err != nil {
		return bank.Answer{}, nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if ctx.Err() == context.DeadlineExceeded {
		err = nil // who reads a stream has left
	}
	b.act()
	if time.Now().Equal(began) { // else jobs have run
		b.noteStatements(method, path, b.countStatements()-before)
	}
	to := answer.Header.Get("Location")
	b.story.tellRequest(b.whoSends(jar, headers), method, path, body, answer.StatusCode, to)
	b.coverage.note(method, path, answer.StatusCode, to)
	return bank.Answer{Status: answer.StatusCode, To: to, Body: string(text)}, answer.Header, err
}

// ownerOf returns the person whose browser it is: "ann/phone" is a second one of ann's.
func ownerOf(browser string) string {
	person, _, _ := strings.Cut(browser, "/")
	return person
}

// Page signs the person in when there is no session any more.
func (s *player) Page(ctx context.Context, _ int, person, method, path string, form url.Values) (bank.Answer, error) {
	if s.jars[person] == nil {
		s.jars[person], _ = cookiejar.New(nil) // it has no options that could be wrong
	}
	page := func(method, path string, form url.Values) (bank.Answer, error) {
		return s.send(ctx, s.jars[person], method, path, form.Encode(),
			"Content-Type", "application/x-www-form-urlencoded")
	}
	a, err := page(method, path, form)
	if err != nil || a.Status != http.StatusSeeOther || !strings.HasPrefix(a.To, "/sign-in") {
		return a, err
	}
	address := bank.Address(ownerOf(person))
	in, err := page("POST", "/sign-in", url.Values{"email": {address}, "password": {bank.Password}})
	if err != nil || in.Status != http.StatusSeeOther {
		return bank.Answer{Status: http.StatusForbidden}, err // suspended, or closed
	}
	return page(method, path, form)
}

func (s *player) Deliver(ctx context.Context, _ int, event []byte) (bank.Answer, error) {
	return s.send(ctx, nil, "POST", "/stripe/events", string(event), "Content-Type", "application/json",
		"Stripe-Signature", stripe.Sign(stripeSecret, time.Now(), event))
}

func (s *player) Operate(ctx context.Context, _ int, method, path, body string) (bank.Answer, error) {
	return s.send(ctx, nil, method, path, body, "Content-Type", "application/json",
		"Authorization", "Bearer "+operatorToken)
}

func (s *player) Do(ctx context.Context, _ int, c rules.Command) (rules.Result, error) {
	s.act()
	r, err := s.Server.Ledger.Do(ctx, c)
	s.story.tellCommand(c, err)
	return r, err
}

func (s *player) RefundCall(ctx context.Context, _ int, appID, requestID string) error {
	a, err := s.send(ctx, nil, "POST", "/v1/requests/"+requestID+"/refund", "", "Authorization", s.apps[appID].basic())
	if err == nil && a.Status >= 500 && a.Status != http.StatusServiceUnavailable {
		err = fmt.Errorf("a refund is answered by %d: %s", a.Status, a.Body)
	}
	return err
}

func (s *player) Onboard(ctx context.Context, node int, developer string) (string, error) {
	a, err := s.Page(ctx, node, developer, "POST", payouts.Page, url.Values{"present": {bank.Password}})
	if err == nil && a.Status != http.StatusSeeOther {
		err = fmt.Errorf("onboarding is answered by %d", a.Status)
	}
	return a.To, err
}

// Jobs run by themselves: it is enough to wait for the next run. If the process ends meanwhile, it starts again.
func (s *player) RunTopUps(ctx context.Context, _ int) error { return s.await(ctx, 6*time.Second) }
func (s *player) RunPayouts(ctx context.Context, _ int) error {
	return s.await(ctx, time.Hour+time.Second)
}

func (s *player) await(ctx context.Context, d time.Duration) error {
	s.act()
	if s.engine == db.Postgres {
		s.shift(d)
		return ctx.Err()
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		s.act()
		return ctx.Err()
	}
}

func (s *player) Reconcile() func(context.Context, int) error {
	return func(ctx context.Context, _ int) error { return s.await(ctx, day+time.Minute) }
}

func (s *player) Now() time.Time { return s.Server.DB.Now() }

func (s *player) Nodes() int { return 1 }

func (s *player) DB() *db.DB { return s.Server.DB }

// verify is purser ledger verify.
func (b *Box) verify() error {
	var out bytes.Buffer
	n, err := audit.VerifyAndPrint(context.Background(), b.config.Database, &out, b.Server.DB.Now())
	if err != nil || n == 0 {
		return err
	}
	var found bytes.Buffer
	for line := range bytes.Lines(out.Bytes()) {
		if !bytes.Contains(line, []byte(" 0 findings")) {
			found.Write(line)
		}
	}
	return errors.New("verify: " + found.String())
}
