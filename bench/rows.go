package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/id"
)

// The generator writes spend rows of the bench's connections, so that tables and indexes
// have the size, the shape and the random keys of a ledger that has run for a long time.
// Balances and counters agree with the rows; hashes are filler, so the chain cannot be
// verified.

// One generated call, in micro-cents.
const (
	pastCostMC   = 15_000
	pastFeeMC    = 750
	pastMarginMC = 1_500
	pastChargeMC = pastCostMC + pastFeeMC + pastMarginMC
	pastHoldMC   = 42_000
)

// pastTerms and pastUsage are as long as those of a real row.
const (
	pastTerms = `{"rates":{"book":"2026-11-21-541a21b0","mc_per_million":[[0,75000000,7500000,75000000,450000000]]},` +
		`"margin_ppm":100000,"fee_ppm":50000,"input_tokens":124,"max_tokens":200}`
	pastUsage = `{"input":118,"cached":0,"cache_write":0,"output":61,"reasoning":0}`
)

// pastDays is how many days ago the generated rows begin. They end a day ago, so that no
// window of 24 hours has them.
const pastDays = 60

// generator has what differs between the engines.
type generator struct {
	driver, source string
	before, after  []string
	key            string // a random key, as an expression
	random         string // a random positive number
	number         string // a format of i in n digits: %[1]d, %[2]s
	day            string // the day of created_us
	indexes        string // name and definition of the ledger's own indexes
}

func generatorOf(target string) generator {
	if path, ok := strings.CutPrefix(target, "sqlite:"); ok {
		return generator{
			driver: "sqlite",
			source: path,
			// No ANALYZE: Purser runs none, and with it SQLite plans a statement for each bound value.
			before: []string{"PRAGMA synchronous=OFF", "PRAGMA cache_size=-262144", "PRAGMA threads=2"},
			key: `lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || ` +
				`'-8' || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))`,
			random: `(random() & 9223372036854775807)`,
			number: `printf('%%0%[1]dd', %[2]s)`,
			day:    `date(created_us / 1000000, 'unixepoch')`,
			indexes: `SELECT name, sql FROM sqlite_master
				WHERE type = 'index' AND tbl_name = 'ledger' AND sql IS NOT NULL`,
		}
	}
	return generator{
		driver: "pgx", source: target,
		before:  []string{"SET synchronous_commit = off", "SET maintenance_work_mem = '512MB'"},
		after:   []string{"VACUUM (ANALYZE)", "CHECKPOINT"},
		key:     `gen_random_uuid()::text`,
		random:  `(random() * 9223372036854775807)::bigint`,
		number:  `lpad((%[2]s)::text, %[1]d, '0')`,
		day:     `to_char(to_timestamp(created_us / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD')`,
		indexes: `SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'ledger' AND indexname <> 'ledger_pkey'`,
	}
}

// fillLedger writes about *count spend rows and sets *count to their exact number. It
// drops the indexes first and builds them at the end, which is many times faster.
func fillLedger(ctx context.Context, target string, grants []benchConnection, count *int64) (err error) {
	g := generatorOf(target)
	pool, err := sql.Open(g.driver, g.source)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	conn, err := pool.Conn(ctx) // settings belong to one connection
	if err != nil {
		return err
	}
	defer conn.Close()
	each := *count / int64(len(grants))
	*count = each * int64(len(grants))
	indexes, err := queryPairs(ctx, conn, g.indexes)
	if err != nil {
		return err
	}
	for _, i := range indexes {
		g.before = append(g.before, "DROP INDEX "+i[0])
		g.after = append([]string{i[1]}, g.after...)
	}
	if err := execAll(ctx, conn, g.before); err != nil {
		return err
	}
	if err := g.insertRows(ctx, conn, grants, *count); err != nil {
		return err
	}
	return execAll(ctx, conn, append([]string{
		fmt.Sprintf(`UPDATE balances SET seq = seq + %d, reserved_mc = reserved_mc - %d`, each, each*pastChargeMC),
		fmt.Sprintf(`UPDATE connections SET consumed_mc = consumed_mc + %d`, each*pastChargeMC),
		g.totalsStatement(),
	}, g.after...))
}

