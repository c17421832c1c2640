package connections_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/connections"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// bundle is a server, a developer with two apps, and users with money.
type bundle struct {
	t           *testing.T
	db          *db.DB
	ledger      *store.Writer
	now         func() time.Time
	mine, other apitest.Client
	mineID      string
}

func newBundle(t *testing.T, d *db.DB) *bundle {
	t.Helper()
	var mu sync.Mutex
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	now := func() time.Time { // every look at the clock is a moment later
		mu.Lock()
		defer mu.Unlock()
		at = at.Add(time.Millisecond)
		return at
	}
	b := &bundle{t: t, db: d, ledger: store.NewWriter(d, now), now: now}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.ledger.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	registry := apps.NewStore(d, now, false)
	links := web.Links{Dashboard: "https://purser.example.com"}
	rt := web.NewRouter(slog.New(slog.NewTextHandler(io.Discard, nil)), links)
	(&connections.Handler{DB: d, Apps: registry, Ledger: b.ledger, Links: links}).Mount(rt)
	server := httptest.NewServer(rt)
	t.Cleanup(server.Close)
	if _, err := d.ExecContext(t.Context(), `INSERT INTO accounts (id, email, password_hash, developer, created_us)
		VALUES ('wac_dev', 'developer@example.com', 'x', 1, 1)`); err != nil {
		t.Fatal(err)
	}
	for _, client := range []*apitest.Client{&b.other, &b.mine} {
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			app, secret, err := registry.Create(ctx, tx, apps.New{OwnerID: "wac_dev", Name: "Reader"})
			b.mineID, *client = app.ID, apitest.Client{Base: server.URL, User: app.ClientID, Secret: secret}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// do carries out a command.
func (b *bundle) do(c rules.Command) rules.Result {
	b.t.Helper()
	r, err := b.ledger.Do(b.t.Context(), c)
	if err != nil {
		b.t.Fatalf("%T: %v", c, err)
	}
	return r
}

// connect gives my app a part of a new user's $100.
func (b *bundle) connect(user string, amount money.MC) rules.Connection {
	b.t.Helper()
	b.do(rules.TopUp{AccountID: "wac_" + user, AmountMC: 100 * money.Dollar})
	return b.do(rules.Connect{
		ConnectionID: id.New(id.Connection, b.now()),
		AppID:        b.mineID,
		AccountID:    "wac_" + user,
		RequestedMC:  amount,
	}).Connection
}

// hold authorizes a call.
func (b *bundle) hold(c rules.Connection, amount money.MC) (rules.Call, rules.Result) {
	b.t.Helper()
	call := rules.Call{
		ConnectionID: c.ID,
		AccountID:    c.AccountID,
		AppID:        c.AppID,
		Key:          id.NewSecret(),
		RequestID:    id.New(id.Request, b.now()),
		Fingerprint:  "f",
		Feature:      "summaries",
		FeatureLabel: "summaries",
		Model:        "gpt-5.6-terra",
		Terms:        "{}",
		HoldMC:       amount,
	}
	return call, b.do(rules.Hold{Call: call, NodeID: "node_1", Claim: call.RequestID})
}

// spend makes a call that costs amount, and returns its ledger row.
func (b *bundle) spend(c rules.Connection, amount money.MC) rules.Entry {
	b.t.Helper()
	call, held := b.hold(c, amount)
	fee := amount / 20
	return b.do(rules.Settle{
		Call: call, Attempt: held.Attempt, Settlement: rules.Settled, Usage: rules.Usage{JSON: "{}"},
		Charge: rules.Amounts{ProviderCostMC: amount - fee, SvcFeeMC: fee, UserChargeMC: amount},
	}).Entry
}

func want(t *testing.T, got apitest.Answer, status int, code string) {
	t.Helper()
	if got.Status != status || got.Code != code {
		t.Errorf("got %v; want %d %s", got, status, code)
	}
}

// read decodes a success.
func read[T any](t *testing.T, got apitest.Answer) (v T) {
	t.Helper()
	if got.Status != 200 {
		t.Fatalf("got %v", got)
	}
	if err := json.Unmarshal([]byte(got.Body), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

type object = map[string]any

func TestConnectionIsShownAsItIs(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d)
		c := b.connect("a", 5*money.Dollar)
		path := "/v1/connections/" + c.ID

		fresh := read[object](t, b.mine.Do(t, "GET", path, ""))
		expected := object{
			"id":                           c.ID,
			"app_id":                       b.mineID,
			"user_account_id":              "wac_a",
			"status":                       "active",
			"freeze":                       nil,
			"created_at":                   timestamp.Format(c.CreatedUS),
			"reserved_allocation_mc":       5e8,
			"reserved_allocation_display":  "$5.00",
			"allocation_mc":                5e8,
			"allocation_display":           "$5.00",
			"consumed_mc":                  0.0,
			"consumed_display":             "$0.00",
			"held_mc":                      0.0,
			"held_display":                 "$0.00",
			"allocation_remaining_mc":      5e8,
			"allocation_remaining_display": "$5.00",
			"velocity_limit_mc":            nil,
			"velocity_limit_display":       nil,
			"recent_ledger":                []any{},
		}
		if diff := cmp.Diff(expected, fresh); diff != "" {
			t.Error(diff)
		}

		row := b.spend(c, money.Dollar)
		b.hold(c, 2*money.Dollar)
		busy := read[object](t, b.mine.Do(t, "GET", path, ""))
		if busy["consumed_mc"] != 1e8 || busy["held_mc"] != 2e8 || busy["allocation_remaining_display"] != "$2.00" ||
			busy["status"] != "active" {
			t.Errorf("after a call of $1.00 and a hold of $2.00: %v", busy)
		}
		entries := busy["recent_ledger"].([]any)
		if len(entries) != 1 {
			t.Fatalf("recent_ledger: %v", entries)
		}
		entry := entries[0].(object)
		if entry["id"] != row.ID || entry["type"] != "spend" || entry["user_charge_mc"] != 1e8 ||
			entry["feature"] != "summaries" || entry["request_id"] != id.ReplacePrefix(row.ID, id.Ledger, id.Request) ||
			entry["amount_mc"] != nil {
			t.Errorf("recent_ledger: %v", entry)
		}

		list := read[[]object](t, b.mine.Do(t, "GET", "/v1/connections", ""))
		delete(busy, "recent_ledger")
		if diff := cmp.Diff([]object{busy}, list); diff != "" {
			t.Errorf("the list differs from the single connection: %s", diff)
		}
	})
}

func TestStatusFollowsTheMoney(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d)
		c := b.connect("a", 5*money.Dollar)
		status := func() any {
			t.Helper()
			return read[object](t, b.mine.Do(t, "GET", "/v1/connections/"+c.ID, ""))["status"]
		}
		var seen []any
		for _, step := range []func(){
			func() { b.spend(c, 5*money.Dollar) },
			func() { b.do(rules.ChangeCap{ConnectionID: c.ID, TargetMC: 6 * money.Dollar}) },
			func() { b.do(rules.Freeze{ConnectionID: c.ID, By: rules.FrozenByRisk}) },
			func() { b.do(rules.Resume{ConnectionID: c.ID}) },
			func() { want(t, b.mine.Do(t, "POST", "/v1/connections/"+c.ID+"/revoke", ""), 200, "") },
		} {
			step()
			seen = append(seen, status())
		}
		if diff := cmp.Diff([]any{"exhausted", "active", "frozen", "active", "revoked"}, seen); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRecentLedgerHasTheNewestTwenty(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d)
		c := b.connect("a", 50*money.Dollar)
		var expected []string
		for range 20 {
			expected = append(expected, b.spend(c, money.Dollar).ID)
		}
		reversal := b.do(rules.Reverse{EntryID: expected[19], AccountID: "wac_a", Reason: "provider_error"}).Entry
		expected = append(expected[1:], reversal.ID)
		slices.Reverse(expected)
		entries := read[struct {
			Recent []struct {
				ID, Status string
				Reason     *string
			} `json:"recent_ledger"`
		}](t, b.mine.Do(t, "GET", "/v1/connections/"+c.ID, "")).Recent
		var got []string
		for _, e := range entries {
			got = append(got, e.ID)
		}
		if diff := cmp.Diff(expected, got); diff != "" {
			t.Error(diff)
		}
		if r := entries[0]; r.Status != "reversed" || r.Reason == nil || *r.Reason != "provider_error" {
			t.Errorf("the reversal is shown as %+v", r)
		}
	})
}

