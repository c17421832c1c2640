package audit

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"purser/internal/db"
	"purser/internal/db/dbtest"
)

// corruption is a consistent database with one thing wrong, and the checks that
// must turn red: those whose id and title begin so, and no other.
type corruption struct {
	name   string
	red    []string
	sql    []string
	sealed bool   // the hash chain is made right again, as one who can write the database would
	only   string // an engine; both if empty
}

var corruptions = []corruption{
	{name: "money moved between available and reserved outside of the journal",
		red: []string{"I1 accounts", "I2 accounts"},
		sql: []string{`UPDATE balances SET available_mc = available_mc - 7, reserved_mc = reserved_mc + 7 WHERE account_id = 'wac_a'`}},
	{name: "money appears on a balance",
		red: []string{"I2 accounts"},
		sql: []string{`UPDATE balances SET available_mc = available_mc + 7 WHERE account_id = 'wac_a'`}},
	{name: "a balance is gone",
		red: []string{"I2 accounts"},
		sql: []string{`DELETE FROM balances WHERE account_id = 'wac_b'`}},
	{name: "two rows move what their types do not say, and cancel out", sealed: true,
		red: []string{"I2 journal"},
		sql: []string{`UPDATE ledger SET available_delta_mc = available_delta_mc + 5 WHERE type = 'cap'`, `UPDATE ledger SET available_delta_mc = available_delta_mc - 5 WHERE key = 'k3'`}},
	{name: "an amount is above all money", sealed: true,
		red: []string{"I2 journal"},
		sql: []string{`UPDATE ledger SET amount_mc = 2000000000000000000 WHERE status = 'pending'`}},
	{name: "money is lent before it is there", sealed: true,
		red: []string{"I3 journal"},
		sql: []string{`UPDATE ledger SET seq = -1 WHERE account_id = 'wac_a' AND seq = 1`, `UPDATE ledger SET seq = 1 WHERE account_id = 'wac_a' AND seq = 2`, `UPDATE ledger SET seq = 2 WHERE seq = -1`}},
	{name: "a connection consumed what no row says",
		red: []string{"I4 connections"},
		sql: []string{`UPDATE connections SET consumed_mc = consumed_mc + 5, allocation_mc = allocation_mc + 5 WHERE id = 'conn_1'`}},
	{name: "held without a hold",
		red: []string{"I5 connections"},
		sql: []string{`UPDATE connections SET held_mc = held_mc + 1 WHERE id = 'conn_1'`}},
	{name: "a call is held on a used up connection",
		red: []string{"I6 connections"},
		sql: []string{`UPDATE holds SET connection_id = 'conn_3', app_id = 'app_2' WHERE key = 'k4'`,
			`UPDATE connections SET held_mc = 0 WHERE id = 'conn_1'`, `UPDATE connections SET held_mc = 1323000 WHERE id = 'conn_3'`}},
	{name: "a call is billed before the cap was raised for it", sealed: true,
		red: []string{"I3 journal", "I6 journal", "I7 journal"},
		sql: []string{`UPDATE ledger SET available_delta_mc = -2000, reserved_delta_mc = 2000, allocation_delta_mc = 2000 WHERE type = 'connect' AND connection_id = 'conn_1'`,
			`UPDATE ledger SET available_delta_mc = -599998000, reserved_delta_mc = 599998000, allocation_delta_mc = 599998000 WHERE type = 'cap'`}},
	{name: "a row tells more remaining than there was", sealed: true,
		red: []string{"I7 journal"},
		sql: []string{`UPDATE ledger SET remaining_mc = 500000000 WHERE key = 'k1'`}},
	{name: "a revoked connection does not say when",
		red: []string{"I8 connections: revoked"},
		sql: []string{`UPDATE connections SET revoked_us = NULL WHERE id = 'conn_2'`}},
	{name: "a connection is revoked without a row",
		red: []string{"I8 connections: one connect row"},
		sql: []string{`UPDATE connections SET status = 'revoked', revoked_us = 1, event_seq = 3 WHERE id = 'conn_3'`,
			`INSERT INTO events (id, type, app_id, connection_id, seq, data, created_us) VALUES ('evt_x', 'connection.revoked', 'app_2', 'conn_3', 3, '{}', 1)`}},
	{name: "a row names another app than its connection", sealed: true,
		red: []string{"I8 journal"},
		sql: []string{`UPDATE ledger SET app_id = 'app_2' WHERE type = 'cap'`}},
	{name: "two live connections of one app and account", sealed: true,
		red: []string{"I9 connections"},
		sql: []string{`DROP INDEX connections_live`,
			`INSERT INTO connections (id, app_id, account_id, allocation_mc, consumed_mc, held_mc, status, spent, event_seq, created_us) VALUES ('conn_9', 'app_1', 'wac_a', 0, 0, 0, 'active', '', 1, 1)`,
			`INSERT INTO events (id, type, app_id, connection_id, seq, data, created_us) VALUES ('evt_x', 'connection.created', 'app_1', 'conn_9', 1, '{}', 1)`,
			`INSERT INTO ledger (id, account_id, seq, type, status, connection_id, app_id, available_delta_mc, reserved_delta_mc, allocation_delta_mc, consumed_delta_mc, created_us, hash)
				SELECT 'led_x', 'wac_a', seq + 1, 'connect', 'settled', 'conn_9', 'app_1', 0, 0, 0, 0, 1, '' FROM balances WHERE account_id = 'wac_a'`}},
	{name: "a hold names another app than its connection",
		red: []string{"I10 holds"},
		sql: []string{`UPDATE holds SET app_id = 'app_2' WHERE key = 'k4'`}},
	{name: "a hold outlives its owner's lease",
		red: []string{"I11 holds"},
		sql: []string{`UPDATE holds SET node_id = 'node_0' WHERE key = 'k4'`}},
	{name: "a hold has no owner",
		red: []string{"I11 holds"},
		sql: []string{`UPDATE holds SET node_id = 'node_x' WHERE key = 'k4'`}},
	{name: "nobody runs, so nobody could end the hold",
		sql: []string{`UPDATE nodes SET lease_us = 0`}},
	{name: "a server has just started, and has not swept yet",
		sql: []string{`UPDATE holds SET node_id = 'node_0' WHERE key = 'k4'`, `UPDATE nodes SET started_us = lease_us - 300000000 WHERE id = 'node_1'`}},
	{name: "a hold is lower than its terms say",
		red: []string{"I12 holds"},
		sql: []string{`UPDATE holds SET amount_mc = amount_mc - 1 WHERE key = 'k5'`}},
	{name: "a billed call was held lower than its terms say", sealed: true,
		red: []string{"I12 journal"},
		sql: []string{`UPDATE ledger SET hold_amount_mc = hold_amount_mc - 1 WHERE key = 'k3'`}},
	{name: "the parts of a refund do not make its sum", sealed: true,
		red: []string{"I13 journal: user_charge", "I22 totals: of each connection"},
		sql: []string{`UPDATE ledger SET svc_fee_mc = svc_fee_mc - 1 WHERE reversal_of = 'led_zk1'`}},
	{name: "a micro-cent of the fee went to the developer", sealed: true,
		red: []string{"I13 journal: margin and fee"},
		sql: []string{`UPDATE ledger SET svc_fee_mc = svc_fee_mc - 1, dev_margin_mc = dev_margin_mc + 1 WHERE key = 'k3'`,
			`UPDATE rollups SET svc_fee_mc = svc_fee_mc - 1, dev_margin_mc = dev_margin_mc + 1 WHERE connection_id = 'conn_1' AND feature = 'chat'`}},
	{name: "the fee is lowered although the cap is not met", sealed: true,
		red: []string{"I13 journal: margin and fee"},
		sql: []string{`UPDATE ledger SET svc_fee_mc = svc_fee_mc - 1, user_charge_mc = user_charge_mc - 1, consumed_delta_mc = consumed_delta_mc - 1, reserved_delta_mc = reserved_delta_mc + 1 WHERE key = 'k3'`,
			`UPDATE rollups SET svc_fee_mc = svc_fee_mc - 1, user_charge_mc = user_charge_mc - 1 WHERE connection_id = 'conn_1' AND feature = 'chat'`,
			`UPDATE connections SET consumed_mc = consumed_mc - 1 WHERE id = 'conn_1'`, `UPDATE balances SET reserved_mc = reserved_mc + 1 WHERE account_id = 'wac_a'`}},
	{name: "cached input is billed as input", sealed: true,
		red: []string{"I14 journal"},
		sql: []string{`UPDATE ledger SET usage = '{"input":990,"cached":10,"cache_write":0,"output":500,"reasoning":0}' WHERE key = 'k1'`}},
	{name: "an estimate is rounded up", sealed: true,
		red: []string{"I14 journal"},
		sql: []string{`UPDATE ledger SET provider_cost_mc = provider_cost_mc + 1, user_charge_mc = user_charge_mc + 1, consumed_delta_mc = consumed_delta_mc + 1, reserved_delta_mc = reserved_delta_mc - 1 WHERE key = 'k2'`,
			`UPDATE ledger SET remaining_mc = remaining_mc - 1 WHERE key IN ('k2', 'k3')`,
			`UPDATE rollups SET provider_cost_mc = provider_cost_mc + 1, user_charge_mc = user_charge_mc + 1 WHERE connection_id = 'conn_1' AND feature = ''`,
			`UPDATE connections SET consumed_mc = consumed_mc + 1 WHERE id = 'conn_1'`, `UPDATE balances SET reserved_mc = reserved_mc - 1 WHERE account_id = 'wac_a'`}},
	{name: "the terms of a call cannot be read", sealed: true,
		red: []string{"I14 journal"},
		sql: []string{`UPDATE ledger SET terms = '{"rates":{"book":"x","mc_per_million":[]}}' WHERE key = 'k1'`}},
	{name: "the usage of a call is not JSON", sealed: true,
		red: []string{"I14 journal", "I22 totals: of each connection"},
		sql: []string{`UPDATE ledger SET usage = 'many' WHERE key = 'k1'`}},
	{name: "a call is billed twice", sealed: true,
		red: []string{"I15 journal: one spend row"},
		sql: []string{`DROP INDEX ledger_key`, `UPDATE ledger SET key = 'k1' WHERE key = 'k3'`}},
	{name: "a billed call has lost its fingerprint", sealed: true,
		red: []string{"I15 journal: a billed call"},
		sql: []string{`UPDATE ledger SET fingerprint = NULL WHERE key = 'k1'`}},
	{name: "a billed request has a hold again",
		red: []string{"I15 holds"},
		sql: []string{`UPDATE holds SET request_id = 'req_zk1' WHERE key = 'k5'`}},
	{name: "an answer without a row",
		red: []string{"I16 answers"},
		sql: []string{`UPDATE answers SET request_id = 'req_x' WHERE request_id = 'req_zk1'`}},
	{name: "an answer that was not kept",
		sql: []string{`DELETE FROM answers WHERE request_id = 'req_zk1'`}},
	{name: "a refused call is billed",
		red: []string{"I18 refusals"},
		sql: []string{`UPDATE refusals SET request_id = 'req_zk1' WHERE status = 402`}},
	{name: "an attempt failed after a later one was billed",
		sql: []string{`UPDATE refusals SET created_us = created_us + 3600000000 WHERE request_id = 'req_zk3'`}},
	{name: "a failed call still holds money",
		red: []string{"I18 refusals"},
		sql: []string{`UPDATE refusals SET request_id = 'req_zk4', created_us = created_us - 60000000 WHERE request_id = 'req_zk5'`}},
	{name: "a mock call above its hold",
		red: []string{"I19 journal"},
		sql: []string{`UPDATE apps SET provider_mode = 'mock'`}},
	{name: "a refund without a reason", sealed: true,
		red: []string{"I20 reversals: each"},
		sql: []string{`UPDATE ledger SET reason = NULL WHERE reversal_of = 'led_zk1'`}},
	{name: "a refund of a refund", sealed: true,
		red: []string{"I20 reversals: each"},
		sql: []string{`UPDATE ledger SET reversal_of = (SELECT id FROM ledger WHERE reversal_of = 'led_zb'), id = 'led_x' WHERE reversal_of = 'led_zk1'`}},
	{name: "more is refunded than was paid", sealed: true,
		red: []string{"I20 reversals: never"},
		sql: []string{`UPDATE ledger SET amount_mc = 1001, available_delta_mc = -1001 WHERE reversal_of = 'led_zb'`, `UPDATE balances SET available_mc = -1 WHERE account_id = 'wac_b'`}},
	{name: "a seq is skipped", sealed: true,
		red: []string{"I21 journal: seq"},
		sql: []string{`UPDATE ledger SET seq = seq + 1 WHERE account_id = 'wac_b' AND seq = 3`}},
	{name: "a row was edited",
		red: []string{"I21 journal: each row's hash"},
		sql: []string{`UPDATE ledger SET reason = 'goodwill' WHERE reversal_of = 'led_zk1'`}},
	{name: "an account points at an earlier row",
		red: []string{"I21 accounts"},
		sql: []string{`UPDATE balances SET seq = 2, head = (SELECT hash FROM ledger WHERE account_id = 'wac_b' AND seq = 2) WHERE account_id = 'wac_b'`}},
	{name: "nothing refuses to delete a row", only: "sqlite",
		red: []string{"I21 schema"},
		sql: []string{`DROP TRIGGER ledger_no_delete`}},
	{name: "a trigger refuses only sometimes", only: "sqlite",
		red: []string{"I21 schema"},
		sql: []string{`DROP TRIGGER ledger_no_delete`, `CREATE TRIGGER ledger_no_delete BEFORE DELETE ON ledger WHEN old.seq > 9 BEGIN SELECT RAISE(ABORT, 'no'); END`}},
	{name: "nothing refuses to delete a row", only: "postgres",
		red: []string{"I21 schema"},
		sql: []string{`DROP TRIGGER ledger_no_change ON ledger`}},
	{name: "a trigger is disabled", only: "postgres",
		red: []string{"I21 schema"},
		sql: []string{`ALTER TABLE ledger DISABLE TRIGGER ledger_no_truncate`}},
	{name: "the day's totals do not add up",
		red: []string{"I22 totals: of each app", "I22 totals: of each connection"},
		sql: []string{`UPDATE rollups SET svc_fee_mc = svc_fee_mc + 1 WHERE connection_id = 'conn_3'`}},
	{name: "a call is counted twice",
		red: []string{"I22 totals: of each connection"},
		sql: []string{`UPDATE rollups SET calls = calls + 1, input_tokens = input_tokens + 1000 WHERE connection_id = 'conn_3'`}},
	{name: "a day's totals are missing",
		red: []string{"I22 totals: of each connection"},
		sql: []string{`DELETE FROM rollups WHERE connection_id = 'conn_3'`}},
	{name: "a billed key can be held again",
		red: []string{"I26 holds"},
		sql: []string{`UPDATE holds SET key = 'k1' WHERE key = 'k5'`}},
	{name: "two refresh tokens of one family are usable",
		red: []string{"I27 tokens: at most one"},
		sql: []string{`UPDATE oauth_tokens SET used_us = NULL WHERE hash = 'r1'`}},
	{name: "an access token outlives its family",
		red: []string{"I27 tokens: a revoked family"},
		sql: []string{`UPDATE oauth_tokens SET revoked_us = NULL WHERE hash = 'a2'`}},
	{name: "a family is shared by two connections",
		red: []string{"I27 tokens: a family"},
		sql: []string{`UPDATE oauth_tokens SET connection_id = 'conn_3' WHERE hash = 'a1'`}},
	{name: "a code that gave tokens can be used again",
		red: []string{"I27 codes"},
		sql: []string{`UPDATE oauth_codes SET used_us = NULL WHERE hash = 'c1'`}},
	{name: "two codes gave one family",
		red: []string{"I27 codes"},
		sql: []string{`UPDATE oauth_codes SET used_us = 1, family_id = 'fam_1' WHERE hash = 'c3'`}},
	{name: "an event is missing",
		red: []string{"I28 events: numbered"},
		sql: []string{`DELETE FROM events WHERE connection_id = 'conn_3' AND seq = 2`}},
	{name: "a freeze was not told",
		red: []string{"I28 events: one for each"},
		sql: []string{`UPDATE connections SET status = 'frozen' WHERE id = 'conn_1'`}},
	{name: "a connection was not told",
		red: []string{"I28 events: one for each"},
		sql: []string{`UPDATE events SET type = 'connection.other' WHERE connection_id = 'conn_3' AND seq = 1`}},
}

