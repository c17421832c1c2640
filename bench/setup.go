package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
)

// A benchConnection is one connection that calls are made on.
type benchConnection struct {
	Account    string `json:"account"`
	App        string `json:"app"`
	Connection string `json:"connection"`
	Token      string `json:"token"`
}

// allocationMC is the allocation of each connection, more than a run can spend.
const allocationMC = 1_000_000 * money.Dollar

// A database is a store that the bench has filled for a gateway or a ledger.
type database struct {
	url    string
	grants []benchConnection
	spends int64 // spend rows before the run
}

// engineTitle returns the name of an engine and ledger size for tables.
func engineTitle(engine string, rows float64) string {
	if rows > 0 {
		return fmt.Sprintf("%s %gM rows", engine, rows)
	}
	return engine
}

// prepareDatabase returns the run's database of an engine and size. The first time, it
// creates the database with the connections and with rows million ledger rows.
func (b *bench) prepareDatabase(ctx context.Context, engine string, rows float64, connections int) (*database, error) {
	name := fmt.Sprintf("%s, %d connections", engineTitle(engine, rows), connections)
	if d := b.stores[name]; d != nil {
		return d, nil
	}
	target, err := b.createDatabase(ctx, engine)
	if err != nil {
		return nil, err
	}
	d := &database{url: target}
	if d.grants, err = seedDatabase(ctx, target, connections); err != nil {
		return nil, fmt.Errorf("set up %s: %w", name, err)
	}
	if d.spends = int64(rows * 1e6); d.spends > 0 {
		if err := fillLedger(ctx, target, d.grants, &d.spends); err != nil {
			return nil, fmt.Errorf("fill the ledger of %s: %w", name, err)
		}
	}
	b.stores[name] = d
	return d, nil
}

// createDatabase creates an empty database and returns its URL.
func (b *bench) createDatabase(ctx context.Context, engine string) (string, error) {
	name := "bench" + strconv.Itoa(len(b.stores)+1)
	if engine == "sqlite" {
		folder := filepath.Join(b.dir, name) // of an earlier run, if --dir was used before
		return "sqlite:" + filepath.Join(folder, "purser.db"), os.RemoveAll(folder)
	}
	pool, err := sql.Open("pgx", b.cluster.URL)
	if err != nil {
		return "", err
	}
	defer pool.Close()
	if _, err := pool.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		return "", err
	}
	u, err := url.Parse(b.cluster.URL)
	if err != nil {
		return "", err
	}
	u.Path = "/" + name
	return u.String(), nil
}

// fundConnection tops an account up and connects it to the app.
func fundConnection(ctx context.Context, d *db.DB, w *store.Writer, g benchConnection) error {
	return d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if _, err := w.DoTx(ctx, tx, rules.TopUp{AccountID: g.Account, AmountMC: 2 * allocationMC}); err != nil {
			return err
		}
		_, err := w.DoTx(ctx, tx, rules.Connect{
			ConnectionID: g.Connection,
			AppID:        g.App,
			AccountID:    g.Account,
			RequestedMC:  allocationMC,
		})
		return err
	})
}

// seedDatabase opens the database as Purser does, and creates n connections, connectionsOfApp of them with the same
// live app of one feature, an account each, and access tokens that outlive the run.
func seedDatabase(ctx context.Context, target string, n int) (list []benchConnection, err error) {
	d, err := db.Open(ctx, target)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	w := store.NewWriter(d, d.Now)
	people := accounts.NewStore(d, d.Now)
	var app apps.App
	for i := range n {
		if i%connectionsOfApp == 0 {
			if app, err = createApp(ctx, d, people, i/connectionsOfApp); err != nil {
				return nil, err
			}
		}
		g, err := createConnection(ctx, d, w, people, app, i)
		if err != nil {
			return nil, err
		}
		list = append(list, g)
	}
	return list, nil
}

// connectionsOfApp is how many connections share an app. Purser suspends one whose
// users are suddenly charged more than $50 within an hour: 200,000 calls.
const connectionsOfApp = 16

// createApp creates the nth developer and their app.
func createApp(ctx context.Context, d *db.DB, people *accounts.Store, nth int) (app apps.App, err error) {
	describe := features.Change{
		Slug:        textField(feature),
		DisplayName: textField("Mail digest"),
		Description: textField("What your mail asks of you today."),
	}
	err = d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		developer, err := people.Create(ctx, tx,
			accounts.NewAccount{Email: fmt.Sprintf("developer%d@example.com", nth), Developer: true})
		if err != nil {
			return err
		}
		app, _, err = apps.NewStore(d, d.Now, false).Create(ctx, tx, apps.New{
			OwnerID:      developer.ID,
			Name:         "Bench",
			RedirectURIs: []string{"https://app.example.com/callback"},
			Tier:         apps.FullLive,
			ProviderMode: apps.Live,
		})
		return err
	})
	if err != nil {
		return app, err
	}
	_, err = features.NewStore(d, d.Now, nil).Create(ctx, app.ID, describe)
	return app, err
}

func textField(s string) web.Field[string] { return web.Field[string]{Set: true, Value: s} }

// createConnection creates a funded account, its connection, and a token for it.
func createConnection(ctx context.Context, d *db.DB, w *store.Writer, people *accounts.Store, app apps.App,
	i int) (benchConnection, error) {
	g := benchConnection{App: app.ID, Connection: id.New(id.Connection, d.Now())}
	err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		a, err := people.Create(ctx, tx, accounts.NewAccount{Email: fmt.Sprintf("user%d@example.com", i)})
		g.Account = a.ID
		return err
	})
	if err != nil {
		return g, err
	}
	if err := fundConnection(ctx, d, w, g); err != nil {
		return g, err
	}
	tokens := &oauth.Store{DB: d, Ledger: w, Now: d.Now}
	return g, d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		t, err := tokens.IssueTokens(ctx, tx, g.Connection, g.App, "")
		if err != nil {
			return err
		}
		g.Token = t.AccessToken
		_, err = tx.ExecContext(ctx, `UPDATE oauth_tokens SET expires_us = $2 WHERE hash = $1`, id.Hash(g.Token),
			d.Now().AddDate(0, 0, 1).UnixMicro())
		return err
	})
}

// checkLedger compares the calls that clients saw answered with the ledger's rows, while
// the server runs.
func (d *database) checkLedger(ctx context.Context, gateway string, answered int64) ledgerCheck {
	a := ledgerCheck{Gateway: gateway, Answered: answered}
	err := func() error {
		store, err := db.OpenReadOnly(ctx, d.url)
		if err != nil {
			return err
		}
		defer store.Close()
		if err := store.QueryRowContext(ctx,
			`SELECT COUNT(*) FROM ledger WHERE type = 'spend'`).Scan(&a.SpendRows); err != nil {
			return err
		}
		a.SpendRows -= d.spends
		return store.QueryRowContext(ctx, `SELECT COUNT(*) FROM holds WHERE state = 'open'`).Scan(&a.OpenHolds)
	}()
	if err != nil {
		a.Error = err.Error()
	}
	return a
}
