package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// writeFixtureSince writes the fixture, and returns the checkpoint of what was written before a step.
func writeFixtureSince(t *testing.T, d *db.DB, step int) (c *Checkpoint) {
	t.Helper()
	writeFixture(t, d, func(w *writer) {
		w.onStep = func(n int) {
			if n == step {
				c = w.checkpoint()
			}
		}
		fixture(w)
	})
	return c
}

// TestSinceFindsEachCorruption makes each corruption after a checkpoint, at several moments of the fixture. What the
// whole audit finds in rows that are new, the audit since the checkpoint finds with the same checks.
func TestSinceFindsEachCorruption(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		step, least int // corruptions in what is new, at least
	}{{2, 180}, {12, 135}} {
		t.Run(fmt.Sprint(tt.step), func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				since := writeFixtureSince(t, d, tt.step)
				dropConstraints(t, d)
				made, least := 0, tt.least
				if !testkit.IsLong() {
					least = least/2 - 20
				}
				for i, c := range append([]corruption{{name: "nothing"}}, corruptions...) {
					if c.only != "" && c.only != string(d.Engine) || strings.HasPrefix(strings.Join(c.red, ""), "I31") {
						continue
					}
					isTurn := i%2 == 0 == (d.Engine == db.SQLite)
					if !testkit.IsLong() && c.only == "" && c.red != nil && !isTurn { // as in the whole audit
						continue
					}
					got := inspectCorruptedSince(t, d, c, since)
					if got == nil {
						continue // it is in what was verified
					}
					made++
					compareFindings(t, c, got)
				}
				if made < least {
					t.Errorf("%d corruptions are of what is new, want at least %d", made, least)
				}
			})
		})
	}
}

// compareFindings compares the checks that are red with those that a corruption names.
func compareFindings(t *testing.T, c corruption, got []*checkResult) {
	t.Helper()
	var red []string
	for _, v := range got {
		name := v.id + " " + v.title
		if v.findings == 0 {
			continue
		}
		red = append(red, name)
		if !slices.ContainsFunc(c.red, func(want string) bool { return strings.HasPrefix(name, want) }) {
			t.Errorf("%s: %s is red: %q", c.name, name, v.printed)
		}
	}
	for _, want := range c.red {
		if !slices.ContainsFunc(red, func(name string) bool { return strings.HasPrefix(name, want) }) {
			t.Errorf("%s: %s is not red", c.name, want)
		}
	}
}

// TestSinceAndOldRows rewrites rows that were verified. Where the chain was made right again, its verified end is
// another one, and the audit since the checkpoint finds it. A row that contradicts its own hash is found by the whole
// audit alone.
func TestSinceAndOldRows(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		since := writeFixtureSince(t, d, 12)
		inspect := func(rehash bool, since *Checkpoint) (red []string) {
			err := d.InTx(db.ForJob(t.Context()), func(ctx context.Context, tx *db.Tx) error {
				w := &writer{TB: t, ctx: ctx, tx: tx}
				for _, text := range unlockSQL[d.Engine] {
					w.exec(text)
				}
				w.exec(`UPDATE ledger SET fingerprint = 'another' WHERE key = 'k1'`)
				if rehash {
					rebuildHashes(w)
				}
				restoreTriggers(w, d.Engine)
				a := &verification{Tx: tx, now: noon, since: since}
				if err := a.runChecks(ctx); err != nil {
					return err
				}
				for _, v := range a.results {
					if v.findings > 0 {
						red = append(red, v.id+" "+v.title)
					}
				}
				return errForget
			})
			if !errors.Is(err, errForget) {
				t.Fatal(err)
			}
			return red
		}
		if red := inspect(true, nil); red != nil {
			t.Errorf("the whole audit finds a chain that was made right: %q", red)
		}
		if red := inspect(true, since); !slices.ContainsFunc(red, func(name string) bool {
			return strings.HasPrefix(name, "I21 accounts: what the checkpoint")
		}) {
			t.Errorf("a chain that was made right is red in %q", red)
		}
		if red := inspect(false, nil); len(red) != 1 || !strings.HasPrefix(red[0], "I21 ledger: each row's hash") {
			t.Errorf("a row that was edited is red in %q", red)
		}
		if red := inspect(false, since); red != nil {
			t.Errorf("the audit since the checkpoint read old rows: %q", red)
		}
	})
}

