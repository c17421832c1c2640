package store

import (
	"maps"
	"slices"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// saveAll writes what a batch has changed.
func (q *sqlite) saveAll(s *rules.State) error {
	for _, save := range []func(*rules.State) error{q.saveMoney, q.saveHolds, q.saveAppended, q.saveTotalsAndCounters} {
		if err := save(s); err != nil {
			return err
		}
	}
	return nil
}

func (q *sqlite) saveMoney(s *rules.State) error {
	for id := range s.Changes.Balances { // its row is there since the first top-up
		b := s.Balances[id]
		if err := q.exec(
			`UPDATE balances SET available_mc = ?, reserved_mc = ?, seq = ?, head = ? WHERE account_id = ?`,
			int64(b.AvailableMC), int64(b.ReservedMC), b.Seq, b.Head, id); err != nil {
			return err
		}
	}
	unsaved := q.unsavedAfter(s)
	for id := range s.Changes.Connections {
		c := s.Connections[id]
		held, childHeld := int64(c.HeldMC-unsaved[id]), int64(c.ChildHeldMC-unsaved[rules.ChildHeldOf(id)])
		var err error
		if s.Changes.Settings[id] { // indexes depend on what changes here
			err = q.updateOrInsert(true,
				`UPDATE connections SET allocation_mc = ?, consumed_mc = ?, held_mc = ?, velocity_limit_mc = ?,
					status = ?, spent = ?, event_seq = ?, revoked_us = ?, faster_spend = ?, warned_us = ?, forgiven = ?,
					frozen_by = ?, frozen_reason = ?, delegated_mc = ?, child_held_mc = ?, limits_us = ?,
					approved_us = ? WHERE id = ?`,
				[]any{int64(c.AllocationMC), int64(c.ConsumedMC), held, db.NullInt((*int64)(c.VelocityLimitMC)),
					string(c.Status), c.Spent.String(), c.EventSeq, db.NullInt(c.RevokedUS), c.FasterSpend, c.WarnedUS,
					c.Forgiven.String(), string(c.FrozenBy), c.FrozenReason, int64(c.DelegatedMC), childHeld,
					c.LimitsUS, c.ApprovedUS, id},
				`INSERT INTO connections (allocation_mc, consumed_mc, held_mc, velocity_limit_mc, status, spent,
					event_seq, revoked_us, faster_spend, warned_us, forgiven, frozen_by, frozen_reason, delegated_mc,
					child_held_mc, limits_us, approved_us, id, app_id, account_id, created_us)
				VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
				c.AppID, c.AccountID, c.CreatedUS)
		} else {
			err = q.exec(`UPDATE connections SET allocation_mc = ?, consumed_mc = ?, held_mc = ?, spent = ?,
					delegated_mc = ?, child_held_mc = ? WHERE id = ?`,
				int64(c.AllocationMC), int64(c.ConsumedMC), held, c.Spent.String(), int64(c.DelegatedMC), childHeld, id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// updateOrInsert updates a row that is likely to exist, and inserts it otherwise. It
// is cheaper than ON CONFLICT, which searches twice. The insert takes the arguments of
// the update and more.
func (q *sqlite) updateOrInsert(likely bool, update string, args []any, insert string, more ...any) error {
	if likely {
		n, err := q.execCount(update, args...)
		if err != nil || n > 0 {
			return err
		}
	}
	return q.exec(insert, append(args, more...)...)
}

// unsavedAfter is what the holds that will not be in the file when the batch is
// committed hold of each connection and counter.
func (q *sqlite) unsavedAfter(s *rules.State) map[string]money.MC {
	sums := make(map[string]money.MC, len(s.Changes.Connections))
	for id := range s.Changes.Connections {
		sums[id] = q.unsavedMC[id]
		if s.Connections[id].DelegatedMC > 0 || s.Changes.Delegated[id] {
			sums[rules.ChildHeldOf(id)] = q.unsavedMC[rules.ChildHeldOf(id)]
		}
	}
	for subject := range s.Changes.Counters {
		sums[subject] = q.unsavedMC[subject]
	}
	for k := range s.Changes.Holds {
		if h, ok := q.unsaved[k]; ok {
			h.EachHeldAmount(func(id string, amount money.MC) { sums[id] -= amount })
		}
		if h := s.Holds[k]; h != nil && h.State == rules.Open && !q.inExternalTx {
			h.EachHeldAmount(func(id string, amount money.MC) { sums[id] += amount })
		}
	}
	return sums
}

// saveHolds takes ended holds out of the file, if they were ever in it. New
// ones wait for the tick.
func (q *sqlite) saveHolds(s *rules.State) error {
	for k := range s.Changes.Holds {
		h := s.Holds[k]
		was, unsaved := q.unsaved[k]
		var err error
		switch {
		case h == nil && (!unsaved || was.Attempt > 1): // an earlier attempt has left its row
			err = q.exec(`DELETE FROM holds WHERE connection_id = ? AND key = ?`, k.ConnectionID, k.Key)
		case h != nil && (h.State != rules.Open || q.inExternalTx):
			err = q.insertHold(h)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (q *sqlite) insertHold(h *rules.HoldRow) error {
	return q.exec(`INSERT INTO holds (connection_id, key, request_id, fingerprint, state, attempt, node_id, claim,
		amount_mc, account_id, app_id, feature, feature_label, model, terms, created_us, paid_by, reservations)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (connection_id, key) DO UPDATE SET state = excluded.state, attempt = excluded.attempt,
		node_id = excluded.node_id, claim = excluded.claim,
		amount_mc = excluded.amount_mc, feature = excluded.feature, feature_label = excluded.feature_label, model =
			excluded.model,
		terms = excluded.terms, created_us = excluded.created_us,
		paid_by = excluded.paid_by, reservations = excluded.reservations`,
		h.ConnectionID, h.Key, h.RequestID, h.Fingerprint, string(h.State), h.Attempt, h.NodeID, h.Claim,
		int64(h.HoldMC),
		h.AccountID, h.AppID, db.NullText(h.Feature), db.NullText(h.FeatureLabel), h.Model, h.Terms, h.CreatedUS,
		h.PaidBy, h.Reservations.String())
}

func (q *sqlite) saveAppended(s *rules.State) error {
	var args [35]any
	for i := range s.Changes.Entries {
		e := &s.Changes.Entries[i]
		for j, c := range e.Columns() {
			args[j] = c.Value()
		}
		args[30], args[31] = e.Hash, e.KeyHash().Value()
		for j, c := range e.Delivery.Columns() {
			args[32+j] = c.Value()
		}
		if err := q.exec(`INSERT INTO ledger (`+rules.EntryColumns+`, hash, key_hash, `+rules.DeliveryColumns+`)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
				?, ?)`,
			args[:]...); err != nil {
			return err
		}
	}
	for _, a := range s.Changes.Responses {
		if err := q.exec(`INSERT INTO stored_responses (request_id, encoding, body, created_us) VALUES (?, ?, ?, ?)`,
			a.RequestID, a.Encoding, a.Body, a.CreatedUS); err != nil {
			return err
		}
	}
	for _, r := range s.Changes.Refusals {
		if err := q.exec(`INSERT INTO refusals (request_id, connection_id, app_id, status, code, message, details,
			feature, model, created_us, duration_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (request_id) DO NOTHING`,
			r.RequestID, r.ConnectionID, r.AppID, int64(r.Status), r.Code, r.Message, r.Details, db.NullText(r.Feature),
			db.NullText(r.Model), r.CreatedUS, r.DurationMS); err != nil {
			return err
		}
	}
	for _, d := range s.Changes.Deferrals {
		delivery := d.Delivery.Columns()
		if err := q.exec(
			`INSERT INTO deferrals (request_id, connection_id, key, provider, record, tries, since_us, next_us, `+
				rules.DeliveryColumns+`, delivered_tokens) VALUES (?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?)`,
			d.RequestID, d.ConnectionID, d.Key.Key, d.Provider, d.RecordID, d.SinceUS,
			d.SinceUS+firstPollDelay.Microseconds(),
			delivery[0].Value(), delivery[1].Value(), delivery[2].Value(), d.DeliveredTokens); err != nil {
			return err
		}
	}
	for _, requestID := range s.Changes.EndedDeferrals {
		if err := q.exec(`DELETE FROM deferrals WHERE request_id = ?`, requestID); err != nil {
			return err
		}
	}
	for _, u := range s.Changes.Unbilled {
		if err := q.exec(insertUnbilled, u.RequestID, u.Attempt, u.ConnectionID, u.AppID, u.AccountID, u.Model,
			int64(u.CostMC), u.CreatedUS); err != nil {
			return err
		}
	}
	for _, f := range s.Changes.EndedFreezes {
		if err := q.exec(deleteFreezes, f.ConnectionID, string(f.Cause), f.Subject); err != nil {
			return err
		}
	}
	for _, f := range s.Changes.Freezes {
		if err := q.exec(insertFreeze, f.ConnectionID, string(f.Cause), f.Subject, f.Actor, f.Reason,
			f.SinceUS); err != nil {
			return err
		}
	}
	for _, e := range s.Changes.Events {
		if err := q.exec(
			`INSERT INTO events (id, type, app_id, connection_id, seq, data, created_us) VALUES (?, ?, ?, ?, ?, ?, ?)`,
			e.ID, e.Type, e.AppID, db.NullText(e.ConnectionID), e.Seq, e.Data, e.CreatedUS); err != nil {
			return err
		}
	}
	for _, n := range s.Changes.Notices {
		if err := q.exec(
			`INSERT INTO notices (id, kind, account_id, connection_id, app_id, data, created_us) VALUES (?, ?, ?, ?,
				?, ?, ?)`,
			n.ID, n.Kind, n.AccountID, n.ConnectionID, n.AppID, n.Data, n.CreatedUS); err != nil {
			return err
		}
	}
	return nil
}

func (q *sqlite) saveTotalsAndCounters(s *rules.State) error {
	for k, r := range s.Changes.DailyTotals {
		if err := q.updateOrInsert(q.cache.totals[k],
			`UPDATE daily_totals SET calls = calls + ?, input_tokens = input_tokens + ?,
				cached_tokens = cached_tokens + ?, output_tokens = output_tokens + ?,
				provider_cost_mc = provider_cost_mc + ?, svc_fee_mc = svc_fee_mc + ?,
			dev_margin_mc = dev_margin_mc + ?, user_charge_mc = user_charge_mc + ?,
			cache_saved_mc = cache_saved_mc + ? WHERE connection_id = ?
			AND day = ? AND feature = ? AND model = ?`,
			[]any{r.Calls, r.InputTokens, r.CachedTokens, r.OutputTokens, int64(r.ProviderCostMC), int64(r.SvcFeeMC),
				int64(r.DevMarginMC), int64(r.UserChargeMC), int64(r.CacheSavedMC),
				k.ConnectionID, k.Day, k.FeatureLabel, k.Model},
			`INSERT INTO daily_totals AS r (calls, input_tokens, cached_tokens, output_tokens, provider_cost_mc,
				svc_fee_mc,
				dev_margin_mc, user_charge_mc, cache_saved_mc, connection_id, day, feature, model, app_id, account_id)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (connection_id, day, feature, model) DO UPDATE SET calls = r.calls + excluded.calls,
			input_tokens = r.input_tokens + excluded.input_tokens,
			cached_tokens = r.cached_tokens + excluded.cached_tokens,
			output_tokens = r.output_tokens + excluded.output_tokens,
			provider_cost_mc = r.provider_cost_mc + excluded.provider_cost_mc,
			svc_fee_mc = r.svc_fee_mc + excluded.svc_fee_mc,
			dev_margin_mc = r.dev_margin_mc + excluded.dev_margin_mc,
			user_charge_mc = r.user_charge_mc + excluded.user_charge_mc,
			cache_saved_mc = r.cache_saved_mc + excluded.cache_saved_mc`, r.AppID, r.AccountID); err != nil {
			return err
		}
	}
	if !q.inExternalTx {
		for subject, c := range q.unsavedCounters {
			if s.Counters[subject] == nil {
				s.Counters[subject] = &c
			}
			s.Changes.Counters[subject] = true
		}
	}
	if len(s.Changes.Counters) == 0 {
		return nil
	}
	unsaved := q.unsavedAfter(s)
	for _, subject := range slices.Sorted(maps.Keys(s.Changes.Counters)) {
		c := *s.Counters[subject]
		c.HeldMC -= unsaved[subject]
		if err := q.saveCounter(subject, c); err != nil {
			return err
		}
	}
	return nil
}

func (q *sqlite) saveCounter(subject string, c rules.Counter) error {
	return q.exec(`INSERT INTO counters (subject, buckets, held, limit_reported) VALUES (?, ?, ?, ?)
		ON CONFLICT (subject) DO UPDATE SET buckets = excluded.buckets, held = excluded.held, limit_reported =
			excluded.limit_reported`,
		subject, c.Spent.String(), int64(c.HeldMC), db.BoolInt(c.LimitReported))
}
