package audit

import (
	"context"
	"errors"
	"math"
)

// columns are those of the ledger in the table's order, the order in which the
// hash covers them; hash is the last.
const columns = `id, account_id, seq, type, status, reversal_of, reason, connection_id, app_id, feature, bucket, model,
	key, fingerprint, paid_by, settlement, terms, usage, hold_amount_mc, provider_cost_mc, svc_fee_mc, dev_margin_mc,
	user_charge_mc, remaining_mc, amount_mc, available_delta_mc, reserved_delta_mc, allocation_delta_mc, consumed_delta_mc, created_us, hash`

// width is the number of columns.
const width = 31

// page is how many rows one statement reads: enough to be fast, few enough to
// stand in memory, and on PostgreSQL a reason to follow the index.
const page = 2000

// row is one row of the journal.
type row struct {
	values [width]any // as they are stored, for the hash

	id, account, kind, status, reversalOf, reason   string
	connection, app, model, key, fingerprint        string
	paidBy, settlement, terms, usage, hash          string
	seq, hold, cost, fee, margin, charge, remaining int64
	amount, created                                 int64
	available, reserved, allocation, consumed       int64 // what the row moves
}

// read takes the columns apart. A value of a wrong kind reads as empty or 0; it
// is caught by its row's hash.
func (r *row) read() {
	for i, into := range [width]any{
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
}

// fold is what the rows so far of one account add up to.
type fold struct {
	seq                 int64
	head                string
	available, reserved int64
	disputed            bool // a top-up was reversed: available may be negative
	grants              map[string]*grant
	pending             map[string]bool // top-ups that may still fail: what reverses one moves nothing

	// Of the row that is looked at now:
	grant   *grant // its connection before the row; nil if it has none yet
	billing *billing
	unread  error // why billing is nil
}

// grant is what the rows so far of one connection add up to.
type grant struct {
	app                  string
	allocation, consumed int64
	revoked              bool
}

// walk reads the journal once, account by account, and applies every rule to
// every row. It never holds more than a page and the connections of one account.
func (a *audit) walk(ctx context.Context) error {
	var rules []*verdict
	for _, v := range a.verdicts {
		if v.broken != nil {
			rules = append(rules, v)
		}
	}
	var total, done int64
	if a.progress != nil {
		if err := a.QueryRowContext(ctx, `SELECT COUNT(*) FROM ledger`).Scan(&total); err != nil {
			return err
		}
	}
	account, seq := "", int64(math.MinInt64)
	f := &fold{grants: map[string]*grant{}}
	for {
		n, err := a.page(ctx, account, seq, func(r *row) {
			if r.account != account || done == 0 {
				f = &fold{grants: map[string]*grant{}}
			}
			account, seq = r.account, r.seq
			f.judge(r, rules)
			done++
		})
		if err != nil || n < page {
			return err
		}
		a.say("journal: %s of %s rows", thousands(done), thousands(total))
	}
}

// page calls f with the rows that follow seq of account, at most a page of them,
// and returns how many they were.
func (a *audit) page(ctx context.Context, account string, seq int64, f func(*row)) (n int, err error) {
	rows, err := a.QueryContext(ctx,
		`SELECT `+columns+` FROM ledger WHERE (account_id, seq) > ($1, $2) ORDER BY account_id, seq LIMIT $3`, account,
		seq, page)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var r row
	var into [width]any
	for i := range into {
		into[i] = &r.values[i]
	}
	for ; rows.Next(); n++ {
		if err := rows.Scan(into[:]...); err != nil {
			return n, err
		}
		r.read()
		f(&r)
	}
	return n, rows.Err()
}

// judge applies the rules to r and then adds it to the fold. The rules see the
// fold as it was before the row.
func (f *fold) judge(r *row, rules []*verdict) {
	f.grant = f.grants[r.connection]
	f.billing, f.unread = nil, nil
	if isBilled(r) {
		f.billing, f.unread = readBilling(r.terms, r.usage)
	}
	for _, v := range rules {
		if !v.of(r) {
			continue
		}
		v.checked++
		if wrong := v.broken(f, r); wrong != "" {
			v.fail("entry=%s account=%s seq=%d type=%s: %s", r.id, r.account, r.seq, r.kind, wrong)
		}
	}
	f.add(r)
}

// add folds r in.
func (f *fold) add(r *row) {
	f.seq, f.head = r.seq, r.hash
	f.available += r.available
	f.reserved += r.reserved
	f.disputed = f.disputed || takesBack(r)
	if r.kind == "topup" && r.status == "pending" {
		if f.pending == nil {
			f.pending = map[string]bool{}
		}
		f.pending[r.id] = true
	}
	if r.connection == "" {
		return
	}
	if f.grant == nil {
		f.grant = &grant{app: r.app}
		f.grants[r.connection] = f.grant
	}
	f.grant.allocation += r.allocation
	f.grant.consumed += r.consumed
	f.grant.revoked = f.grant.revoked || r.kind == "revoke"
}
