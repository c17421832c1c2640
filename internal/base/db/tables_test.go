package db_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// keptForEver are the tables whose rows nobody deletes, and why. docs/operate/configuration.md says the same in words.
var keptForEver = map[string]string{
	// Money, and what it follows from.
	"ledger": "money", "call_refunds": "money", "connections": "money", "daily_totals": "money",
	"payment_records": "money", "goodwill_records": "money", "margin_records": "money", "disputes": "money",
	"stripe_refunds": "money", "settlements": "money", "checkouts": "money", "refunds": "money",
	"losses": "money", "app_days": "money", "app_days_head": "money", "operator_balances": "money",
	"operator_days": "money", "operator_totals": "money", "reconciliations": "a row a day",
	"counters": "one for each limit", "allocation_requests": "what a user has decided",
	"children": "spend of a connection", "events": "what apps were told of calls that cost money",
	"notices": "what users were told of money, once", "margin_notices": "what users were told of money, once",
	"paying_cards": "who has paid an account", "margin_changes": "prices of then",
	"log_calls": "the public log", "log_rows": "the public log", "log_state": "the public log",
	"log_tiles": "the public log", "log_accounts": "the public log",
	// People, apps and operators, as long as there are any.
	"accounts": "an account each", "balances": "an account each", "payees": "a developer each",
	"apps": "an app each", "features": "an app's choice", "webhooks": "an app's choice",
	"policies": "an app's choice", "golive_requests": "what an operator has decided",
	"consent_counts": "a row a day", "work_consents": "a consent", "transcript_consents": "a consent",
	"operator_log": "what operators have done", "incidents": "told to visitors",
	"price_lists": "prices of then", "verifications": "a row a day", "estimates": "a row for each model",
	"event_log_head": "a row", "watch_turns": "a row", "settings": "a row each",
	"goose_db_version": "a row for each migration", "migration_hashes": "a row for each migration",
}

// deletes finds what the code deletes from.
var deletes = regexp.MustCompile("(?:DELETE FROM |DeleteSlices\\(ctx, \"|\\{\")([a-z_]+)\\b")

// TestEveryTableIsKeptByARule: a table is kept for ever for a reason, or something deletes its rows.
func TestEveryTableIsKeptByARule(t *testing.T) {
	t.Parallel()
	deleted := map[string]bool{}
	for _, m := range deletes.FindAllStringSubmatch(readCode(t, "../.."), -1) {
		deleted[m[1]] = true
	}
	d := dbtest.Open(t, db.SQLite)
	tables, err := db.QueryAll(t.Context(), d, func(r db.Row) (name string, err error) { return name, r.Scan(&name) },
		`SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name`)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, table := range tables {
		seen[table] = true
		if keptForEver[table] == "" && !deleted[table] {
			t.Errorf("%s: delete what nobody needs, or say here and in docs/operate/configuration.md why not", table)
		}
	}
	for table := range keptForEver {
		if !seen[table] {
			t.Errorf("there is no table %s", table)
		}
	}
}

// readCode returns the text of all code but tests in a folder.
func readCode(t *testing.T, root string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.HasSuffix(path, "_test.go") || filepath.Ext(path) != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
