package ledger

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"purser/internal/limits"
)

// postgres loads and saves a batch in one round trip each: the statements are
// pipelined, and take their rows from unnest. BEGIN and COMMIT ride along.
type postgres struct {
	conn *pgx.Conn
	pipe *pgx.Batch // what waits for the next round trip
	hard bool       // what was saved must reach the disk before it is answered
}

func (q *postgres) use(dc any) error {
	c, ok := dc.(*stdlib.Conn)
	if !ok {
		return fmt.Errorf("ledger: %T is not a PostgreSQL connection", dc)
	}
	q.conn, q.pipe = c.Conn(), &pgx.Batch{}
	if known := q.conn.PgConn().CustomData(); known["ledger"] == nil {
		known["ledger"] = true
		// Every statement here finds its rows by key. A plan that was made, and is
		// kept, while a table was still empty would read the whole of it for ever. And
		// one generic plan is right for every batch: planning each anew cost as much
		// as running it.
		_, err := q.conn.Exec(context.Background(), `SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off; SET plan_cache_mode = force_generic_plan`)
		return err
	}
	return nil
}

// visit is use: nothing is remembered between batches.
func (q *postgres) visit(dc any) error { return q.use(dc) }

func (q *postgres) close(any) error { return nil }

// tick has nothing to do: other nodes must see every hold at once.
func (q *postgres) tick(context.Context, time.Time) (bool, error) { return false, nil }

func (q *postgres) begin(context.Context, bool) error {
	q.pipe.Queue(`BEGIN`)
	return nil
}

// commit waits for the disk, unless the batch only opened holds. These are visible
// to every node at once, and outlive any process; only a machine that loses its
// power loses the last of them, and the whole transaction with each. A settlement
// that finds no hold is a late one, and flushes whatever came before it.
func (q *postgres) commit(ctx context.Context) error {
	if !q.hard {
		q.pipe.Queue(`SET LOCAL synchronous_commit = off`)
	}
	q.pipe.Queue(`COMMIT`)
	return q.flush(ctx)
}

func (q *postgres) rollback(ctx context.Context) {
	q.pipe = &pgx.Batch{}
	_, _ = q.conn.Exec(ctx, `ROLLBACK`) // a broken connection has rolled back already
}

func (q *postgres) flush(ctx context.Context) error {
	b := q.pipe
	q.pipe = &pgx.Batch{}
	return q.conn.SendBatch(ctx, b).Close()
}

// load locks balances, then connections, each in key order, so that two nodes
// never wait for each other in a circle. A connection's lock guards its holds,
// keys, windows and totals.
func (q *postgres) load(ctx context.Context, w *wants) (*State, error) {
	s := NewState()
	q.loadMoney(s, w)
	q.loadKeys(s, w)
	for subject := range w.windows {
		s.windows[subject] = &limits.Series{Width: limits.CallsWidth}
	}
	if len(w.windows) > 0 {
		q.pipe.Queue(`SELECT subject, buckets FROM windows WHERE subject = ANY($1)`, slices.Sorted(maps.Keys(w.windows))).Query(func(rows pgx.Rows) error {
			var subject, buckets string
			_, err := pgx.ForEachRow(rows, []any{&subject, &buckets}, func() error {
				series, err := limits.ParseSeries(limits.CallsWidth, buckets)
				s.windows[subject] = &series
				return err
			})
			return err
		})
	}
	return s, q.flush(ctx)
}

