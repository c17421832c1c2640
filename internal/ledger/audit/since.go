package audit

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
)

// This file is about verifications since a checkpoint. A check has one statement for both kinds: {ledger} and {events}
// are the rows that are new, and {verified …} is one more side of a sum, with what the checkpoint verified. In a whole
// verification all rows are new, and those sides are empty.

// noSeq is before every row of an account or a connection that the checkpoint does not know.
const noSeq = -1 << 62

// A newRange is an account with new rows, or a connection with new events, and the last one that was verified.
type newRange struct {
	Owner string `json:"owner"`
	Seq   int64  `json:"seq"`
	Most  int64  `json:"most"` // new ones; there are fewer if one is missing
}

// A heldKey is the key of a hold, with the hash by which the ledger's index would find it.
type heldKey struct {
	ConnectionID string `json:"connection_id"`
	Key          string `json:"key"`
	RequestID    string `json:"request_id"`
	KeyHash      int64  `json:"key_hash"`
}

// A source is what a statement names as {name}: a list of rows that is an argument of the statement, or with a table,
// the rows of the table that follow those that the list names.
type source struct {
	name, columns string // "column type, …"
	table, owner  string // the table, and its column that a newRange names
}

const rangeColumns = "owner text, seq bigint"

var sources = []source{
	{"ledger", rangeColumns, "ledger", "account_id"},
	{"ledger since the log", rangeColumns, "ledger", "account_id"},
	{"events", rangeColumns, "events", "connection_id"},
	{"verified accounts", `account_id text, seq bigint, head text, available_mc bigint, reserved_mc bigint,
		disputed bigint, log_seq bigint`, "", ""},
	{"verified connections", `connection_id text, account_id text, app_id text, allocation_mc bigint,
		consumed_mc bigint, frozen bigint, revoked bigint, event_seq bigint, warned_us bigint`, "", ""},
	{"verified counters", `subject text, counted_mc bigint`, "", ""},
	{"verified totals", `connection_id text, app_id text, account_id text, day text, feature text, model text,
		calls bigint, input_tokens bigint, cached_tokens bigint, output_tokens bigint, provider_cost_mc bigint,
		svc_fee_mc bigint, dev_margin_mc bigint, user_charge_mc bigint, cache_saved_mc bigint`, "", ""},
	{"verified voice", `connection_id text, sessions bigint`, "", ""},
	{"keys of holds", `connection_id text, key text, request_id text, key_hash bigint`, "", ""},
}

// text returns the source as a table of a statement whose argument of that number is the list.
func (s source) text(e db.Engine, argument int, most int64, fromEvent string) string {
	list := s.list(e, argument)
	if s.table == "" {
		return list
	}
	after := fmt.Sprintf(`%s AS t WHERE t.%s = r.owner AND t.seq > r.seq`, s.table, s.owner)
	limit := ""
	if e == db.Postgres {
		// Without statistics about the list PostgreSQL takes it for a third of the table, and would read all of it.
		after = `LATERAL (SELECT * FROM ` + after + ` OFFSET 0) AS t`
		limit = fmt.Sprintf(` LIMIT %d`, most)
	}
	after = list + ` AS r CROSS JOIN ` + after
	if s.table != "events" {
		return `(SELECT t.* FROM ` + after + limit + `)`
	}
	return `(SELECT * FROM (SELECT t.*, CASE WHEN r.seq < 0 THEN 0 ELSE r.seq END AS verified_seq
		FROM ` + after + limit + `) AS n UNION ALL SELECT t.*, 0 FROM events AS t WHERE t.connection_id IS NULL AND t.id >= ` + fromEvent + `)`
}

// list returns the list as a table.
func (s source) list(e db.Engine, argument int) string {
	if e == db.Postgres {
		return fmt.Sprintf(`(SELECT * FROM json_to_recordset(CAST(CAST($%d AS text) AS json)) AS j(%s))`, argument,
			s.columns)
	}
	var columns []string
	for _, column := range strings.Split(s.columns, ",") {
		name := strings.Fields(column)[0]
		columns = append(columns, fmt.Sprintf(`json_extract(j.value, '$.%s') AS %s`, name, name))
	}
	return fmt.Sprintf(`(SELECT %s FROM json_each($%d) AS j)`, strings.Join(columns, ", "), argument)
}

// whole returns what stands for the source in a whole verification.
func (s source) whole() string {
	switch s.table {
	case "ledger":
		return "ledger"
	case "events":
		return `(SELECT events.*, 0 AS verified_seq FROM events)`
	}
	var columns []string
	for _, column := range strings.Split(s.columns, ",") {
		f := strings.Fields(column)
		value := map[string]string{"text": "''", "bigint": "0"}[f[1]]
		columns = append(columns, fmt.Sprintf(`CAST(%s AS %s) AS %s`, value, f[1], f[0]))
	}
	return `(SELECT ` + strings.Join(columns, ", ") + ` WHERE 1 = 0)`
}

