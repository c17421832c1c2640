package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// postgres loads and saves a batch in one round trip each: the statements are
// pipelined, and take their rows from arrays. BEGIN and COMMIT ride along.
type postgres struct {
	conn     *pgx.Conn
	types    rowTypes
	pipeline *pgx.Batch // what waits for the next round trip

	holdPlaces map[rules.Key]string // where in the table the holds are that load found
	arrays     []*rows              // kept from batch to batch; used of them are in use
	usedArrays int
	parts      []string // of the statement that saves
	args       []any
	ownsTx     bool // the transaction is the writer's

	knownCounters map[string]bool // that have their row: no row of windows is ever deleted
	newCounters   []string        // that have it once this transaction is committed
}

func (q *postgres) bind(ctx context.Context, dc any) error {
	c, ok := dc.(*stdlib.Conn)
	if !ok {
		return fmt.Errorf("ledger: %T is not a PostgreSQL connection", dc)
	}
	*q = postgres{
		conn:          c.Conn(),
		pipeline:      &pgx.Batch{},
		holdPlaces:    map[rules.Key]string{},
		arrays:        q.arrays,
		knownCounters: q.knownCounters,
	}
	known := q.conn.PgConn().CustomData()
	if q.types, ok = known["ledger"].(rowTypes); ok {
		return nil
	}
	// Every statement here finds its rows by key. A plan that was made, and is
	// kept, while a table was still empty would go on reading the whole of it. And
	// one generic plan is right for every batch: planning each again cost as much
	// as running it.
	_, err := q.conn.Exec(ctx,
		`SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off;
			SET enable_mergejoin = off; SET enable_material = off; SET jit = off;
			SET plan_cache_mode = force_generic_plan`)
	if err != nil {
		return err
	}
	if q.types, err = findRowTypes(ctx, q.conn); err == nil {
		known["ledger"] = q.types
	}
	return err
}

// bindExternalTx is bind: nothing is cached between batches.
func (q *postgres) bindExternalTx(ctx context.Context, dc any) error { return q.bind(ctx, dc) }

func (q *postgres) close(any) error { return nil }

// flushDelayed has nothing to do: every hold is saved with its batch, for other nodes
// to see.
func (q *postgres) flushDelayed(context.Context, time.Time) (wrote, more bool, err error) { return }

func (q *postgres) begin(context.Context, bool) error {
	q.ownsTx = true
	q.pipeline.Queue(`BEGIN`)
	return nil
}

func (q *postgres) commit(ctx context.Context) error {
	q.pipeline.Queue(`COMMIT`)
	if err := q.flush(ctx); err != nil {
		return err
	}
	if q.knownCounters == nil || len(q.knownCounters) > maxCachedRows {
		q.knownCounters = map[string]bool{}
	}
	for _, subject := range q.newCounters {
		q.knownCounters[subject] = true
	}
	return nil
}

func (q *postgres) rollback(ctx context.Context) {
	q.pipeline = &pgx.Batch{}
	_, _ = q.conn.Exec(ctx, `ROLLBACK`) // a broken connection has rolled back already
}

func (q *postgres) flush(ctx context.Context) error {
	b := q.pipeline
	q.pipeline = &pgx.Batch{}
	return q.conn.SendBatch(ctx, b).Close()
}

// load locks balances, then connections, each in key order, so that two nodes
// never wait for each other in a circle. A connection's lock guards its holds,
// keys and totals.
func (q *postgres) load(ctx context.Context, w *rules.RowKeys) (*rules.State, error) {
	s := rules.NewState()
	q.loadMoney(s, w)
	q.loadKeys(s, w)
	for subject := range w.Counters {
		s.Counters[subject] = &rules.Counter{Spent: limits.Series{Width: w.Counters[subject]}}
	}
	if len(w.Counters) > 0 {
		// Connections share counters, so counters are locked separately, always last.
		subjects := slices.Sorted(maps.Keys(w.Counters))
		for _, subject := range subjects {
			if !q.knownCounters[subject] {
				q.newCounters = append(q.newCounters, subject)
			}
		}
		if len(q.newCounters) > 0 {
			q.pipeline.Queue(`INSERT INTO counters (subject, buckets, held, limit_reported) SELECT subject, '', 0, 0
				FROM unnest($1::text[]) subject ORDER BY subject ON CONFLICT (subject) DO NOTHING`, q.newCounters)
		}
		q.pipeline.Queue(`SELECT subject, buckets, held, limit_reported FROM counters WHERE subject = ANY($1)
			ORDER BY subject FOR UPDATE`, subjects).Query(func(rows pgx.Rows) error {
			var subject, buckets string
			var held, reported int64
			_, err := pgx.ForEachRow(rows, []any{&subject, &buckets, &held, &reported}, func() (err error) {
				c := &rules.Counter{HeldMC: money.MC(held), LimitReported: reported != 0}
				c.Spent, err = limits.ParseSeries(w.Counters[subject], buckets)
				s.Counters[subject] = c
				return err
			})
			return err
		})
	}
	return s, q.flush(ctx)
}