func (q *postgres) loadMoney(s *State, w *wants) {
	if len(w.accounts) > 0 {
		q.pipe.Queue(`SELECT account_id, sandbox, available_mc, reserved_mc, seq, head FROM balances WHERE account_id = ANY($1) ORDER BY account_id FOR UPDATE`,
			slices.Sorted(maps.Keys(w.accounts))).Query(func(rows pgx.Rows) error {
			var b Balance
			var sandbox int64
			_, err := pgx.ForEachRow(rows, []any{&b.AccountID, &sandbox, &b.AvailableMC, &b.ReservedMC, &b.Seq, &b.Head}, func() error {
				row := b
				row.Sandbox = sandbox != 0
				s.balances[b.AccountID] = &row
				return nil
			})
			return err
		})
	}
	if len(w.connections) == 0 {
		return
	}
	q.pipe.Queue(`SELECT id, app_id, account_id, allocation_mc, consumed_mc, held_mc, velocity_limit_mc, status, spent, event_seq, created_us, revoked_us
		FROM connections WHERE id = ANY($1) ORDER BY id FOR UPDATE`, slices.Sorted(maps.Keys(w.connections))).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			c, spent := &Connection{}, ""
			if err := rows.Scan(&c.ID, &c.AppID, &c.AccountID, &c.AllocationMC, &c.ConsumedMC, &c.HeldMC, &c.VelocityLimitMC, &c.Status, &spent, &c.EventSeq, &c.CreatedUS, &c.RevokedUS); err != nil {
				return err
			}
			var err error
			if c.Spent, err = limits.ParseSeries(limits.SpendWidth, spent); err != nil {
				return err
			}
			s.connections[c.ID] = c
		}
		return rows.Err()
	})
}

func (q *postgres) loadKeys(s *State, w *wants) {
	if len(w.keys) == 0 {
		return
	}
	ids, keys, hashes := make([]string, 0, len(w.keys)), make([]string, 0, len(w.keys)), make([]int64, 0, len(w.keys))
	for k := range w.keys {
		ids, keys, hashes = append(ids, k.ConnectionID), append(keys, k.Key), append(hashes, k.hash())
	}
	q.pipe.Queue(`SELECT h.connection_id, h.key, request_id, fingerprint, state, attempt, node_id, claim, amount_mc, created_us, model, terms, app_id, account_id, COALESCE(feature, ''), COALESCE(bucket, '')
		FROM unnest($1::text[], $2::text[]) v(connection_id, key) JOIN holds h ON h.connection_id = v.connection_id AND h.key = v.key`, ids, keys).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			h := &HoldRow{}
			if err := rows.Scan(&h.ConnectionID, &h.Key, &h.RequestID, &h.Fingerprint, &h.State, &h.Attempt, &h.NodeID, &h.Claim, &h.HoldMC, &h.CreatedUS,
				&h.Model, &h.Terms, &h.AppID, &h.AccountID, &h.Feature, &h.Bucket); err != nil {
				return err
			}
			s.holds[h.key()] = h
		}
		return rows.Err()
	})
	q.pipe.Queue(`SELECT l.connection_id, l.key, l.id, l.fingerprint
		FROM unnest($1::text[], $2::text[], $3::bigint[]) v(connection_id, key, hash) JOIN ledger l ON l.key_hash = v.hash AND l.connection_id = v.connection_id AND l.key = v.key`, ids, keys, hashes).Query(func(rows pgx.Rows) error {
		var k Key
		var d doneRow
		_, err := pgx.ForEachRow(rows, []any{&k.ConnectionID, &k.Key, &d.id, &d.fingerprint}, func() error {
			s.done[k] = d
			return nil
		})
		return err
	})
}

func (q *postgres) save(ctx context.Context, s *State) error {
	q.hard = s.hard
	q.saveMoney(s)
	q.saveHolds(s)
	q.saveRows(s)
	q.saveCounts(s)
	return nil // sent with COMMIT, or by the caller's flush
}

func (q *postgres) saveMoney(s *State) {
	var b, c rows
	for _, id := range slices.Sorted(maps.Keys(s.dirtyBalances)) { // its row is there since the first top-up
		r := s.balances[id]
		b.add(text(id), integer(r.AvailableMC), integer(r.ReservedMC), integer(r.Seq), text(r.Head))
	}
	b.queue(q.pipe, updateBalances)
	for _, id := range slices.Sorted(maps.Keys(s.dirtyConnections)) {
		r := s.connections[id]
		if s.deep[id] { // it may be new
			q.pipe.Queue(`INSERT INTO connections (id, app_id, account_id, allocation_mc, consumed_mc, held_mc, status, spent, event_seq, created_us)
				VALUES ($1, $2, $3, 0, 0, 0, 'active', '', 0, $4) ON CONFLICT (id) DO NOTHING`, id, r.AppID, r.AccountID, r.CreatedUS)
		}
		c.add(text(id), integer(r.AllocationMC), integer(r.ConsumedMC), integer(r.HeldMC), pointer((*int64)(r.VelocityLimitMC)),
			text(string(r.Status)), text(r.Spent.String()), integer(r.EventSeq), pointer(r.RevokedUS))
	}
	c.queue(q.pipe, updateConnections)
}

