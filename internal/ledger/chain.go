package ledger

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strconv"

	"github.com/purserhq/purser/internal/base/money"
)

// chain returns the hash of row e that follows a row with hash head: SHA-256
// over the earlier hash and the row's columns in the table's order. A column is
// written with its length, so that no two rows look alike.
func chain(head string, e *Entry) string {
	b := make([]byte, 0, 1024)
	b = append(append(b, head...), '\n')
	for i, c := range e.columns() {
		if i > 0 {
			b = append(b, '|')
		}
		b = c.append(b)
	}
	sum := sha256.Sum256(b)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// hash finds a key in the ledger by 8 bytes instead of 70: keys are random, so
// their index is all over the place, and must be small to stay in memory. Two
// keys may share a hash; the key itself decides.
func (k Key) hash() int64 {
	sum := sha256.Sum256([]byte(k.ConnectionID + "\n" + k.Key))
	return int64(binary.BigEndian.Uint64(sum[:8]) >> 1)
}

// keyHash is the column of that name: null on rows without a key.
func (e *Entry) keyHash() column {
	if e.Key == "" {
		return column{}
	}
	return integer(Key{e.ConnectionID, e.Key}.hash())
}

// column is one value of a row: text, an integer, or null.
type column struct {
	text string
	n    int64
	kind byte // 's', 'i', or 0 for null
}

func text(s string) column { return column{text: s, kind: 's'} }

func integer[T ~int64](n T) column { return column{n: int64(n), kind: 'i'} }

// optional is null for the empty text.
func optional[T ~string](s T) column {
	if s == "" {
		return column{}
	}
	return column{text: string(s), kind: 's'}
}

func pointer(n *int64) column {
	if n == nil {
		return column{}
	}
	return integer(*n)
}

func only(when bool, n money.MC) column {
	if when {
		return integer(n)
	}
	return column{}
}

func (c column) append(b []byte) []byte {
	switch c.kind {
	case 's':
		b = strconv.AppendInt(b, int64(len(c.text)), 10)
		return append(append(b, ':'), c.text...)
	case 'i':
		return strconv.AppendInt(append(b, "i:"...), c.n, 10)
	}
	return append(b, 'n')
}

func (c column) value() any {
	switch c.kind {
	case 's':
		return c.text
	case 'i':
		return c.n
	}
	return nil
}

// entryColumns are the ledger's columns but the hash, in the table's order.
const entryColumns = `id, account_id, seq, type, status, reversal_of, reason, connection_id, app_id, feature, bucket, model,
	key, fingerprint, paid_by, settlement, terms, usage, hold_amount_mc, provider_cost_mc, svc_fee_mc, dev_margin_mc,
	user_charge_mc, remaining_mc, amount_mc, available_delta_mc, reserved_delta_mc, allocation_delta_mc, consumed_delta_mc, created_us`

// columns returns the row's values in the order of entryColumns.
func (e *Entry) columns() [30]column {
	spend, topup := e.Type == Spend, e.Type == Topup
	return [30]column{
		text(e.ID), text(e.AccountID), integer(e.Seq), text(string(e.Type)), text(e.Status), optional(e.ReversalOf), optional(e.Reason),
		optional(e.ConnectionID), optional(e.AppID), optional(e.Feature), optional(e.Bucket), optional(e.Model),
		optional(e.Key), optional(e.Fingerprint), optional(e.PaidBy), optional(e.Settlement), optional(e.Terms), optional(e.Usage),
		only(spend, e.HoldMC), only(spend, e.ProviderCostMC), only(spend, e.SvcFeeMC), only(spend, e.DevMarginMC),
		only(spend, e.UserChargeMC), only(spend, e.RemainingMC), only(topup, e.AmountMC),
		integer(e.Available), integer(e.Reserved), integer(e.Allocation), integer(e.Consumed), integer(e.CreatedUS),
	}
}
