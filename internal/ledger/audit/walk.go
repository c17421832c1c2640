package audit

import (
	"context"
	"errors"
	"math"
)

// ledgerColumns are the columns of the ledger in the table's order, in which the
// hash covers them. hash is the last.
const ledgerColumns = `id, account_id, seq, type, status, reversal_of, reason, connection_id, app_id, feature,
	feature_label,
	model,
	key, fingerprint, paid_by, settlement, terms, usage, hold_amount_mc, provider_cost_mc, svc_fee_mc, dev_margin_mc,
	user_charge_mc, remaining_mc, amount_mc, available_delta_mc, reserved_delta_mc, allocation_delta_mc,
	consumed_delta_mc, created_us, hash`

// ledgerColumnCount is the number of ledgerColumns.
const ledgerColumnCount = 31

// pageRows is the number of rows that one statement reads: enough to be fast, few enough
// for memory, and few enough for PostgreSQL to follow the index.
const pageRows = 500

// A ledgerRow is one row of the ledger.
type ledgerRow struct {
	values [ledgerColumnCount]any // as they are stored, for the hash
	// Which the hash does not cover:
	keyHash, finish any

	id, account, kind, status, reversalOf, reason   string
	connection, app, model, key, fingerprint        string
	paidBy, settlement, terms, usage, hash          string
	finishReason                                    string
	seq, hold, cost, fee, margin, charge, remaining int64
	amount, created                                 int64
	available, reserved, allocation, consumed       int64 // the row's deltas
}

// decodeColumns sets the fields from values. A value of a wrong type becomes "" or 0; the
// row's hash reveals it.
func (r *ledgerRow) decodeColumns() {
	for i, into := range [ledgerColumnCount]any{
		&r.id, &r.account, &r.seq, &r.kind, &r.status, &r.reversalOf, &r.reason, &r.connection, &r.app, nil, nil,
		&r.model,
		&r.key, &r.fingerprint, &r.paidBy, &r.settlement, &r.terms, &r.usage, &r.hold, &r.cost, &r.fee, &r.margin,
		&r.charge, &r.remaining, &r.amount, &r.available, &r.reserved, &r.allocation, &r.consumed, &r.created, &r.hash,
	} {
		switch into := into.(type) {
		case *string:
			*into, _ = r.values[i].(string)
		case *int64:
			*into, _ = r.values[i].(int64)
		}
	}
	r.finishReason, _ = r.finish.(string)
}

// accountTotals sums the rows of one account up to the present one.
type accountTotals struct {
	seq                 int64
	head                string
	available, reserved int64
	disputed            bool // a payment was reversed, so available may be negative
	connections         map[string]*connectionTotals
	pendingTopups       map[string]bool // top-ups that may still fail: what reverses one moves nothing
	reversedTopups      map[string]bool // reversals of top-ups: what reverses one gives back
	goodwill            map[string]bool // rows of goodwill credits: what reverses one must be available

	// About the present row:
	connection *connectionTotals // its connection before the row; nil if it has none yet
	billing    *billing
	billingErr error // why billing is nil
}

func newAccountTotals() *accountTotals {
	return &accountTotals{connections: map[string]*connectionTotals{}}
}

// connectionTotals sums the rows of one connection up to the present one.
type connectionTotals struct {
	app                  string
	allocation, consumed int64
	revoked              bool
}

// checkLedgerRows reads the ledger once, account by account, and applies every rule to
// every row. It keeps no more than a page and the connections of one account in memory.
func (a *verification) checkLedgerRows(ctx context.Context) error {
	var rules []*checkResult
	for _, v := range a.results {
		if v.findViolation != nil {
			rules = append(rules, v)
		}
	}
	if a.since != nil {
		return a.checkNewRows(ctx, rules)
	}
	var total int64
	if a.meter.tell != nil {
		if err := a.QueryRowContext(ctx, `SELECT COUNT(*) FROM ledger`).Scan(&total); err != nil {
			return err
		}
	}
	account, seq := "", int64(math.MinInt64)
	f := newAccountTotals()
	for {
		n, err := a.readPage(ctx, `(account_id, seq) > ($1, $2)`, account, seq, func(r *ledgerRow) {
			if r.account != account || a.ledgerRows == 0 {
				f = newAccountTotals()
			}
			account, seq = r.account, r.seq
			f.checkRow(r, rules)
			a.noteLate(r.id, r.created)
			a.ledgerRows++
		})
		a.meter.readRows(a.ledgerRows, total)
		if err != nil || n < pageRows {
			return err
		}
	}
}

// readPage calls f with the rows that follow seq of account, as the condition means that, at most pageRows, and
// returns their number.
func (a *verification) readPage(ctx context.Context, condition, account string, seq int64, f func(*ledgerRow),
) (n int, err error) {
	rows, err := a.QueryContext(ctx,
		`SELECT `+ledgerColumns+`, key_hash, finish_reason FROM ledger WHERE `+condition+`
			ORDER BY account_id, seq LIMIT $3`,
		account, seq, pageRows)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var r ledgerRow
	var into [ledgerColumnCount + 2]any
	for i := range r.values {
		into[i] = &r.values[i]
	}
	into[ledgerColumnCount], into[ledgerColumnCount+1] = &r.keyHash, &r.finish
	for ; rows.Next(); n++ {
		if err := rows.Scan(into[:]...); err != nil {
			return n, err
		}
		r.decodeColumns()
		f(&r)
	}
	return n, rows.Err()
}

// checkRow applies the rules to r and then adds r to the totals. The rules see the
// totals before the row.
func (f *accountTotals) checkRow(r *ledgerRow, rules []*checkResult) {
	f.connection = f.connections[r.connection]
	f.billing, f.billingErr = nil, nil
	if isBilled(r) {
		f.billing, f.billingErr = parseBilling(r.terms, r.usage)
	}
	for _, v := range rules {
		if !v.appliesTo(r) {
			continue
		}
		v.checked++
		if wrong := v.findViolation(f, r); wrong != "" {
			v.addFinding("entry=%s account=%s seq=%d type=%s: %s", r.id, r.account, r.seq, r.kind, wrong)
		}
	}
	f.addRow(r)
}

// addRow adds r to the totals.
func (f *accountTotals) addRow(r *ledgerRow) {
	f.seq, f.head = r.seq, r.hash
	f.available += r.available
	f.reserved += r.reserved
	f.disputed = f.disputed || f.reversesPayment(r)
	f.noteTopUp(r)
	if r.connection == "" {
		return
	}
	if f.connection == nil {
		f.connection = &connectionTotals{app: r.app}
		f.connections[r.connection] = f.connection
	}
	f.connection.allocation += r.allocation
	f.connection.consumed += r.consumed
	f.connection.revoked = f.connection.revoked || r.kind == "revoke"
}

// noteTopUp notes a top-up whose reversal moves money in its own way.
func (f *accountTotals) noteTopUp(r *ledgerRow) {
	if isGoodwill(r) {
		if f.goodwill == nil {
			f.goodwill = map[string]bool{}
		}
		f.goodwill[r.id] = true
	}
	if r.kind == "topup" && r.status == "reversed" {
		if f.reversedTopups == nil {
			f.reversedTopups = map[string]bool{}
		}
		f.reversedTopups[r.id] = true
	}
	if r.kind == "topup" && r.status == "pending" {
		if f.pendingTopups == nil {
			f.pendingTopups = map[string]bool{}
		}
		f.pendingTopups[r.id] = true
	}
}