func TestRevoke(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d)
		c := b.connect("a", 5*money.Dollar)
		b.spend(c, money.Dollar)
		call, held := b.hold(c, 2*money.Dollar)
		path := "/v1/connections/" + c.ID + "/revoke"

		first := read[object](t, b.mine.Do(t, "POST", path, ""))
		if first["id"] != c.ID || first["status"] != "revoked" || first["released_mc"] != 2e8 ||
			first["released_display"] != "$2.00" {
			t.Errorf("the unspent and unheld $2.00 return at once: %v", first)
		}
		balance := func() money.MC {
			t.Helper()
			got, err := store.GetBalance(t.Context(), d, "wac_a")
			if err != nil {
				t.Fatal(err)
			}
			return got.AvailableMC
		}
		if got := balance(); got != 97*money.Dollar {
			t.Errorf("available after revoke: %s", got.Display())
		}
		b.do(rules.Release{Call: call, Attempt: held.Attempt})
		if got := balance(); got != 99*money.Dollar {
			t.Errorf("available after the last call ended: %s", got.Display())
		}
		again := read[object](t, b.mine.Do(t, "POST", path, ""))
		first["released_mc"], first["released_display"] = 0.0, "$0.00"
		if diff := cmp.Diff(first, again); diff != "" || balance() != 99*money.Dollar {
			t.Errorf("revoking again: %s", diff)
		}
	})
}

