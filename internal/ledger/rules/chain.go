package rules

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strconv"

	"github.com/purserhq/purser/internal/base/money"
)

// chainHash returns the hash of row e that follows a row with hash head.
func chainHash(head string, e *Entry) string {
	columns := e.Columns()
	return ChainHash(head, columns[:])
}

// ChainHash returns the hash of a row that follows a row with hash head: SHA-256 over
// the earlier hash and the row's columns in the order of EntryColumns. A column is written
// with its length, so that different rows never have the same text.
func ChainHash(head string, columns []Column) string {
	b := make([]byte, 0, 1024)
	b = append(append(b, head...), '\n')
	for i, c := range columns {
		if i > 0 {
			b = append(b, '|')
		}
		b = c.append(b)
	}
	sum := sha256.Sum256(b)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// IndexHash is the 8-byte hash by which a key is found in the ledger. The index over keys
// of 70 random bytes would not stay in memory. Two keys may share a hash, so queries
// compare the key as well.
func (k Key) IndexHash() int64 {
	sum := sha256.Sum256([]byte(k.ConnectionID + "\n" + k.Key))
	return int64(binary.BigEndian.Uint64(sum[:8]) >> 1)
}

// KeyHash is the column key_hash: null on rows without a key.
func (e *Entry) KeyHash() Column {
	if e.Key == "" {
		return Column{}
	}
	return Integer(Key{e.ConnectionID, e.Key}.IndexHash())
}

// Column is one value of a row: text, an integer, or null.
type Column struct {
	Text    string
	Integer int64
	Kind    byte // 's', 'i', or 0 for null
}

// TextColumn returns a column of text.
func TextColumn(s string) Column { return Column{Text: s, Kind: 's'} }

// Integer returns a column of a number, such as micro-cents or Unix microseconds.
func Integer[T ~int64](n T) Column { return Column{Integer: int64(n), Kind: 'i'} }

// OptionalText is null for the empty text.
func OptionalText[T ~string](s T) Column {
	if s == "" {
		return Column{}
	}
	return Column{Text: string(s), Kind: 's'}
}

// OptionalInteger is null for nil.
func OptionalInteger(n *int64) Column {
	if n == nil {
		return Column{}
	}
	return Integer(*n)
}

// integerIf returns a column of n when the condition holds, else null.
func integerIf(when bool, n money.MC) Column {
	if when {
		return Integer(n)
	}
	return Column{}
}

func (c Column) append(b []byte) []byte {
	switch c.Kind {
	case 's':
		b = strconv.AppendInt(b, int64(len(c.Text)), 10)
		return append(append(b, ':'), c.Text...)
	case 'i':
		return strconv.AppendInt(append(b, "i:"...), c.Integer, 10)
	}
	return append(b, 'n')
}

// Value returns the column as database/sql takes it.
func (c Column) Value() any {
	switch c.Kind {
	case 's':
		return c.Text
	case 'i':
		return c.Integer
	}
	return nil
}

// EntryColumns are the columns of the table ledger that the chain covers, in the table's
// order.
const EntryColumns = `id, account_id, seq, type, status, reversal_of, reason, connection_id, app_id, feature,
	feature_label,
	model,
	key, fingerprint, paid_by, settlement, terms, usage, hold_amount_mc, provider_cost_mc, svc_fee_mc, dev_margin_mc,
	user_charge_mc, remaining_mc, amount_mc, available_delta_mc, reserved_delta_mc, allocation_delta_mc,
	consumed_delta_mc, created_us`

// Columns returns the row's values in the order of EntryColumns.
func (e *Entry) Columns() [30]Column {
	spend, topup := e.Type == EntrySpend, e.Type == EntryTopUp
	return [30]Column{
		TextColumn(e.ID), TextColumn(e.AccountID), Integer(e.Seq), TextColumn(string(e.Type)), TextColumn(e.Status),
		OptionalText(e.ReversalOf),
		OptionalText(e.Reason),
		OptionalText(e.ConnectionID), OptionalText(e.AppID), OptionalText(e.Feature), OptionalText(e.FeatureLabel),
		OptionalText(e.Model),
		OptionalText(e.Key), OptionalText(e.Fingerprint), OptionalText(e.PaidBy), OptionalText(e.Settlement),
		OptionalText(e.Terms), OptionalText(e.Usage),
		integerIf(spend, e.HoldMC), integerIf(spend, e.ProviderCostMC), integerIf(spend, e.SvcFeeMC),
		integerIf(spend, e.DevMarginMC),
		integerIf(spend, e.UserChargeMC), integerIf(spend, e.RemainingMC), integerIf(topup, e.AmountMC),
		Integer(e.AvailableDeltaMC), Integer(e.ReservedDeltaMC), Integer(e.AllocationDeltaMC),
		Integer(e.ConsumedDeltaMC), Integer(e.CreatedUS),
	}
}
