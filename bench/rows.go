package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// The generator writes spend rows of the bench's connections, so that tables and indexes
// have the size, the shape and the random keys of a ledger that has run for a long time.
// The rows are true: charges follow from their prices and usage, chains, balances and
// totals from the rows, so that an audit finds nothing.

// One generated call, in micro-cents: 118 tokens of input at 75 and 61 of output at 450,
// and the hold of 124 and 200.
const (
	pastCostMC   = 36_300
	pastFeeMC    = 1_815
	pastMarginMC = 3_630
	pastChargeMC = pastCostMC + pastFeeMC + pastMarginMC
	pastHoldMC   = 119_905
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
	list           string // the rows of the argument, as a table
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
			list: `(SELECT json_extract(value, '$.i') AS i, json_extract(value, '$.k') AS k,
				json_extract(value, '$.id') AS id, json_extract(value, '$.seq') AS seq,
				json_extract(value, '$.key') AS key, json_extract(value, '$.fingerprint') AS fingerprint,
				json_extract(value, '$.remaining') AS remaining, json_extract(value, '$.created') AS created,
				json_extract(value, '$.hash') AS hash, json_extract(value, '$.key_hash') AS key_hash
				FROM json_each($1))`,
			day: `date(created_us / 1000000, 'unixepoch')`,
			indexes: `SELECT name, sql FROM sqlite_master
				WHERE type = 'index' AND tbl_name = 'ledger' AND sql IS NOT NULL`,
		}
	}
	return generator{
		driver: "pgx", source: target,
		before: []string{"SET synchronous_commit = off", "SET maintenance_work_mem = '512MB'"},
		after:  []string{"VACUUM (ANALYZE)", "CHECKPOINT"},
		list: `(SELECT * FROM json_to_recordset($1::text::json) AS r(i bigint, k bigint, id text, seq bigint, key text,
			fingerprint text, remaining bigint, created bigint, hash text, key_hash bigint))`,
		day: `to_char(to_timestamp(created_us / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD')`,
		indexes: `SELECT indexname, replace(indexdef, ' ON ONLY ', ' ON ') FROM pg_indexes
			WHERE tablename = 'ledger' AND indexname <> 'ledger_pkey'`,
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
	chains, err := startChains(ctx, conn, grants)
	if err != nil {
		return err
	}
	if err := g.insertRows(ctx, conn, chains, *count); err != nil {
		return err
	}
	for _, c := range chains {
		_, err := conn.ExecContext(ctx,
			`UPDATE balances SET seq = $1, head = $2, reserved_mc = $3 WHERE account_id = $4`,
			c.seq, c.head, int64(c.remaining), c.Account)
		if err != nil {
			return err
		}
	}
	return execAll(ctx, conn, append([]string{
		fmt.Sprintf(`UPDATE connections SET consumed_mc = consumed_mc + %d`, each*pastChargeMC), g.totalsStatement(),
	}, g.after...))
}

// A chain is a connection with the newest row of its account.
type chain struct {
	benchConnection
	seq       int64
	head      string
	remaining money.MC
}

// startChains reads where the accounts' chains end.
func startChains(ctx context.Context, conn *sql.Conn, grants []benchConnection) (chains []*chain, err error) {
	for _, g := range grants {
		c := &chain{benchConnection: g, remaining: allocationMC}
		row := conn.QueryRowContext(ctx, `SELECT seq, head FROM balances WHERE account_id = $1`, g.Account)
		if err := row.Scan(&c.seq, &c.head); err != nil {
			return nil, err
		}
		chains = append(chains, c)
	}
	return chains, nil
}

// A pastRow has what differs from row to row.
type pastRow struct {
	I           int64  `json:"i"`
	K           int    `json:"k"` // index of the connection
	ID          string `json:"id"`
	Seq         int64  `json:"seq"`
	Key         string `json:"key"`
	Fingerprint string `json:"fingerprint"`
	Remaining   int64  `json:"remaining"`
	CreatedUS   int64  `json:"created"`
	Hash        string `json:"hash"`
	KeyHash     int64  `json:"key_hash"`
}