func (q *postgres) loadMoney(s *rules.State, w *rules.RowKeys) {
	if len(w.Accounts) > 0 {
		q.pipeline.Queue(`SELECT account_id, sandbox, available_mc, reserved_mc, seq, head FROM balances
			WHERE account_id = ANY($1) ORDER BY account_id FOR UPDATE`,
			slices.Sorted(maps.Keys(w.Accounts))).Query(func(rows pgx.Rows) error {
			var b rules.Balance
			var sandbox int64
			_, err := pgx.ForEachRow(rows,
				[]any{&b.AccountID, &sandbox, &b.AvailableMC, &b.ReservedMC, &b.Seq, &b.Head}, func() error {
					row := b
					row.Sandbox = sandbox != 0
					s.Balances[b.AccountID] = &row
					return nil
				})
			return err
		})
	}
	if len(w.Connections) == 0 {
		return
	}
	q.pipeline.Queue(`SELECT id, app_id, account_id, allocation_mc, consumed_mc, held_mc, velocity_limit_mc, status,
		spent, event_seq, created_us, revoked_us, faster_spend, warned_us, forgiven, frozen_by, frozen_reason,
		delegated_mc, child_held_mc, limits_us, approved_us FROM connections WHERE id = ANY($1) ORDER BY id FOR UPDATE`,
		slices.Sorted(maps.Keys(w.Connections))).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			c, spent, forgiven := &rules.Connection{}, "", ""
			if err := rows.Scan(&c.ID, &c.AppID, &c.AccountID, &c.AllocationMC, &c.ConsumedMC, &c.HeldMC,
				&c.VelocityLimitMC, &c.Status, &spent, &c.EventSeq, &c.CreatedUS, &c.RevokedUS, &c.FasterSpend,
				&c.WarnedUS, &forgiven, &c.FrozenBy, &c.FrozenReason, &c.DelegatedMC, &c.ChildHeldMC, &c.LimitsUS,
				&c.ApprovedUS); err != nil {
				return err
			}
			var err error
			if c.Spent, err = limits.ParseSeries(limits.SpendBucketWidth, spent); err != nil {
				return err
			}
			if c.Forgiven, err = limits.ParseSeries(limits.SpendBucketWidth, forgiven); err != nil {
				return err
			}
			s.Connections[c.ID] = c
		}
		return rows.Err()
	})
}

// findKeys looks for each key by itself (LATERAL … LIMIT 1). As a plain join, a plan
// made while holds was empty would read its whole index for every batch.
const findKeys = `SELECT v.n, COALESCE(h.place::text, ''), COALESCE(h.request_id, l.id, ''), COALESCE(h.fingerprint,
	l.fingerprint, ''), COALESCE(h.state, 'done'), COALESCE(h.attempt, 0),
	COALESCE(h.node_id, ''), COALESCE(h.claim, ''), COALESCE(h.amount_mc, 0), COALESCE(h.paid_by, ''),
	COALESCE(h.reservations, '')
	FROM unnest($1::key_row[]) WITH ORDINALITY v(connection_id, key, hash, n)
	LEFT JOIN LATERAL (SELECT ctid AS place, request_id, fingerprint, state, attempt, node_id, claim, amount_mc,
	paid_by, reservations
		FROM holds WHERE connection_id = v.connection_id AND key = v.key LIMIT 1) h ON true
	LEFT JOIN LATERAL (SELECT id, fingerprint
		FROM ledger WHERE h.place IS NULL AND key_hash = v.hash AND connection_id = v.connection_id AND key = v.key
		LIMIT 1) l ON true
	WHERE h.place IS NOT NULL OR l.id IS NOT NULL`