func TestEachCorruptionTurnsItsCheckRed(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		write(t, d, fixture)
		for _, c := range append([]corruption{{name: "nothing"}}, corruptions...) {
			if c.only != "" && c.only != string(d.Engine) {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				got := inspectCorrupted(t, d, c)
				var red []string
				for _, v := range got {
					if name := v.id + " " + v.title; v.found > 0 {
						red = append(red, name)
						if !slices.ContainsFunc(c.red, func(want string) bool { return strings.HasPrefix(name, want) }) {
							t.Errorf("%s is red: %q", name, v.shown)
						}
					}
				}
				for _, want := range c.red {
					if !slices.ContainsFunc(red, func(name string) bool { return strings.HasPrefix(name, want) }) {
						t.Errorf("%s is not red", want)
					}
				}
			})
		}
	})
}

// TestEveryCheckIsSeenToFail is the canary: a check that no corruption turns red
// may be one that cannot fail.
func TestEveryCheckIsSeenToFail(t *testing.T) {
	t.Parallel()
	for _, check := range checks {
		name := check.id + " " + check.title
		if !slices.ContainsFunc(corruptions, func(c corruption) bool {
			return slices.ContainsFunc(c.red, func(want string) bool { return strings.HasPrefix(name, want) })
		}) {
			t.Errorf("no corruption turns %q red", name)
		}
	}
}