// newKey returns a random key with the form of a UUID, as many clients send it.
func newKey() string {
	var b [16]byte
	rand.Read(b[:])
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// append appends the ith row to the chain.
func (c *chain) append(i int64, k int, entryID string, createdUS int64) pastRow {
	c.seq, c.remaining = c.seq+1, c.remaining-pastChargeMC
	e := rules.Entry{
		ID: entryID, AccountID: c.Account, Seq: c.seq, Type: rules.EntrySpend, Status: "settled",
		ConnectionID: c.Connection, AppID: c.App, Feature: feature, FeatureLabel: feature, Model: model,
		Key: newKey(), Fingerprint: fmt.Sprintf("%043d", i), PaidBy: "wallet", Settlement: rules.Settled,
		Terms: pastTerms, Usage: pastUsage, HoldMC: pastHoldMC, RemainingMC: c.remaining,
		Amounts: rules.Amounts{
			ProviderCostMC: pastCostMC, SvcFeeMC: pastFeeMC, DevMarginMC: pastMarginMC, UserChargeMC: pastChargeMC,
		},
		ReservedDeltaMC: -pastChargeMC, ConsumedDeltaMC: pastChargeMC, CreatedUS: createdUS,
	}
	columns := e.Columns()
	c.head = rules.ChainHash(c.head, columns[:])
	return pastRow{i, k, e.ID, e.Seq, e.Key, e.Fingerprint, int64(e.RemainingMC), createdUS, c.head,
		rules.Key{ConnectionID: e.ConnectionID, Key: e.Key}.IndexHash()}
}

// fillStep is the number of rows of one statement.
const fillStep = 5_000

// insertRows writes the rows in steps, with progress on standard error. Row i belongs to connection i mod n. The rows
// of a step are computed while those before it are written.
func (g generator) insertRows(ctx context.Context, conn *sql.Conn, chains []*chain, count int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	start := time.Now()
	begin := start.AddDate(0, 0, -pastDays)
	apart := (pastDays - 1) * 24 * time.Hour / time.Duration(count)
	steps := make(chan []byte, 2)
	var failed error
	go func() {
		defer close(steps)
		for from := int64(0); from < count; from += fillStep {
			text, err := json.Marshal(computeRows(chains, begin, apart, from, min(from+fillStep, count)))
			if err != nil {
				failed = err
				return
			}
			select {
			case steps <- text:
			case <-ctx.Done():
				return
			}
		}
	}()
	insert := g.insertStatement(chains)
	written, told := int64(0), time.Time{}
	for text := range steps {
		if _, err := conn.ExecContext(ctx, insert, string(text)); err != nil {
			return err
		}
		if written = min(written+fillStep, count); time.Since(told) > time.Second || written == count {
			told = time.Now()
			fmt.Fprintf(os.Stderr, "\rfilling the ledger: %d of %d rows, %.0f s ", written, count,
				time.Since(start).Seconds())
		}
	}
	fmt.Fprintln(os.Stderr)
	return errors.Join(failed, ctx.Err())
}

// computeRows returns the rows from ≤ i < to. Ids rise with i, and have the time of the first.
func computeRows(chains []*chain, begin time.Time, apart time.Duration, from, to int64) []pastRow {
	at := begin.Add(apart * time.Duration(from))
	prefix := ledgerPrefix(at)
	digits := len(id.New(id.Ledger, at)) - len(prefix)
	list := make([]pastRow, 0, to-from)
	for i := from; i < to; i++ {
		k := int(i % int64(len(chains)))
		list = append(list, chains[k].append(i, k, fmt.Sprintf("%s%0*d", prefix, digits, i),
			begin.Add(apart*time.Duration(i)).UnixMicro()))
	}
	return list
}

// insertStatement returns the statement that inserts the rows of its argument, a JSON array of pastRow.
func (g generator) insertStatement(chains []*chain) string {
	var list []string
	for k, c := range chains {
		list = append(list, fmt.Sprintf("(%d, '%s', '%s', '%s')", k, c.Account, c.App, c.Connection))
	}
	return fmt.Sprintf(`WITH who(k, account_id, app_id, connection_id) AS (VALUES %s)
INSERT INTO ledger (id, account_id, seq, type, status, connection_id, app_id, feature, feature_label, model,
	key, fingerprint, paid_by, settlement, terms, usage,
	hold_amount_mc, provider_cost_mc, svc_fee_mc, dev_margin_mc, user_charge_mc, remaining_mc,
	available_delta_mc, reserved_delta_mc, allocation_delta_mc, consumed_delta_mc, created_us, hash, key_hash,
	first_byte_ms, duration_ms, finish_reason)
SELECT r.id, who.account_id, r.seq, 'spend', 'settled', who.connection_id, who.app_id, '%s', '%s', '%s',
	r.key, r.fingerprint, 'wallet', 'settled', '%s', '%s',
	%d, %d, %d, %d, %d, r.remaining,
	0, %d, 0, %d, r.created, r.hash, r.key_hash,
	200 + r.i %% 700, 900 + r.i %% 4000, 'stop'
FROM %s AS r JOIN who ON who.k = r.k`,
		strings.Join(list, ","), feature, feature, model, pastTerms, pastUsage,
		pastHoldMC, pastCostMC, pastFeeMC, pastMarginMC, pastChargeMC, -pastChargeMC, pastChargeMC, g.list)
}

// totalsStatement returns the statement that computes the daily totals, as settlements do.
func (g generator) totalsStatement() string {
	return `INSERT INTO daily_totals (day, connection_id, feature, model, app_id, account_id, calls, input_tokens,
			output_tokens, provider_cost_mc, svc_fee_mc, dev_margin_mc, user_charge_mc)
		SELECT ` + g.day + ` AS d, connection_id, feature_label, model, app_id, account_id, COUNT(*), 118 * COUNT(*),
			61 * COUNT(*), SUM(provider_cost_mc), SUM(svc_fee_mc), SUM(dev_margin_mc), SUM(user_charge_mc)
		FROM ledger WHERE type = 'spend' GROUP BY d, connection_id, feature_label, model, app_id, account_id`
}

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