// loadKeys finds what each key already did. A key with a hold has no row in the
// ledger yet, and is not looked for there. Of a hold it reads what the rules ask for.
func (q *postgres) loadKeys(s *rules.State, w *rules.RowKeys) {
	keys, list := q.newRows(keyRows), make([]rules.Key, 0, len(w.Keys))
	for k := range w.Keys {
		keys.add(rules.TextColumn(k.ConnectionID), rules.TextColumn(k.Key), rules.Integer(k.IndexHash()))
		list = append(list, k)
	}
	if len(list) == 0 {
		return
	}
	q.pipeline.Queue(findKeys, keys.array()).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var n int64
			var place, counts string
			h := &rules.HoldRow{}
			if err := rows.Scan(&n, &place, &h.RequestID, &h.Fingerprint, &h.State, &h.Attempt, &h.NodeID, &h.Claim,
				&h.HoldMC, &h.PaidBy, &counts); err != nil {
				return err
			}
			k := list[n-1]
			if h.State == "done" {
				s.Billed[k] = rules.BilledKey{EntryID: h.RequestID, Fingerprint: h.Fingerprint}
				continue
			}
			var err error
			if h.Reservations, err = rules.ParseReservations(counts); err != nil {
				return err
			}
			h.ConnectionID, h.Key = k.ConnectionID, k.Key
			s.Holds[k], q.holdPlaces[k] = h, place
		}
		return rows.Err()
	})
}

// save collects everything that changed in one statement: each that is sent costs
// the server as much as some rows.
//
// A batch that only opened holds does not wait for the disk. They are visible to
// every node, and outlive any process; only a machine that loses its power
// loses the last of them, each with its whole transaction. A settlement that finds
// no hold is a late one, and flushes whatever came before it.
func (q *postgres) save(_ context.Context, s *rules.State) error {
	q.saveMoney(s)
	q.saveHolds(s)
	q.saveAppended(s)
	q.saveTotalsAndCounters(s)
	last := " SELECT"
	if q.ownsTx && !s.Changes.MustSync {
		last = " SELECT set_config('synchronous_commit', 'off', true)" // until COMMIT
	}
	if len(q.parts) > 0 {
		q.pipeline.Queue("WITH "+strings.Join(q.parts, ", ")+last, q.args...)
		q.parts, q.args = nil, nil
	}
	return nil // sent with COMMIT, or by the caller's flush
}

func (q *postgres) saveMoney(s *rules.State) {
	balances, connections := q.newRows(balanceRows), q.newRows(connectionRows)
	for id := range s.Changes.Balances { // its row is there since the first top-up
		r := s.Balances[id]
		balances.add(rules.TextColumn(id), rules.Integer(r.AvailableMC), rules.Integer(r.ReservedMC),
			rules.Integer(r.Seq),
			rules.TextColumn(r.Head))
	}
	for id := range s.Changes.Connections {
		r := s.Connections[id]
		if s.Changes.Settings[id] { // it may be new
			q.pipeline.Queue(`INSERT INTO connections (id, app_id, account_id, allocation_mc, consumed_mc, held_mc,
				status, spent, event_seq, created_us)
				VALUES ($1, $2, $3, 0, 0, 0, 'active', '', 0, $4) ON CONFLICT (id) DO NOTHING`, id, r.AppID,
				r.AccountID, r.CreatedUS)
			// connection_row has no column for these, and they change seldom.
			q.pipeline.Queue(`UPDATE connections SET forgiven = $2, frozen_by = $3, frozen_reason = $4,
					limits_us = $5, approved_us = $6 WHERE id = $1`,
				id, r.Forgiven.String(), string(r.FrozenBy), r.FrozenReason, r.LimitsUS, r.ApprovedUS)
		}
		if s.Changes.Delegated[id] {
			q.pipeline.Queue(`UPDATE connections SET delegated_mc = $2, child_held_mc = $3 WHERE id = $1`, id,
				int64(r.DelegatedMC), int64(r.ChildHeldMC))
		}
		connections.add(rules.TextColumn(id), rules.Integer(r.AllocationMC), rules.Integer(r.ConsumedMC),
			rules.Integer(r.HeldMC), rules.OptionalInteger((*int64)(r.VelocityLimitMC)),
			rules.TextColumn(string(r.Status)), rules.TextColumn(r.Spent.String()), rules.Integer(r.EventSeq),
			rules.OptionalInteger(r.RevokedUS), rules.Integer(r.FasterSpend), rules.Integer(r.WarnedUS))
	}
	q.addRows(balances,
		`UPDATE balances t SET available_mc = v.available_mc, reserved_mc = v.reserved_mc, seq = v.seq, head = v.head
		FROM @ v WHERE t.account_id = v.account_id`)
	q.addRows(connections,
		`UPDATE connections t SET allocation_mc = v.allocation_mc, consumed_mc = v.consumed_mc, held_mc = v.held_mc,
			velocity_limit_mc = v.velocity_limit_mc,
		status = v.status, spent = v.spent, event_seq = v.event_seq, revoked_us = v.revoked_us, faster_spend =
			v.faster_spend,
		warned_us = v.warned_us FROM @ v WHERE t.id = v.id`)
}

