package bank_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/emulator/stripe"
	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/golive"
	"github.com/purserhq/purser/internal/apps/members"
	"github.com/purserhq/purser/internal/apps/notices"
	"github.com/purserhq/purser/internal/apps/payouts"
	"github.com/purserhq/purser/internal/apps/providerkeys"
	"github.com/purserhq/purser/internal/apps/sandbox"
	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/seal"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/receipts"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/pages/operator"
	"github.com/purserhq/purser/internal/pages/privacy"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/identity"
	"github.com/purserhq/purser/internal/people/mail"
	"github.com/purserhq/purser/internal/people/topups"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/bank"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

const (
	key    = "sk_test_key"
	secret = "whsec_0123456789abcdef"
	token  = "0123456789abcdefghijklmnopqrstuvwxyz"
	day    = 24 * time.Hour
)

// people are who is in each history: two who only use apps, and two developers, who use them, too.
var people = []string{"ann", "bob", "dev", "eve"}

// local is the service in this process: its stores on one database, with its pages and its API.
type local struct {
	t     testing.TB
	d     *db.DB
	mu    sync.Mutex
	at    time.Time
	nodes []*node
	jars  map[string]http.CookieJar // of people's browsers, by node and name
}

// A node is what a server has of its own.
type node struct {
	d        *db.DB
	ledger   *store.Writer
	topups   *topups.Store
	payouts  *payouts.Store
	people   *accounts.Store
	refunder *receipts.Refunder
	router   http.Handler
	server   string // its address
}

// Now is a millisecond later at every reading.
func (l *local) Now() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at = l.at.Add(time.Millisecond)
	return l.at
}

func (l *local) Pass(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at = l.at.Add(d)
	for _, n := range l.nodes {
		n.d.SetBack(time.Since(l.at))
	}
}

func (l *local) Nodes() int { return len(l.nodes) }

func (l *local) DB() *db.DB { return l.d }

// began is when each history begins.
var began = time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC)

