package server

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/settings"
	"github.com/purserhq/purser/internal/config"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/people/topups"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestDatabaseIdentity opens databases as what they are not: purser serve refuses one of purser dev, and the other way
// round, a drill refuses one that nodes use, and a key of another mode of Stripe is refused until an operator has said
// that it is right.
func TestDatabaseIdentity(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t, db.SQLite)
	change := func(f func(ctx context.Context, tx *db.Tx) error) {
		t.Helper()
		d, err := db.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(d.InTx(t.Context(), f), d.Close()); err != nil {
			t.Fatal(err)
		}
	}
	set := func(name, value string) func(context.Context, *db.Tx) error {
		return func(ctx context.Context, tx *db.Tx) error {
			if _, err := settings.Lock(ctx, tx, name); err != nil {
				return err
			}
			return settings.Set(ctx, tx, name, value)
		}
	}
	ids := map[string]bool{}
	try := func(what string, c config.Config, dev bool, says string) {
		t.Helper()
		c.Database, c.Lease, c.Policy = url, time.Minute, policy.Default
		c.EnvelopeKeys = [][]byte{make([]byte, 32)}
		s, err := Open(t.Context(), c, slog.New(slog.DiscardHandler), dev)
		if err == nil {
			if !dev && !c.Drill {
				ids[s.databaseID] = true
			}
			err = s.DB.Close()
		}
		if (says == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want %q", what, err, says)
		}
	}
	paid := func(key string) config.Config {
		return config.Config{Stripe: topups.Config{Key: key, WebhookSecret: "whsec_0123456789abcdef"}}
	}
	try("new", config.Config{}, false, "")
	try("again", config.Config{}, false, "")
	if len(ids) != 1 || ids[""] {
		t.Errorf("a database has the ids %v", ids)
	}
	try("dev on a service's", config.Config{}, true, "it is one of purser serve")
	try("test mode", paid("sk_test_0123456789"), false, "")
	try("a restricted key", paid("rk_test_0123456789"), false, "")
	try("live mode then", paid("sk_live_0123456789"), false, "payments of the test mode")
	change(func(ctx context.Context, tx *db.Tx) error { return settings.Clear(ctx, tx, settings.StripeMode) })
	try("live mode, said", paid("sk_live_0123456789"), false, "")
	try("back", paid("rk_test_0123456789"), false, "payments of the live mode")

	change(set(settings.Development, "{}"))
	public := config.Config{BaseURL: "https://api.example.com"}
	try("serve on dev's", public, false, "it is one of purser dev")
	try("serve on dev's, with real payments", paid("sk_live_0123456789"), false, "it is one of purser dev")
	try("serve on dev's, here alone", config.Config{BaseURL: "http://127.0.0.1:8080"}, false, "")
	try("a drill on dev's", config.Config{Drill: true}, false, "")

	url = dbtest.URL(t, db.Postgres)
	try("many nodes", config.Config{}, false, "") // leaves its lease
	try("a drill beside nodes", config.Config{Drill: true}, false, "nodes run on the database")
	change(func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE nodes SET lease_us = 0`)
		return err
	})
	try("a drill", config.Config{Drill: true}, false, "")
}