// saveHolds knows from load which holds are there, and where: their connection is
// locked, so no other transaction has moved them since.
func (q *postgres) saveHolds(s *rules.State) {
	opened, again := q.newRows(holdRows), q.newRows(holdRows)
	var failed, pending, gone []string
	for k := range s.Changes.Holds {
		h, place := s.Holds[k], q.holdPlaces[k]
		switch {
		case h != nil && place == "":
			opened.add(holdRowColumns(h)...)
		case h != nil && h.State == rules.Open:
			again.add(holdRowColumns(h)...)
		case h != nil && h.State == rules.Pending:
			pending = append(pending, place)
		case h != nil:
			failed = append(failed, place)
		case place != "":
			gone = append(gone, place)
		}
	}
	q.addRows(opened, `INSERT INTO holds (connection_id, key, request_id, fingerprint, state, attempt, node_id,
		claim, amount_mc, account_id, app_id, feature, feature_label, model, terms, created_us, paid_by, reservations)
		SELECT * FROM @`)
	q.addRows(again, `UPDATE holds t SET state = v.state, attempt = v.attempt, node_id = v.node_id, claim = v.claim,
		amount_mc = v.amount_mc, feature = v.feature, feature_label = v.feature_label,
		model = v.model, terms = v.terms, created_us = v.created_us, paid_by = v.paid_by, reservations =
			v.reservations FROM @ v
		WHERE t.connection_id = v.connection_id AND t.key = v.key`)
	if len(failed) > 0 {
		q.addPart(`UPDATE holds SET state = 'failed' WHERE ctid = ANY(@::text[]::tid[])`, failed)
	}
	if len(pending) > 0 {
		q.addPart(`UPDATE holds SET state = 'pending' WHERE ctid = ANY(@::text[]::tid[])`, pending)
	}
	if len(gone) > 0 {
		q.addPart(`DELETE FROM holds WHERE ctid = ANY(@::text[]::tid[])`, gone)
	}
}

// holdRowColumns returns the values of h in the order of hold_row.
func holdRowColumns(h *rules.HoldRow) []rules.Column {
	return []rules.Column{
		rules.TextColumn(h.ConnectionID), rules.TextColumn(h.Key), rules.TextColumn(h.RequestID),
		rules.TextColumn(h.Fingerprint),
		rules.TextColumn(string(h.State)), rules.Integer(h.Attempt), rules.TextColumn(h.NodeID),
		rules.TextColumn(h.Claim),
		rules.Integer(h.HoldMC), rules.TextColumn(h.AccountID), rules.TextColumn(h.AppID),
		rules.OptionalText(h.Feature),
		rules.OptionalText(h.FeatureLabel), rules.TextColumn(h.Model), rules.TextColumn(h.Terms),
		rules.Integer(h.CreatedUS),
		rules.TextColumn(h.PaidBy), rules.TextColumn(h.Reservations.String()),
	}
}