var errForget = errors.New("forget the corruption")

// inspectCorrupted makes the corruption in a transaction, inspects what it sees,
// and takes everything back.
func inspectCorrupted(t *testing.T, d *db.DB, c corruption) []*verdict {
	t.Helper()
	var a *audit
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		w := &writer{TB: t, ctx: ctx, tx: tx}
		for _, text := range unlock[d.Engine] {
			w.exec(text)
		}
		guarded := strings.HasPrefix(strings.Join(c.red, ""), "I21 schema")
		if guarded { // what is taken away is what the check is about
			relock(w, d.Engine)
		}
		for _, text := range c.sql {
			w.exec(text)
		}
		if c.sealed {
			seal(w)
		}
		if !guarded {
			relock(w, d.Engine)
		}
		a = &audit{Tx: tx, now: noon}
		if err := a.inspect(ctx); err != nil {
			return err
		}
		return errForget
	})
	if !errors.Is(err, errForget) {
		t.Fatal(err)
	}
	return a.verdicts
}

// unlock takes away what keeps the ledger as it is.
var unlock = map[db.Engine][]string{
	db.SQLite: {`PRAGMA ignore_check_constraints = 1`, `DROP TRIGGER ledger_no_update`, `DROP TRIGGER ledger_no_delete`},
	db.Postgres: {`ALTER TABLE ledger DISABLE TRIGGER USER`, `DO $$ DECLARE c record; BEGIN
		FOR c IN SELECT conrelid::regclass AS t, conname FROM pg_constraint WHERE contype = 'c' AND connamespace = 'public'::regnamespace LOOP
			EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', c.t, c.conname); END LOOP; END $$`},
}

func relock(w *writer, e db.Engine) {
	w.Helper()
	if e == db.Postgres {
		w.exec(`ALTER TABLE ledger ENABLE TRIGGER USER`)
		return
	}
	w.exec(`CREATE TRIGGER ledger_no_update BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, 'append-only'); END`)
	w.exec(`CREATE TRIGGER ledger_no_delete BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, 'append-only'); END`)
}

// seal makes the hash chain right for what the rows say now.
func seal(w *writer) {
	w.Helper()
	var list []row
	a := &audit{Tx: w.tx}
	if _, err := a.page(w.ctx, "", -1, func(r *row) { list = append(list, *r) }); err != nil {
		w.Fatal(err)
	}
	account, head := "", ""
	for _, r := range list {
		if r.account != account {
			account, head = r.account, ""
		}
		head = chainHash(head, r.values[:width-1])
		w.exec(`UPDATE ledger SET hash = $1 WHERE id = $2`, head, r.id)
		w.exec(`UPDATE balances SET seq = $1, head = $2 WHERE account_id = $3`, r.seq, head, account)
	}
}