// Somebody else's connection is answered like one that never existed.
func TestForeignConnectionsDoNotExist(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d)
		c := b.connect("a", 5*money.Dollar)
		for _, r := range []struct{ method, suffix string }{{"GET", ""}, {"POST", "/revoke"}} {
			foreign := b.other.Do(t, r.method, "/v1/connections/"+c.ID+r.suffix, "")
			absent := b.other.Do(t, r.method, "/v1/connections/conn_none"+r.suffix, "")
			want(t, foreign, 404, "not_found")
			if foreign.Body != absent.Body {
				t.Errorf("%s: a foreign connection is told from none: %s and %s", r.method, foreign.Body, absent.Body)
			}
			want(t, apitest.Client{Base: b.mine.Base}.Do(t, r.method, "/v1/connections/"+c.ID+r.suffix, ""), 401,
				"unauthorized")
		}
		if got := b.other.Do(t, "GET", "/v1/connections", ""); got.Body != "[]\n" {
			t.Errorf("another app sees %v", got)
		}
		if got := b.other.Do(t, "GET", "/v1/connections?starting_after="+c.ID, ""); got.Body != "[]\n" {
			t.Errorf("another app sees %v", got)
		}
		if got := read[object](t, b.mine.Do(t, "GET", "/v1/connections/"+c.ID, "")); got["status"] != "active" {
			t.Errorf("another app's revoke changed it: %v", got)
		}
	})
}

func TestConnectionPages(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d)
		var expected []string
		for i := range 5 {
			expected = append(expected, b.connect(fmt.Sprint("u", i), money.Dollar).ID)
		}
		slices.Reverse(expected)
		var seen []string
		pages := 0
		for path := "/v1/connections?limit=2"; path != ""; pages++ {
			page := b.mine.Do(t, "GET", path, "")
			for _, c := range read[[]struct{ ID string }](t, page) {
				seen = append(seen, c.ID)
			}
			path, _, _ = strings.Cut(strings.TrimPrefix(page.Header.Get("Link"), "<"), ">")
		}
		if diff := cmp.Diff(expected, seen); diff != "" || pages != 3 {
			t.Errorf("%d pages: %s", pages, diff)
		}
		whole := b.mine.Do(t, "GET", "/v1/connections", "")
		if n := len(read[[]object](t, whole)); n != 5 || whole.Header.Get("Link") != "" {
			t.Errorf("the whole list has %d and the link %q", n, whole.Header.Get("Link"))
		}
		want(t, b.mine.Do(t, "GET", "/v1/connections?limit=0", ""), 400, "invalid_request")
		want(t, apitest.Client{Base: b.mine.Base}.Do(t, "GET", "/v1/connections?limit=0", ""), 401, "unauthorized")
	})
}

func TestAccountIsTheOwners(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d)
		b.connect("a", 5*money.Dollar) // a user's money is not the developer's
		account := func() object {
			t.Helper()
			return read[object](t, b.mine.Do(t, "GET", "/v1/account", ""))
		}
		expected := object{
			"wac_id":                    "wac_dev",
			"email":                     "developer@example.com",
			"sandbox":                   false,
			"balance_available_mc":      0.0,
			"balance_available_display": "$0.00",
			"balance_reserved_mc":       0.0,
			"balance_reserved_display":  "$0.00",
		}
		if diff := cmp.Diff(expected, account()); diff != "" {
			t.Error(diff)
		}
		b.connect("dev", 30*money.Dollar)
		expected["balance_available_mc"], expected["balance_available_display"] = 7e9, "$70.00"
		expected["balance_reserved_mc"], expected["balance_reserved_display"] = 3e9, "$30.00"
		if diff := cmp.Diff(expected, account()); diff != "" {
			t.Error(diff)
		}
		want(t, apitest.Client{
			Base:   b.mine.Base,
			User:   b.mine.User,
			Secret: "wrong",
		}.Do(t, "GET", "/v1/account", ""), 401, "unauthorized")
	})
}