func (q *postgres) saveAppended(s *rules.State) {
	entries, answers := q.newRows(ledgerRows), q.newRows(storedResponseRows)
	for i := range s.Changes.Entries {
		e := &s.Changes.Entries[i]
		columns, delivery := e.Columns(), e.Delivery.Columns()
		row := append(columns[:], rules.TextColumn(e.Hash), e.KeyHash())
		entries.add(append(row, delivery[:]...)...)
	}
	for _, a := range s.Changes.Responses {
		answers.add(rules.TextColumn(a.RequestID), rules.TextColumn(a.Encoding), rules.TextColumn(string(a.Body)),
			rules.Integer(a.CreatedUS))
	}
	q.addRows(entries, `INSERT INTO ledger (`+rules.EntryColumns+`, hash, key_hash, `+rules.DeliveryColumns+`)
		SELECT * FROM @`)
	q.addRows(answers, `INSERT INTO stored_responses (request_id, encoding, body, created_us) SELECT * FROM @`)
	for _, r := range s.Changes.Refusals {
		q.pipeline.Queue(`INSERT INTO refusals (request_id, connection_id, app_id, status, code, message, details,
			feature, model, created_us, duration_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
			ON CONFLICT (request_id) DO NOTHING`,
			r.RequestID, r.ConnectionID, r.AppID, int64(r.Status), r.Code, r.Message, r.Details, db.NullText(r.Feature),
			db.NullText(r.Model), r.CreatedUS, r.DurationMS)
	}
	for _, d := range s.Changes.Deferrals {
		delivery := d.Delivery.Columns()
		q.pipeline.Queue(`INSERT INTO deferrals (request_id, connection_id, key, provider, record, tries, since_us,
			next_us, `+rules.DeliveryColumns+`, delivered_tokens)
			VALUES ($1, $2, $3, $4, $5, 0, $6, $7, $8, $9, $10, $11)`,
			d.RequestID, d.ConnectionID, d.Key.Key, d.Provider, d.RecordID, d.SinceUS,
			d.SinceUS+firstPollDelay.Microseconds(),
			delivery[0].Value(), delivery[1].Value(), delivery[2].Value(), d.DeliveredTokens)
	}
	for _, requestID := range s.Changes.EndedDeferrals {
		q.pipeline.Queue(`DELETE FROM deferrals WHERE request_id = $1`, requestID)
	}
	for _, u := range s.Changes.Unbilled {
		q.pipeline.Queue(insertUnbilled, u.RequestID, u.Attempt, u.ConnectionID, u.AppID, u.AccountID, u.Model,
			int64(u.CostMC), u.CreatedUS)
	}
	for _, f := range s.Changes.EndedFreezes {
		q.pipeline.Queue(deleteFreezes, f.ConnectionID, string(f.Cause), f.Subject)
	}
	for _, f := range s.Changes.Freezes {
		q.pipeline.Queue(insertFreeze, f.ConnectionID, string(f.Cause), f.Subject, f.Actor, f.Reason, f.SinceUS)
	}
	for _, e := range s.Changes.Events {
		q.pipeline.Queue(`INSERT INTO events (id, type, app_id, connection_id, seq, data, created_us) VALUES ($1, $2,
			$3, $4, $5, $6, $7)`,
			e.ID, e.Type, e.AppID, db.NullText(e.ConnectionID), e.Seq, e.Data, e.CreatedUS)
	}
	for _, n := range s.Changes.Notices {
		q.pipeline.Queue(`INSERT INTO notices (id, kind, account_id, connection_id, app_id, data, created_us)
			VALUES ($1, $2, $3, $4, $5, $6, $7)`,
			n.ID, n.Kind, n.AccountID, n.ConnectionID, n.AppID, n.Data, n.CreatedUS)
	}
}

func (q *postgres) saveTotalsAndCounters(s *rules.State) {
	totals := q.newRows(dailyTotalRows)
	for k, r := range s.Changes.DailyTotals {
		totals.add(rules.TextColumn(k.ConnectionID), rules.TextColumn(k.Day), rules.TextColumn(k.FeatureLabel),
			rules.TextColumn(k.Model),
			rules.TextColumn(r.AppID), rules.TextColumn(r.AccountID), rules.Integer(r.Calls),
			rules.Integer(r.InputTokens), rules.Integer(r.CachedTokens), rules.Integer(r.OutputTokens),
			rules.Integer(r.ProviderCostMC), rules.Integer(r.SvcFeeMC), rules.Integer(r.DevMarginMC),
			rules.Integer(r.UserChargeMC), rules.Integer(r.CacheSavedMC))
	}
	q.addRows(totals, `INSERT INTO daily_totals AS r (connection_id, day, feature, model, app_id, account_id, calls,
		input_tokens, cached_tokens, output_tokens, provider_cost_mc, svc_fee_mc, dev_margin_mc, user_charge_mc,
		cache_saved_mc)
		SELECT * FROM @ ON CONFLICT (connection_id, day, feature, model) DO UPDATE
		SET calls = r.calls + excluded.calls, input_tokens = r.input_tokens + excluded.input_tokens,
		cached_tokens = r.cached_tokens + excluded.cached_tokens,
		output_tokens = r.output_tokens + excluded.output_tokens,
		provider_cost_mc = r.provider_cost_mc + excluded.provider_cost_mc,
		svc_fee_mc = r.svc_fee_mc + excluded.svc_fee_mc,
		dev_margin_mc = r.dev_margin_mc + excluded.dev_margin_mc,
		user_charge_mc = r.user_charge_mc + excluded.user_charge_mc,
		cache_saved_mc = r.cache_saved_mc + excluded.cache_saved_mc`)
	if len(s.Changes.Counters) > 0 {
		subjects := slices.Sorted(maps.Keys(s.Changes.Counters))
		var buckets []string
		var held, reported []int64
		for _, subject := range subjects {
			c := s.Counters[subject]
			buckets, held = append(buckets, c.Spent.String()), append(held, int64(c.HeldMC))
			reported = append(reported, db.BoolInt(c.LimitReported))
		}
		q.pipeline.Queue(`UPDATE counters t SET buckets = v.buckets, held = v.held, limit_reported = v.reported
			FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) v(subject, buckets, held, reported)
			WHERE t.subject = v.subject`, subjects, buckets, held, reported)
	}
}