func (q *postgres) saveHolds(s *State) {
	var gone, goneKeys []string
	var t rows
	for k := range s.dirtyHolds {
		h := s.holds[k]
		if h == nil {
			gone, goneKeys = append(gone, k.ConnectionID), append(goneKeys, k.Key)
			continue
		}
		t.add(text(h.ConnectionID), text(h.Key), text(h.RequestID), text(h.Fingerprint), text(string(h.State)), integer(h.Attempt), text(h.NodeID), text(h.Claim),
			integer(h.HoldMC), text(h.AccountID), text(h.AppID), optional(h.Feature), optional(h.Bucket), text(h.Model), text(h.Terms), integer(h.CreatedUS))
	}
	if len(gone) > 0 {
		q.pipe.Queue(`DELETE FROM holds h USING unnest($1::text[], $2::text[]) v(connection_id, key) WHERE h.connection_id = v.connection_id AND h.key = v.key`, gone, goneKeys)
	}
	t.queue(q.pipe, insertHolds)
}

func (q *postgres) saveRows(s *State) {
	var t rows
	for i := range s.entries {
		columns := s.entries[i].columns()
		t.add(append(columns[:], text(s.entries[i].Hash), s.entries[i].keyHash())...)
	}
	t.queue(q.pipe, insertLedger)
	if len(s.answers) > 0 {
		var ids, encodings []string
		var bodies [][]byte
		var created []int64
		for _, a := range s.answers {
			ids, encodings = append(ids, a.requestID), append(encodings, a.Encoding)
			bodies, created = append(bodies, a.Body), append(created, a.createdUS)
		}
		q.pipe.Queue(`INSERT INTO answers (request_id, encoding, body, created_us) SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::bigint[])`, ids, encodings, bodies, created)
	}
	for _, r := range s.refusals {
		q.pipe.Queue(`INSERT INTO refusals (request_id, connection_id, app_id, status, code, message, details, feature, model, created_us) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
			ON CONFLICT (request_id) DO NOTHING`,
			r.RequestID, r.ConnectionID, r.AppID, int64(r.Status), r.Code, r.Message, r.Details, nullable(r.Feature), nullable(r.Model), r.CreatedUS)
	}
	for _, e := range s.events {
		q.pipe.Queue(`INSERT INTO events (id, type, app_id, connection_id, seq, data, created_us) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
			e.ID, e.Type, e.AppID, nullable(e.ConnectionID), e.Seq, e.Data, e.CreatedUS)
	}
}

func (q *postgres) saveCounts(s *State) {
	var t rows
	for _, k := range slices.SortedFunc(maps.Keys(s.rollups), func(a, b rollupKey) int {
		return cmp.Or(cmp.Compare(a.connectionID, b.connectionID), cmp.Compare(a.day, b.day), cmp.Compare(a.feature, b.feature), cmp.Compare(a.model, b.model))
	}) {
		r := s.rollups[k]
		t.add(text(k.connectionID), text(k.day), text(k.feature), text(k.model), text(r.appID), text(r.accountID), integer(r.calls), integer(r.input), integer(r.output),
			integer(r.ProviderCostMC), integer(r.SvcFeeMC), integer(r.DevMarginMC), integer(r.UserChargeMC))
	}
	t.queue(q.pipe, insertRollups)
	for _, subject := range slices.Sorted(maps.Keys(s.dirtyWindows)) {
		q.pipe.Queue(`INSERT INTO windows (subject, buckets) VALUES ($1, $2) ON CONFLICT (subject) DO UPDATE SET buckets = excluded.buckets`, subject, s.windows[subject].String())
	}
}

// The tables of the hot path.
var (
	updateBalances    = newUpdate(`UPDATE balances t SET available_mc = c2, reserved_mc = c3, seq = c4, head = c5`, "tiiit", `WHERE t.account_id = c1`)
	updateConnections = newUpdate(`UPDATE connections t SET allocation_mc = c2, consumed_mc = c3, held_mc = c4, velocity_limit_mc = c5, status = c6, spent = c7, event_seq = c8, revoked_us = c9`,
		"tiiijttij", `WHERE t.id = c1`)
	insertHolds = newInsert(`INSERT INTO holds (connection_id, key, request_id, fingerprint, state, attempt, node_id, claim, amount_mc, account_id, app_id, feature, bucket, model, terms, created_us)`, "tttttittittnntti",
		`ON CONFLICT (connection_id, key) DO UPDATE SET state = excluded.state, attempt = excluded.attempt, node_id = excluded.node_id, claim = excluded.claim,
		amount_mc = excluded.amount_mc, feature = excluded.feature, bucket = excluded.bucket, model = excluded.model, terms = excluded.terms, created_us = excluded.created_us`)
	insertLedger  = newInsert(`INSERT INTO ledger (`+entryColumns+`, hash, key_hash)`, "ttittnnnnnnnnnnnnn"+"jjjjjjj"+"iiiii"+"tj", "")
	insertRollups = newInsert(`INSERT INTO rollups AS r (connection_id, day, feature, model, app_id, account_id, calls, input_tokens, output_tokens, provider_cost_mc, svc_fee_mc, dev_margin_mc, user_charge_mc)`,
		"ttttttiiiiiii", `ON CONFLICT (connection_id, day, feature, model) DO UPDATE SET calls = r.calls + excluded.calls, input_tokens = r.input_tokens + excluded.input_tokens,
		output_tokens = r.output_tokens + excluded.output_tokens, provider_cost_mc = r.provider_cost_mc + excluded.provider_cost_mc, svc_fee_mc = r.svc_fee_mc + excluded.svc_fee_mc,
		dev_margin_mc = r.dev_margin_mc + excluded.dev_margin_mc, user_charge_mc = r.user_charge_mc + excluded.user_charge_mc`)
)

// A bulk is a statement that takes its rows by column, from unnest. Its text is
// made once.
type bulk struct {
	kinds string // t text, n text or null, i bigint, j bigint or null
	text  string
}

func newInsert(into, kinds, conflict string) *bulk {
	from, values := unnest(kinds)
	return &bulk{kinds, into + " SELECT " + strings.Join(values, ", ") + from + conflict}
}

// newUpdate sets columns to c2, c3 … where c1 is the key.
func newUpdate(set, kinds, where string) *bulk {
	from, _ := unnest(kinds)
	return &bulk{kinds, set + from + where}
}

// unnest writes the FROM that makes rows of columns c1, c2 …, and their values.
func unnest(kinds string) (from string, values []string) {
	var arrays, names []string
	for i, kind := range kinds {
		name := fmt.Sprintf("c%d", i+1)
		names = append(names, name)
		switch kind {
		case 'n':
			name = "NULLIF(" + name + ", '')" // '' stands for null: an array of pointers is slow to send
			fallthrough
		case 't':
			arrays = append(arrays, fmt.Sprintf("$%d::text[]", i+1))
		default:
			arrays = append(arrays, fmt.Sprintf("$%d::bigint[]", i+1))
		}
		values = append(values, name)
	}
	return " FROM unnest(" + strings.Join(arrays, ", ") + ") v(" + strings.Join(names, ", ") + ") ", values
}

// rows of a bulk, each with a column for every kind.
type rows [][]column

func (r *rows) add(columns ...column) { *r = append(*r, columns) }

// queue sends the rows, if there are any.
func (r rows) queue(pipe *pgx.Batch, in *bulk) {
	if len(r) == 0 {
		return
	}
	args := make([]any, len(in.kinds))
	for i, kind := range in.kinds {
		switch kind {
		case 't', 'n':
			args[i] = r.texts(i)
		case 'i':
			args[i] = r.integers(i)
		default:
			args[i] = r.pointers(i)
		}
	}
	pipe.Queue(in.text, args...)
}

func (r rows) texts(i int) []string {
	out := make([]string, len(r))
	for n := range r {
		out[n] = r[n][i].text
	}
	return out
}

func (r rows) integers(i int) []int64 {
	out := make([]int64, len(r))
	for n := range r {
		out[n] = r[n][i].n
	}
	return out
}

func (r rows) pointers(i int) []*int64 {
	out := make([]*int64, len(r))
	for n := range r {
		if r[n][i].kind == 'i' {
			out[n] = &r[n][i].n
		}
	}
	return out
}