// TestCheckpointTampered changes a checkpoint in each of its members, as one who cannot change the database too.
func TestCheckpointTampered(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		whole := writeFixtureSince(t, d, 19)
		path := filepath.Join(t.TempDir(), "checkpoint")
		if err := whole.Write(path); err != nil {
			t.Fatal(err)
		}
		type checkpoint = *Checkpoint
		for name, tt := range map[string]struct {
			change func(checkpoint)
			red    string
		}{
			"nothing":            {func(checkpoint) {}, ""},
			"a balance":          {func(c checkpoint) { c.Accounts[0].AvailableMC++ }, "I2 accounts"},
			"a reserved balance": {func(c checkpoint) { c.Accounts[0].ReservedMC-- }, "I2 accounts"},
			"a later row":        {func(c checkpoint) { c.Accounts[0].Seq++ }, "I21 accounts: what"},
			"an earlier row":     {func(c checkpoint) { c.Accounts[0].Seq-- }, "I21 accounts: what"},
			"another hash":       {func(c checkpoint) { c.Accounts[0].Head = "x" }, "I21 accounts: what"},
			"no account":         {func(c checkpoint) { c.Accounts = c.Accounts[:0] }, "I4 connections"},
			"an account more": {func(c checkpoint) {
				c.Accounts = append(c.Accounts, verifiedAccount{AccountID: "wac_x"})
			}, "I2 accounts"},
			"what was allocated":    {func(c checkpoint) { c.Connections[0].AllocationMC++ }, "I4 connections"},
			"what was consumed":     {func(c checkpoint) { c.Connections[0].ConsumedMC-- }, "I4 connections"},
			"another app":           {func(c checkpoint) { c.Connections[0].AppID = "app_9" }, "I8 connections: one"},
			"another account":       {func(c checkpoint) { c.Connections[0].AccountID = "wac_b" }, "I8 connections: one"},
			"a revocation":          {func(c checkpoint) { c.Connections[0].Revoked = 1 }, "I8 connections: one"},
			"a freeze":              {func(c checkpoint) { c.Connections[0].Frozen = 1 }, "I28 events: one for each"},
			"an event fewer":        {func(c checkpoint) { c.Connections[0].EventSeq-- }, "I28 events"},
			"free credit that paid": {func(c checkpoint) { c.Counters[0].CountedMC++ }, "I17 counters"},
			"a day's total":         {func(c checkpoint) { c.Totals[0].UserChargeMC++ }, "I22 totals"},
			"no voice session":      {func(c checkpoint) { c.Voice = nil }, "I28 events: the end of each voice"},
			"leaves of the log":     {func(c checkpoint) { c.LogSize = 7 }, "I31 log: the tiles"},
			"another root":          {func(c checkpoint) { c.LogRoot[0] ^= 1 }, "I31 log: the tiles"},
		} {
			c, err := ReadCheckpoint(path)
			if err != nil {
				t.Fatal(err)
			}
			tt.change(c)
			err = d.InSnapshot(db.ForJob(t.Context()), func(ctx context.Context, tx *db.Tx) error {
				a := &verification{Tx: tx, now: noon, since: c}
				if err := a.runChecks(ctx); err != nil {
					return err
				}
				found := tt.red == ""
				for _, v := range a.results {
					if v.findings > 0 {
						found = found || strings.HasPrefix(v.id+" "+v.title, tt.red) && tt.red != ""
						if tt.red == "" {
							t.Errorf("%s: %s is red: %q", name, v.title, v.printed)
						}
					}
				}
				if !found {
					t.Errorf("%s: %s is not red", name, tt.red)
				}
				return nil
			})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if err := c.Write(path + ".changed"); err != nil {
				t.Fatal(err)
			}
			if _, err := ReadCheckpoint(path + ".changed"); (err == nil) != (tt.red == "") {
				t.Errorf("%s: reading the file returned %v", name, err)
			}
		}
	})
}