// insertRows writes the rows in steps, with progress on standard error.
func (g generator) insertRows(ctx context.Context, conn *sql.Conn, grants []benchConnection, count int64) error {
	const step = 250_000
	start := time.Now()
	begin := start.AddDate(0, 0, -pastDays)
	apart := (pastDays - 1) * 24 * time.Hour / time.Duration(count)
	for from := int64(0); from < count; from += step {
		text := g.insertStatement(grants, begin, apart, begin.Add(apart*time.Duration(from)))
		if _, err := conn.ExecContext(ctx, text, from, min(from+step, count)); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "\rfilling the ledger: %d of %d rows, %.0f s ", min(from+step, count), count,
			time.Since(start).Seconds())
	}
	fmt.Fprintln(os.Stderr)
	return nil
}

// insertStatement returns the statement that inserts the rows $1 ≤ i < $2. Row i belongs to
// connection i mod n, and has the time begin + i × apart. Ids rise with i, and have the
// time at which the step begins.
func (g generator) insertStatement(grants []benchConnection, begin time.Time, apart time.Duration,
	step time.Time) string {
	n := len(grants)
	var list []string
	for i, a := range grants {
		list = append(list, fmt.Sprintf("(%d, '%s', '%s', '%s')", i, a.Account, a.App, a.Connection))
	}
	prefix := ledgerPrefix(step)
	digits := func(width int, value string) string { return fmt.Sprintf(g.number, width, value) }
	return fmt.Sprintf(`WITH RECURSIVE
	who(k, account_id, app_id, connection_id) AS (VALUES %s),
	n(i) AS (SELECT CAST($1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $2)
INSERT INTO ledger (id, account_id, seq, type, status, connection_id, app_id, feature, bucket, model,
	key, fingerprint, paid_by, settlement, terms, usage,
	hold_amount_mc, provider_cost_mc, svc_fee_mc, dev_margin_mc, user_charge_mc, remaining_mc,
	available_delta_mc, reserved_delta_mc, allocation_delta_mc, consumed_delta_mc, created_us, hash, key_hash,
	first_byte_ms, duration_ms, finish_reason)
SELECT '%s' || %s, account_id, %d + 1 + i / %d, 'spend', 'settled', connection_id, app_id, '%s', '%s', '%s',
	%s, %s, 'wallet', 'settled', '%s', '%s',
	%d, %d, %d, %d, %d, %d - %d * (1 + i / %d),
	0, %d, 0, %d, %d + i * %d, %s, %s,
	200 + i %% 700, 900 + i %% 4000, 'stop'
FROM n JOIN who ON k = i %% %d`,
		strings.Join(list, ","),
		prefix, digits(len(id.New(id.Ledger, step))-len(prefix), "i"), rowsOfGrant, n, feature, feature, model, g.key,
		digits(43, "i"), pastTerms, pastUsage,
		pastHoldMC, pastCostMC, pastFeeMC, pastMarginMC, pastChargeMC, int64(allocationMC), pastChargeMC, n,
		-pastChargeMC, pastChargeMC, begin.UnixMicro(), apart.Microseconds(), digits(43, "i"), g.random, n)
}

// totalsStatement returns the statement that computes the daily totals, as settlements do.
func (g generator) totalsStatement() string {
	return `INSERT INTO rollups (day, connection_id, feature, model, app_id, account_id, calls, input_tokens,
			output_tokens, provider_cost_mc, svc_fee_mc, dev_margin_mc, user_charge_mc)
		SELECT ` + g.day + ` AS d, connection_id, bucket, model, app_id, account_id, COUNT(*), 118 * COUNT(*),
			61 * COUNT(*), SUM(provider_cost_mc), SUM(svc_fee_mc), SUM(dev_margin_mc), SUM(user_charge_mc)
		FROM ledger WHERE type = 'spend' GROUP BY d, connection_id, bucket, model, app_id, account_id`
}

// rowsOfGrant is how many rows an account has before it spends: top-up, connect.
const rowsOfGrant = 2

// ledgerPrefix is the part of a ledger id that depends on its time alone.
func ledgerPrefix(at time.Time) string { return id.New(id.Ledger, at)[:len(id.Ledger)+9] }

func queryPairs(ctx context.Context, conn *sql.Conn, text string) (list [][2]string, err error) {
	rows, err := conn.QueryContext(ctx, text)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var p [2]string
		if err := rows.Scan(&p[0], &p[1]); err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, rows.Err()
}

func execAll(ctx context.Context, conn *sql.Conn, list []string) error {
	for _, text := range list {
		if _, err := conn.ExecContext(ctx, text); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	return nil
}