// template returns the URL of a database with the people and their apps.
func template(t testing.TB, e db.Engine) string {
	return dbtest.Filled(t, e, "bank", func(at string) error {
		d, err := db.Open(context.Background(), at)
		if err != nil {
			return err
		}
		d.RelaxLimits(12)
		now := func() time.Time { return began.Add(-30 * day) }
		err = d.InTx(context.Background(), func(ctx context.Context, tx *db.Tx) error {
			registry, all := apps.NewStore(d, now, true), map[string]string{}
			for _, name := range people {
				a, err := accounts.NewStore(d, now).Create(ctx, tx, accounts.NewAccount{
					Email: bank.Address(name), PasswordHash: apitest.PasswordHash(t), Developer: true,
				})
				if err != nil {
					return err
				}
				all[name] = a.ID
			}
			owners := []struct{ owner, name string }{{"dev", "Writer"}, {"dev", "Reader"}, {"eve", "Painter"}}
			for _, app := range owners {
				_, _, err := registry.Create(ctx, tx, apps.New{
					OwnerID: all[app.owner], Name: app.name, Tier: apps.FullLive,
					RedirectURIs: []string{"https://app.example.com/back"},
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		return d.Close()
	})
}

// A table is a service at which a player sits.
type table struct {
	*bank.Player
	*bank.Book
	local *local
	at    string // the database's address
	rows  int    // of the books, when it was last asked whether there are more
}

// newTable returns a service of two nodes. On SQLite they share a process, and so its database and ledger.
func newTable(t testing.TB, e db.Engine) *table {
	t.Helper()
	w := &table{at: template(t, e), local: &local{t: t, at: began, jars: map[string]http.CookieJar{}}}
	l := w.local
	emulated := stripe.New(stripe.Options{Key: key, WebhookSecret: secret, Now: l.Now})
	network := &bank.Network{Stripe: emulated}
	api := httptest.NewUnstartedServer(network)
	api.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	api.Start()
	t.Cleanup(api.Close)
	for n := range 2 {
		if n > 0 && e == db.SQLite {
			l.nodes = append(l.nodes, l.newNode(l.d, l.nodes[0].ledger, api.URL))
			continue
		}
		d := dbtest.OpenURL(t, w.at)
		l.d = d
		l.nodes = append(l.nodes, l.newNode(d, apitest.StartLedger(t, d, l.Now), api.URL))
	}
	l.Pass(0)
	p := bank.Player{Service: l, Stripe: emulated, Network: network, People: map[string]string{}, Names: people}
	for _, name := range people {
		a, err := l.nodes[0].people.GetByEmail(t.Context(), bank.Address(name))
		if err != nil {
			t.Fatal(err)
		}
		p.People[name] = a.ID
		owned, err := apps.ListOwned(t.Context(), l.d, a.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, app := range owned {
			p.Apps = append(p.Apps, bank.App{ID: app.ID, Developer: name})
		}
	}
	w.Player = bank.NewPlayer(p)
	w.Book = w.Player.Book
	return w
}

// newNode wires the stores as package server does.
func (l *local) newNode(d *db.DB, ledger *store.Writer, stripeURL string) *node {
	t, now := l.t, l.Now
	n := &node{d: d, ledger: ledger, people: accounts.NewStore(d, now)}
	rt := web.NewRouter(slog.New(slog.NewTextHandler(io.Discard, nil)), web.Links{})
	rt.SetPageError(ui.RenderError)
	n.router, n.server = rt, "https://"+host
	box, err := seal.New(make([]byte, seal.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	party, err := identity.NewPasskeyParty(n.server, n.server)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	mails := &mail.Store{DB: d, Now: now, Box: box}
	persons := identity.NewStore(d, n.people, mails, box, now, n.server, party)
	sessions := accounts.NewSessions(n.people, true)
	registry := apps.NewStore(d, now, true)
	n.topups = &topups.Store{DB: d, Ledger: ledger, Mails: mails, Now: now, Log: log, DashboardURL: n.server,
		Config: topups.Config{Key: key, WebhookSecret: secret, BaseURL: stripeURL}}
	if err := n.topups.Configure(); err != nil {
		t.Fatal(err)
	}
	n.payouts = &payouts.Store{DB: d, Ledger: ledger, Apps: registry, Mails: mails, Now: now, Log: log,
		Stripe: n.topups.Stripe(), Account: n.topups.Account(), DashboardURL: n.server,
		Config: payouts.Config{Every: 3 * day, Window: 2 * day, MinimumMC: money.Dollar}}
	n.refunder = &receipts.Refunder{DB: d, Ledger: ledger, Now: now}
	closing := &privacy.Store{
		DB: d, Accounts: n.people, Sessions: sessions, Identity: persons, Apps: registry,
		Sandbox: sandbox.NewStore(d, n.people, ledger, now), Keys: providerkeys.NewStore(d, box, now, nil),
		Topups: n.topups, Webhooks: webhooks.NewStore(d, box, now, webhooks.Addresses{}, web.Links{}),
		Members: members.NewStore(d, n.people, mails, now, n.server), Payouts: n.payouts, Ledger: ledger, Now: now,
	}
	(&accounts.Handler{Store: n.people, Sessions: sessions, Passkeys: party.PageData()}).Mount(rt)
	(&identity.Handler{Store: persons, Accounts: n.people, Sessions: sessions}).Mount(rt)
	(&topups.Handler{Store: n.topups, Accounts: n.people, Sessions: sessions}).Mount(rt)
	(&privacy.Handler{Store: closing}).Mount(rt)
	(&operator.Handler{Tokens: []string{token}, Service: &operator.Service{
		DB: d, Accounts: n.people, Identity: persons, Apps: registry, Ledger: ledger, Topups: n.topups,
		Privacy: closing, Mails: mails, Now: now,
		GoLive:  &golive.Store{DB: d, Apps: registry, Ledger: ledger, Now: now},
		Notices: &notices.Store{DB: d, Apps: registry, Mails: mails, Ledger: ledger},
	}}).Mount(rt)
	return n
}

// host is the one host of every node.
const host = "purser.example.com"

// serve answers a request in this process. Headers are pairs of a name and a value. The error says that the request was
// cut off.
func (n *node) serve(ctx context.Context, jar http.CookieJar, method, path, body string,
	headers ...string) (a bank.Answer, err error) {
	r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	r.Host = host
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	at := &url.URL{Scheme: "https", Host: host, Path: "/"}
	if jar != nil {
		for _, c := range jar.Cookies(at) {
			r.AddCookie(c)
		}
	}
	defer func() {
		if p := recover(); p == http.ErrAbortHandler {
			err = http.ErrAbortHandler
		} else if p != nil {
			panic(p)
		}
	}()
	w := httptest.NewRecorder()
	n.router.ServeHTTP(w, r)
	if jar != nil {
		jar.SetCookies(at, w.Result().Cookies())
	}
	return bank.Answer{Status: w.Code, To: w.Header().Get("Location"), Body: w.Body.String()}, nil
}

// Page signs the person in when there is no session any more.
func (l *local) Page(ctx context.Context, i int, person, method, path string, form url.Values) (bank.Answer, error) {
	n, jar := l.nodes[i], l.jar(person)
	page := func(method, path string, form url.Values) (bank.Answer, error) {
		return n.serve(ctx, jar, method, path, form.Encode(), "Content-Type", "application/x-www-form-urlencoded")
	}
	a, err := page(method, path, form)
	if err != nil || a.Status != http.StatusSeeOther || !strings.HasPrefix(a.To, "/sign-in") {
		return a, err
	}
	if _, err := n.people.GetByEmail(ctx, bank.Address(person)); errors.Is(err, sql.ErrNoRows) { // closed
		return bank.Answer{Status: http.StatusForbidden}, nil
	}
	in, err := page("POST", "/sign-in", url.Values{"email": {bank.Address(person)}, "password": {bank.Password}})
	if err != nil || in.Status != http.StatusSeeOther {
		return bank.Answer{Status: http.StatusForbidden}, err // suspended, or closed
	}
	return page(method, path, form)
}

// jar returns the cookies of a person's browser.
func (l *local) jar(person string) http.CookieJar {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.jars[person] == nil {
		l.jars[person], _ = cookiejar.New(nil) // it has no options that could be wrong
	}
	return l.jars[person]
}

func (l *local) Deliver(ctx context.Context, i int, event []byte) (bank.Answer, error) {
	return l.nodes[i].serve(ctx, nil, "POST", "/stripe/events", string(event), "Content-Type", "application/json",
		"Stripe-Signature", stripe.Sign(secret, time.Now(), event))
}

func (l *local) Operate(ctx context.Context, i int, method, path, body string) (bank.Answer, error) {
	return l.nodes[i].serve(ctx, nil, method, path, body, "Content-Type", "application/json",
		"Authorization", "Bearer "+token)
}

func (l *local) Do(ctx context.Context, i int, c rules.Command) (rules.Result, error) {
	return l.nodes[i].ledger.Do(ctx, c)
}

func (l *local) RefundCall(ctx context.Context, i int, appID, requestID string) error {
	n := l.nodes[i]
	app, err := n.payouts.Apps.Get(ctx, appID)
	if err != nil {
		return err
	}
	_, err = n.refunder.Refund(ctx, &app, requestID, "")
	return err
}

func (l *local) Onboard(ctx context.Context, i int, developer string) (string, error) {
	n := l.nodes[i]
	a, err := n.people.GetByEmail(ctx, bank.Address(developer))
	if err != nil {
		return "", err
	}
	return n.payouts.Onboard(ctx, a)
}

func (l *local) RunTopUps(ctx context.Context, i int) error  { return l.nodes[i].topups.RunDue(ctx) }
func (l *local) RunPayouts(ctx context.Context, i int) error { return l.nodes[i].payouts.Run(ctx) }

func (l *local) Reconcile() func(context.Context, int) error {
	return func(ctx context.Context, i int) error { return l.nodes[i].topups.Reconcile(ctx) }
}