func TestReadCheckpointRefuses(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "checkpoint")
	if _, err := ReadCheckpoint(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is absent: %v", err)
	}
	for _, text := range []string{"", "{", "[]", `{"version": 0}`, `{"version": 99}`, `{"version": 1}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if c, err := ReadCheckpoint(path); err == nil {
			t.Errorf("%q is the checkpoint %v", text, c)
		}
	}
}

// writeCalls writes calls of three accounts that begin at a time. Accounts that have none yet are funded first.
func writeCalls(w *writer, calls int, at time.Time) {
	w.clock, w.timedIDs = at, true
	for i := range 3 {
		account, connection := fmt.Sprintf("wac_%d", i), fmt.Sprintf("conn_%d", i)
		if w.balances[account] == nil {
			w.insert("accounts", map[string]any{"id": account, "email": account + "@example.com", "password_hash": "",
				"created_us": 1})
			if i == 0 {
				w.insert("accounts", map[string]any{"id": "wac_dev", "email": "dev@example.com", "password_hash": "",
					"created_us": 1})
				w.insert("apps", map[string]any{"id": "app_1", "owner_id": "wac_dev", "name": "app_1", "client_id": "c",
					"secret_hash": "", "redirect_uris": "[]", "allowed_models": "[]", "tier": "limited-live",
					"provider_mode": "live", "test_allowlist": "[]", "dev_margin_ppm": 150000, "created_us": 1})
			}
			w.addLedgerRow(account, movement{available: 10_000_000_000},
				map[string]any{"type": "topup", "amount_mc": 10_000_000_000})
			w.connect(connection, "app_1", account, 9_000_000_000)
		}
		for n := range calls {
			w.spend(connection, fmt.Sprintf("%d-%d-%d", i, n, at.Unix()), "chat", plain)
		}
	}
}

// TestSinceReadsOnlyWhatIsNew has some new rows after few old ones and after many: it counts the rows that are read,
// and on PostgreSQL also those that the server counts.
func TestSinceReadsOnlyWhatIsNew(t *testing.T) {
	t.Parallel()
	const calls = 10
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			reads := map[int]map[string]int64{}
			for _, old := range []int{60, 300} {
				d, _ := openDatabase(t, e)
				var since *Checkpoint
				writeFixture(t, d, func(w *writer) {
					writeCalls(w, old, noon.AddDate(0, 0, -10))
					w.clock = w.clock.AddDate(0, 0, 1)
					since = w.checkpoint()
					writeCalls(w, calls, noon.Add(-time.Hour))
				})
				if e == db.Postgres {
					if _, err := d.ExecContext(db.ForJob(t.Context()), `ANALYZE`); err != nil {
						t.Fatal(err)
					}
				}
				reads[old] = countReads(t, d, since, 3*calls)
			}
			for table, n := range reads[300] {
				if few := reads[60][table]; n > few+few/4 {
					t.Errorf("%s: %d rows are read after 300 old calls of each account, %d after 60", table, n, few)
				}
			}
		})
	}
}

// TestSinceALateCharge bills calls that began three days ago, as after an outage: limits of a day count them by their
// charge, before the checkpoint and after it.
func TestSinceALateCharge(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		var since *Checkpoint
		writeFixture(t, d, func(w *writer) {
			w.begun = 72 * time.Hour
			writeCalls(w, 2, noon.Add(-2*time.Hour))
			since = w.checkpoint()
			writeCalls(w, 2, noon.Add(-time.Hour))
		})
		for _, c := range []*Checkpoint{nil, since} {
			err := d.InSnapshot(db.ForJob(t.Context()), func(ctx context.Context, tx *db.Tx) error {
				a := &verification{Tx: tx, now: noon, since: c}
				if err := a.runChecks(ctx); err != nil {
					return err
				}
				compareFindings(t, corruption{name: "late charges"}, a.results)
				next, err := a.takeCheckpoint(ctx)
				if err == nil && len(next.Late) != 12 {
					t.Errorf("the next checkpoint has %d late charges, want 12", len(next.Late))
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}

// countReads verifies what is new since a checkpoint, and returns how many rows were read: by each check, and of each
// table as PostgreSQL counts them.
func countReads(t *testing.T, d *db.DB, since *Checkpoint, newRows int64) map[string]int64 {
	t.Helper()
	reads := map[string]int64{}
	err := d.InSnapshot(db.ForJob(t.Context()), func(ctx context.Context, tx *db.Tx) error {
		a := &verification{Tx: tx, now: noon, since: since}
		if err := a.runChecks(ctx); err != nil {
			return err
		}
		for _, v := range a.results {
			if reads[v.id+" "+v.title] = v.checked; v.findings > 0 {
				t.Errorf("%s is red: %q", v.title, v.printed)
			}
		}
		if a.ledgerRows != newRows {
			t.Errorf("%d rows of the ledger were read one by one, want %d", a.ledgerRows, newRows)
		}
		if d.Engine != db.Postgres {
			return nil
		}
		return a.forEachRow(ctx, `SELECT relname, COALESCE(seq_tup_read, 0) + COALESCE(idx_tup_fetch, 0)
			FROM pg_stat_xact_user_tables WHERE seq_tup_read + COALESCE(idx_tup_fetch, 0) > 0`,
			func(scan func(...any) error) error {
				var table string
				var n int64
				err := scan(&table, &n)
				reads[table] = n
				return err
			})
	})
	if err != nil {
		t.Fatal(err)
	}
	return reads
}

// TestSinceScansNoHistory asks SQLite how it would run each statement: it reads no table whole that grows with time.
func TestSinceScansNoHistory(t *testing.T) {
	t.Parallel()
	d, _ := openDatabase(t, db.SQLite)
	since := writeFixtureSince(t, d, 12)
	err := d.InSnapshot(db.ForJob(t.Context()), func(ctx context.Context, tx *db.Tx) error {
		a := &verification{Tx: tx, now: noon, since: since}
		if err := a.findNew(ctx); err != nil {
			return err
		}
		for i := range checks {
			c := &checks[i]
			queries := map[string]func(time.Time) []any{c.count: nil, c.remarks: c.remarkArgs, c.query: c.queryArgs}
			if c.sinceQuery != "" {
				delete(queries, c.query)
				queries[c.sinceQuery] = c.queryArgs
			}
			for query, args := range queries {
				if query == "" {
					continue
				}
				text, _ := a.prepare(query, nil)
				history := map[string]bool{}
				for _, m := range historyName.FindAllStringSubmatch(text, -1) {
					history[m[1]], history[m[2]] = true, true
				}
				plan := "EXPLAIN QUERY PLAN " + query
				err := a.formatRows(ctx, plan, argsAt(args, noon), func(row string) {
					_, step, _ := strings.Cut(row, "detail=")
					words := strings.Fields(step)
					if words[0] == "SCAN" && history[words[1]] && !strings.Contains(step, "VIRTUAL") {
						t.Errorf("%s %s: %s\n%s", c.id, c.title, step, query)
					}
				})
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// historyName matches the tables that grow with time, and their names in a statement.
var historyName = regexp.MustCompile(`(?:FROM|JOIN)
	(ledger|events|stored_responses|daily_totals|refusals|log_rows|log_tiles|` +
	`notices|realtime_sessions|realtime_replies)\b(?: (?:AS )?([a-z]+))?`)

// TestSinceAndTheLog publishes rows, verifies them, and publishes more: the tree goes on from its right edge.
func TestSinceAndTheLog(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		first := writeFixtureSince(t, d, 19) // with an empty log
		inspect := func(since *Checkpoint, sql ...string) (a *verification) {
			t.Helper()
			err := d.InTx(db.ForJob(t.Context()), func(ctx context.Context, tx *db.Tx) error {
				w := &writer{TB: t, ctx: ctx, tx: tx}
				for _, text := range sql {
					w.exec(text)
				}
				a = &verification{Tx: tx, now: noon, since: since}
				if err := a.runChecks(ctx); err != nil {
					return err
				}
				return errForget
			})
			if !errors.Is(err, errForget) {
				t.Fatal(err)
			}
			return a
		}
		publishFixture(t, d)
		whole := inspect(nil)
		since := *first
		// The log alone is continued: 600 leaves of rows of another account, 20 at a time.
		for round := range 30 {
			a := inspect(&since)
			compareFindings(t, corruption{name: fmt.Sprint("round ", round)}, a.results)
			since.LogSize, since.LogRoot = a.logSize, a.logRoot
			for i := range since.Accounts {
				err := d.QueryRowContext(db.ForJob(t.Context()), `SELECT COALESCE(MAX(seq), 0) FROM log_accounts
					WHERE account_id = $1`, since.Accounts[i].AccountID).Scan(&since.Accounts[i].LogSeq)
				if err != nil {
					t.Fatal(err)
				}
			}
			addRows(t, d, "wac_b", 20)
			publishFixture(t, d)
		}
		if n := since.LogSize; n < whole.logSize+29*20 {
			t.Fatalf("the log has %d leaves", n)
		}
		for name, sql := range map[string]string{
			"nothing": "",
			"a new leaf is another": `UPDATE log_rows SET entry = (SELECT entry FROM log_rows WHERE position = 0)
				WHERE position = (SELECT MAX(position) FROM log_rows)`,
			"a new leaf is gone": `DELETE FROM log_rows WHERE position = (SELECT MAX(position) FROM log_rows) - 3`,
			"the secret is another": `UPDATE log_accounts SET secret = (SELECT entry FROM log_rows WHERE position = 0)
				WHERE account_id = 'wac_a'`,
			"fewer rows published": `UPDATE log_accounts SET seq = seq - 1 WHERE account_id = 'wac_a'`,
			"an account is gone":   `DELETE FROM log_accounts WHERE account_id = 'wac_a'`,
			"the edge is of another": `UPDATE log_tiles SET hashes = (SELECT entry FROM log_rows WHERE position = 0)
				WHERE level = 0 AND position = (SELECT MAX(position) FROM log_tiles WHERE level = 0)`,
			"the upper edge is gone": `DELETE FROM log_tiles WHERE level = 1`,
			"a checkpoint of before": `UPDATE log_state SET checkpoint = REPLACE(checkpoint, '=', '')`,
		} {
			var sqls []string
			if sql != "" {
				sqls = []string{sql}
			}
			var red int
			for _, v := range inspect(&since, sqls...).results {
				if v.id == "I31" && v.findings > 0 {
					red++
				}
			}
			if (red == 0) != (sql == "") {
				t.Errorf("%s: %d checks of the log are red", name, red)
			}
		}
	})
}

// addRows adds pending top-ups of an account, which move nothing.
func addRows(t *testing.T, d *db.DB, account string, n int) {
	t.Helper()
	err := d.InTx(db.ForJob(t.Context()), func(ctx context.Context, tx *db.Tx) error {
		w := &writer{TB: t, ctx: ctx, tx: tx, balances: map[string]*balance{account: {}}, clock: noon}
		b := w.balances[account]
		row := tx.QueryRowContext(ctx, `SELECT seq, head FROM balances WHERE account_id = $1`, account)
		if err := row.Scan(&b.seq, &b.head); err != nil {
			return err
		}
		for range n {
			w.addLedgerRow(account, movement{}, map[string]any{
				"type": "topup", "status": "pending", "amount_mc": 1_000_000,
			})
			payment := fmt.Sprintf("top_%s_%d", account, b.seq)
			w.insert("payment_records", map[string]any{"payment_id": payment, "n": 1, "kind": "opened",
				"account_id": account, "amount_mc": 1_000_000, "created_us": noon.UnixMicro(),
				"entry_id": fmt.Sprintf("led_y%s%d", account, b.seq)})
			w.insert("checkouts", map[string]any{"id": payment, "account_id": account, "token": payment, "cents": 1,
				"created_us": noon.UnixMicro()})
		}
		w.exec(`UPDATE balances SET seq = $1, head = $2 WHERE account_id = $3`, b.seq, b.head, account)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