// prepare returns a statement as the engine has it, with its arguments and those of its sources.
func (a *verification) prepare(query string, args []any) (string, []any) {
	query = placeholders[a.Engine].Replace(a.boundaries().Replace(query))
	for _, s := range sources {
		mark := "{" + s.name + "}"
		if !strings.Contains(query, mark) {
			continue
		}
		if a.since == nil {
			query = strings.ReplaceAll(query, mark, s.whole())
			continue
		}
		args = append(slices.Clip(args), a.lists[s.name])
		query = strings.ReplaceAll(query, mark, s.text(a.Engine, len(args), a.most[s.name],
			quote(id.Floor(id.Event, a.from()))))
	}
	return query, args
}

// from returns when those rows begin that have no sequence.
func (a *verification) from() time.Time { return a.since.Made().Add(-checkpointOverlap) }

// boundaries replaces the ids and times from which on a statement reads what has no sequence.
func (a *verification) boundaries() *strings.Replacer {
	c := a.since
	if c == nil {
		return strings.NewReplacer("{from req_}", "''", "{from evt_}", "''",
			"{from ntc_}", "''", "{from rts_}", "''", "{from day}", "''",
			"{from time}", "0", "{a day ago led_}", "''", "{late}", "''")
	}
	return strings.NewReplacer("{from req_}", quote(id.Floor(id.Request, a.from())),
		"{from evt_}", quote(id.Floor(id.Event, a.from())),
		"{from ntc_}", quote(id.Floor(id.Notice, a.from())), "{from rts_}", quote(c.VoiceFrom),
		"{from day}", quote(c.firstDay()), "{from time}", fmt.Sprint(a.from().UnixMicro()),
		// Windows are of a day before now, whatever is new.
		"{a day ago led_}", quote(id.Floor(id.Ledger, a.now.Add(-dailyWindow-checkpointOverlap))),
		"{late}", a.quoteLate())
}

// quoteLate returns the ids of late rows as a list of literals that is not empty.
func (a *verification) quoteLate() string {
	list := []string{"''"}
	for _, r := range a.late {
		list = append(list, quote(r.ID))
	}
	return strings.Join(list, ", ")
}

// quote returns s as a literal.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// queryRow runs a statement that returns one row.
func (a *verification) queryRow(ctx context.Context, query string, args ...any) db.Row {
	query, args = a.prepare(query, args)
	return a.QueryRowContext(ctx, query, args...)
}

// findNew finds what is new since the checkpoint, and makes the lists of the sources.
func (a *verification) findNew(ctx context.Context) (err error) {
	told, logged := map[string]int64{}, map[string]int64{}
	a.verifiedSeq = map[string]int64{}
	for _, v := range a.since.Accounts {
		a.verifiedSeq[v.AccountID] = v.Seq
		if v.LogSeq > 0 {
			logged[v.AccountID] = v.LogSeq - 1 // the last one again: it shows that the account's secret is the same
		}
	}
	for _, v := range a.since.Connections {
		told[v.ConnectionID] = v.EventSeq
	}
	if a.newRows, err = a.findRanges(ctx, a.verifiedSeq, newestRows("ledger", "account_id")); err != nil {
		return err
	}
	newEvents, err := a.findRanges(ctx, told, newestRows("events", "connection_id"))
	if err != nil {
		return err
	}
	sinceLog, err := a.findRanges(ctx, logged, `SELECT account_id, 1, seq FROM log_accounts`)
	if err != nil {
		return err
	}
	var keys []heldKey
	err = a.forEachRow(ctx, `SELECT connection_id, key, request_id FROM holds`, func(scan func(...any) error) error {
		var k heldKey
		err := scan(&k.ConnectionID, &k.Key, &k.RequestID)
		k.KeyHash = keyHash(k.ConnectionID, k.Key)
		keys = append(keys, k)
		return err
	})
	if err != nil {
		return err
	}
	a.lists, a.most = map[string]string{}, map[string]int64{}
	for name, list := range map[string]any{"ledger": a.newRows, "events": newEvents, "ledger since the log": sinceLog,
		"verified accounts": a.since.Accounts, "verified connections": a.since.Connections,
		"verified counters": a.since.Counters, "verified totals": a.since.Totals, "verified voice": a.since.Voice,
		"keys of holds": keys} {
		text, err := json.Marshal(list)
		if err != nil {
			return err
		}
		a.lists[name] = string(text)
		if ranges, ok := list.([]newRange); ok {
			for _, r := range ranges {
				a.most[name] += r.Most
			}
		}
	}
	for _, r := range a.since.Late {
		a.noteLate(r.ID, r.CreatedUS)
	}
	return a.forEachRow(ctx, `SELECT id, created_us FROM {ledger} AS l WHERE type = 'spend' AND status = 'settled'`,
		func(scan func(...any) error) error {
			var entry string
			var createdUS int64
			err := scan(&entry, &createdUS)
			a.noteLate(entry, createdUS)
			return err
		})
}

