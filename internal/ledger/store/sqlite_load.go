package store

import (
	"context"
	"database/sql/driver"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// load takes the rows of a batch from the cache, or reads them from the file.
func (q *sqlite) load(_ context.Context, keys *rules.RowKeys) (*rules.State, error) {
	s := rules.NewState()
	for accountID := range keys.Accounts {
		if err := q.loadBalance(s, accountID); err != nil {
			return nil, err
		}
	}
	for connectionID := range keys.Connections {
		if err := q.loadConnection(s, connectionID); err != nil {
			return nil, err
		}
	}
	for k := range keys.Keys {
		if err := q.loadKey(s, k); err != nil {
			return nil, err
		}
	}
	for subject, width := range keys.Counters {
		if err := q.loadCounter(s, subject, width); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (q *sqlite) loadBalance(s *rules.State, accountID string) error {
	if b, ok := q.cache.balances[accountID]; ok {
		s.Balances[accountID] = &b
		return nil
	}
	return q.query(`SELECT sandbox, available_mc, reserved_mc, seq, head FROM balances WHERE account_id = ?`, 5,
		func(r []driver.Value) error {
			s.Balances[accountID] = &rules.Balance{
				AccountID:   accountID,
				Sandbox:     r[0].(int64) != 0,
				AvailableMC: money.MC(r[1].(int64)),
				ReservedMC:  money.MC(r[2].(int64)),
				Seq:         r[3].(int64),
				Head:        r[4].(string),
			}
			return nil
		}, accountID)
}

func (q *sqlite) loadConnection(s *rules.State, connectionID string) error {
	if c, ok := q.cache.connections[connectionID]; ok {
		s.Connections[connectionID] = &c
		return nil
	}
	return q.query(`SELECT app_id, account_id, allocation_mc, consumed_mc, held_mc, velocity_limit_mc, status, spent,
		event_seq, created_us, revoked_us, faster_spend, warned_us, forgiven, frozen_by, frozen_reason,
		delegated_mc, child_held_mc, limits_us, approved_us FROM connections WHERE id = ?`, 20,
		func(r []driver.Value) error {
			c, err := scanConnectionRow(connectionID, r)
			if err != nil {
				return err
			}
			c.AddUnsaved(q.unsavedMC)
			s.Connections[connectionID] = c
			return nil
		}, connectionID)
}

// loadKey finds what a key already did. A key with a hold has no row in the ledger yet,
// so at most one of the two parts of the query returns a row.
func (q *sqlite) loadKey(s *rules.State, k rules.Key) error {
	if h, ok := q.cache.holds[k]; ok {
		s.Holds[k] = &h
		return nil
	}
	hash := k.IndexHash()
	if q.usedKeys.neverUsed(hash) {
		return nil
	}
	return q.query(`SELECT request_id, fingerprint, state, attempt, node_id, claim, amount_mc, created_us, model, terms,
			app_id, account_id, COALESCE(feature, ''), COALESCE(feature_label, ''), paid_by, reservations
		FROM holds WHERE connection_id = ?1 AND key = ?2
		UNION ALL
		SELECT id, fingerprint, 'done', 0, '', '', 0, 0, '', '', '', '', '', '', '', ''
		FROM ledger WHERE key_hash = ?3 AND connection_id = ?1 AND key = ?2`, 16,
		func(r []driver.Value) (err error) {
			if r[2].(string) == "done" {
				s.Billed[k] = rules.BilledKey{EntryID: r[0].(string), Fingerprint: r[1].(string)}
			} else {
				s.Holds[k], err = scanHoldRow(k, r)
			}
			return err
		}, k.ConnectionID, k.Key, hash)
}

func (q *sqlite) loadCounter(s *rules.State, subject string, width time.Duration) error {
	if c, ok := q.cache.counters[subject]; ok {
		s.Counters[subject] = &c
		return nil
	}
	counter := &rules.Counter{Spent: limits.Series{Width: width}}
	err := q.query(`SELECT buckets, held, limit_reported FROM counters WHERE subject = ?`, 3,
		func(r []driver.Value) (err error) {
			counter.HeldMC, counter.LimitReported = money.MC(r[1].(int64)), r[2].(int64) != 0
			counter.Spent, err = limits.ParseSeries(width, r[0].(string))
			return err
		}, subject)
	if err != nil {
		return err
	}
	counter.HeldMC += q.unsavedMC[subject]
	s.Counters[subject] = counter
	return nil
}

// scanConnectionRow reads a row of the twenty columns that loadConnection selects.
func scanConnectionRow(id string, r []driver.Value) (*rules.Connection, error) {
	spent, err := limits.ParseSeries(limits.SpendBucketWidth, r[7].(string))
	if err != nil {
		return nil, err
	}
	forgiven, err := limits.ParseSeries(limits.SpendBucketWidth, r[13].(string))
	if err != nil {
		return nil, err
	}
	c := &rules.Connection{
		ID:           id,
		AppID:        r[0].(string),
		AccountID:    r[1].(string),
		AllocationMC: money.MC(r[2].(int64)),
		ConsumedMC:   money.MC(r[3].(int64)),
		HeldMC:       money.MC(r[4].(int64)),
		Status:       rules.ConnectionStatus(r[6].(string)),
		Spent:        spent,
		Forgiven:     forgiven,
		FrozenBy:     rules.FreezeCause(r[14].(string)),
		FrozenReason: r[15].(string),
		EventSeq:     r[8].(int64),
		CreatedUS:    r[9].(int64),
		FasterSpend:  r[11].(int64),
		WarnedUS:     r[12].(int64),
		DelegatedMC:  money.MC(r[16].(int64)),
		ChildHeldMC:  money.MC(r[17].(int64)),
		LimitsUS:     r[18].(int64),
		ApprovedUS:   r[19].(int64),
	}
	if v, ok := r[5].(int64); ok {
		c.VelocityLimitMC = (*money.MC)(&v)
	}
	if us, ok := r[10].(int64); ok {
		c.RevokedUS = &us
	}
	return c, nil
}

// scanHoldRow reads a row of the sixteen columns that loadKey selects.
func scanHoldRow(k rules.Key, r []driver.Value) (*rules.HoldRow, error) {
	counts, err := rules.ParseReservations(r[15].(string))
	return &rules.HoldRow{
		Call: rules.Call{
			ConnectionID: k.ConnectionID,
			Key:          k.Key,
			RequestID:    r[0].(string),
			Fingerprint:  r[1].(string),
			HoldMC:       money.MC(r[6].(int64)),
			Model:        r[8].(string),
			Terms:        r[9].(string),
			AppID:        r[10].(string),
			AccountID:    r[11].(string),
			Feature:      r[12].(string),
			FeatureLabel: r[13].(string),
			PaidBy:       r[14].(string),
			Reservations: counts,
		},
		State:     rules.HoldState(r[2].(string)),
		Attempt:   r[3].(int64),
		NodeID:    r[4].(string),
		Claim:     r[5].(string),
		CreatedUS: r[7].(int64),
	}, err
}