// newestRows returns the statement that finds each owner in a table with its lowest and its highest seq. It goes from
// owner to owner through the index on both, and reads three of its entries for each.
func newestRows(table, owner string) string {
	return strings.NewReplacer("{table}", table, "{owner}", owner).Replace(`WITH RECURSIVE owners(id) AS (
			SELECT MIN({owner}) FROM {table} WHERE {owner} IS NOT NULL
			UNION ALL SELECT (SELECT MIN(t.{owner}) FROM {table} t
				WHERE t.{owner} IS NOT NULL AND t.{owner} > owners.id)
			FROM owners WHERE owners.id IS NOT NULL)
		SELECT id, (SELECT MIN(t.seq) FROM {table} t WHERE t.{owner} IS NOT NULL AND t.{owner} = owners.id),
			(SELECT MAX(t.seq) FROM {table} t WHERE t.{owner} IS NOT NULL AND t.{owner} = owners.id)
		FROM owners WHERE id IS NOT NULL`)
}

// findRanges returns the owners of which a query has a higher seq than was verified.
func (a *verification) findRanges(ctx context.Context, verified map[string]int64, query string) (list []newRange,
	err error) {
	err = a.forEachRow(ctx, query, func(scan func(...any) error) error {
		var owner string
		var oldest, newest int64
		if err := scan(&owner, &oldest, &newest); err != nil {
			return err
		}
		if last, known := verified[owner]; !known {
			list = append(list, newRange{owner, noSeq, newest - oldest + 1})
		} else if newest > last {
			list = append(list, newRange{owner, last, newest - last})
		}
		return nil
	})
	return list, err
}

// wasVerified reports whether the checkpoint verified the row of an account. An event is written with its row, so the
// row of a new event is new: an event of an old row would be a second one.
func (a *verification) wasVerified(account string, seq int64) bool {
	last, known := a.verifiedSeq[account]
	return known && seq <= last
}

// checkNewRows reads the new rows of each account, and applies every rule to each of them.
func (a *verification) checkNewRows(ctx context.Context, rules []*checkResult) error {
	totals, err := a.verifiedTotals(ctx)
	if err != nil {
		return err
	}
	for _, r := range a.newRows {
		f, seq := totals[r.Owner], r.Seq
		if f == nil {
			f = newAccountTotals()
		}
		for {
			n, err := a.readPage(ctx, `account_id = $1 AND seq > $2`, r.Owner, seq, func(row *ledgerRow) {
				seq = row.seq
				f.checkRow(row, rules)
				a.ledgerRows++
			})
			if err != nil {
				return err
			}
			a.meter.readRows(a.ledgerRows, a.most["ledger"])
			if n < pageRows {
				break
			}
		}
	}
	return nil
}

// verifiedTotals returns the totals of each account with new rows, up to the last verified one.
func (a *verification) verifiedTotals(ctx context.Context) (map[string]*accountTotals, error) {
	totals := map[string]*accountTotals{}
	for _, r := range a.newRows {
		totals[r.Owner] = newAccountTotals()
	}
	for _, v := range a.since.Accounts {
		if f := totals[v.AccountID]; f != nil {
			f.seq, f.head, f.available, f.reserved, f.disputed = v.Seq, v.Head, v.AvailableMC, v.ReservedMC,
				v.Disputed != 0
		}
	}
	for _, v := range a.since.Connections {
		if f := totals[v.AccountID]; f != nil {
			f.connections[v.ConnectionID] = &connectionTotals{
				app: v.AppID, allocation: v.AllocationMC, consumed: v.ConsumedMC, revoked: v.Revoked != 0,
			}
		}
	}
	// A new row may reverse an old top-up. What it takes back depends on what that was.
	query, args := a.prepare(`SELECT o.account_id, o.seq, o.id, o.status, COALESCE(o.reason, '')
		FROM {ledger} AS r CROSS JOIN ledger AS o
		WHERE r.type = 'topup' AND r.status = 'reversed' AND o.id = r.reversal_of AND o.account_id = r.account_id`, nil)
	originals, err := db.QueryAll(ctx, a.Tx, db.ScanFields(func(o *ledgerRow) []any {
		return []any{&o.account, &o.seq, &o.id, &o.status, &o.reason}
	}), query, args...)
	for _, o := range originals {
		o.kind = "topup"
		if f := totals[o.account]; o.seq <= f.seq {
			f.noteTopUp(&o)
		}
	}
	return totals, err
}

// keyHash is the hash by which the ledger finds the row of a key.
func keyHash(connection, key string) int64 {
	sum := sha256.Sum256([]byte(connection + "\n" + key))
	return int64(binary.BigEndian.Uint64(sum[:]) >> 1)
}

// checkKeyHash checks that the index of keys has the row's key, or a call could be billed twice.
func checkKeyHash(_ *accountTotals, r *ledgerRow) string {
	want := any(nil)
	if r.key != "" {
		want = keyHash(r.connection, r.key)
	}
	if r.keyHash != want {
		return fmt.Sprintf("key_hash is %v, should be %v", formatValue(r.keyHash), formatValue(want))
	}
	return ""
}
