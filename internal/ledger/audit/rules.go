package audit

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
)

// Rows that a rule applies to.
func anyRow(*ledgerRow) bool          { return true }
func hasConnection(r *ledgerRow) bool { return r.connection != "" }
func isSpend(r *ledgerRow) bool       { return r.kind == "spend" }
func isFreeCredit(r *ledgerRow) bool  { return r.paidBy == "free_credit" }
func isMock(r *ledgerRow) bool        { return isBilled(r) && strings.Contains(r.terms, `"mock":true`) }
func isBilled(r *ledgerRow) bool      { return r.kind == "spend" && r.status == "settled" }

// maxAmountMC is more than one account can hold. Below it the sum of a few amounts cannot
// overflow.
const maxAmountMC = int64(1) << 60

// A movement is the deltas of a row.
type movement struct{ available, reserved, allocation, consumed int64 }

func (m movement) String() string {
	return fmt.Sprintf("available %+d, reserved %+d, allocation %+d, consumed %+d", m.available, m.reserved,
		m.allocation, m.consumed)
}

// checkMovement compares a row's deltas with its type and amounts (contract §2, Balance,
// holds and allocation semantics).
func checkMovement(f *accountTotals, r *ledgerRow) string {
	for _, n := range []int64{r.hold, r.cost, r.fee, r.margin, r.charge, r.remaining, r.amount, r.available, r.reserved,
		r.allocation, r.consumed} {
		if n > maxAmountMC || n < -maxAmountMC {
			return fmt.Sprintf("an amount of %d micro-cents is more than all money", n)
		}
	}
	revoked := f.connection != nil && f.connection.revoked
	x := r.allocation
	var want movement
	switch r.kind + " " + r.status {
	case "spend settled":
		want = movement{consumed: r.charge, reserved: -r.charge}
		if revoked { // what remains of the hold returns to available
			want = movement{consumed: r.charge, reserved: x - r.charge, available: -x, allocation: x}
		}
	case "spend reversed":
		want = movement{consumed: -r.charge, reserved: r.charge}
		if revoked {
			want = movement{consumed: -r.charge, available: r.charge, allocation: -r.charge}
		}
	case "topup settled":
		want = movement{available: r.amount}
	case "topup reversed":
		switch {
		case f.reversedTopups[r.reversalOf]: // it came back
			want = movement{available: r.amount}
		case !f.pendingTopups[r.reversalOf]:
			want = movement{available: -r.amount}
		}
	case "topup pending":
	case "connect settled", "cap settled", "revoke settled", "release settled":
		want = movement{available: -x, reserved: x, allocation: x}
	default:
		return "no row may be " + r.status
	}
	if r.kind == "topup" && r.amount <= 0 && !isDebit(r) {
		return fmt.Sprintf("amount_mc is %d", r.amount)
	}
	if r.paidBy == "free_credit" {
		want = movement{}
	}
	if got := (movement{r.available, r.reserved, r.allocation, r.consumed}); got != want {
		return fmt.Sprintf("moves %v, should be %v", got, want)
	}
	return ""
}

// isGoodwill reports whether the row is a goodwill credit: it is the only settled top-up with a reason that adds.
func isGoodwill(r *ledgerRow) bool {
	return r.kind == "topup" && r.status == "settled" && r.reason != "" && r.amount > 0
}

// isDebit reports whether the row takes from a developer's balance what the refund of a call costs.
func isDebit(r *ledgerRow) bool {
	return r.kind == "topup" && r.status == "settled" && r.reason != "" && r.amount < 0
}

// reversesPayment reports whether the row reverses a payment that was credited.
func (f *accountTotals) reversesPayment(r *ledgerRow) bool {
	return r.kind == "topup" && r.status == "reversed" && r.available < 0 && !f.goodwill[r.reversalOf]
}

// checkNotOverdrawn checks that the row does not overdraw the account. Only the reversal
// of a payment may do that; below zero, no other row may take more.
func checkNotOverdrawn(f *accountTotals, r *ledgerRow) string {
	available, reserved := f.available+r.available, f.reserved+r.reserved
	if available < 0 && !f.reversesPayment(r) && (!f.disputed || r.available < 0) || reserved < 0 {
		return fmt.Sprintf("available becomes %d, reserved %d", available, reserved)
	}
	return ""
}

// connectionAfter returns allocation and consumption of the row's connection after the row.
func (f *accountTotals) connectionAfter(r *ledgerRow) (allocation, consumed int64) {
	if f.connection == nil {
		return r.allocation, r.consumed
	}
	return f.connection.allocation + r.allocation, f.connection.consumed + r.consumed
}

// checkAllocation checks that a connection has not consumed more than its allocation.
func checkAllocation(f *accountTotals, r *ledgerRow) string {
	if allocation, consumed := f.connectionAfter(r); consumed > allocation || consumed < 0 {
		return fmt.Sprintf("connection=%s allocation becomes %d, consumed %d", r.connection, allocation, consumed)
	}
	return ""
}

// checkRemaining checks that the remaining allocation is at most allocation − consumed.
// The ledger does not have what other calls held at that moment.
func checkRemaining(f *accountTotals, r *ledgerRow) string {
	allocation, consumed := f.connectionAfter(r)
	if r.remaining < 0 || r.remaining > allocation-consumed {
		return fmt.Sprintf("connection=%s remaining_mc is %d, allocation − consumed %d", r.connection, r.remaining,
			allocation-consumed)
	}
	return ""
}

// checkConnectionOrder checks the order of a connection's rows: connect, cap and spend,
// revoke, and then only rows that end its holds or refund (contract §3).
func checkConnectionOrder(f *accountTotals, r *ledgerRow) string {
	switch {
	case (f.connection == nil) != (r.kind == "connect"):
		if f.connection == nil {
			return "connection=" + r.connection + " was not connected by this account"
		}
		return "connection=" + r.connection + " was connected before"
	case f.connection == nil:
		return ""
	case f.connection.app != r.app:
		return "connection=" + r.connection + " belongs to app " + f.connection.app + ", not " + r.app
	case f.connection.revoked && r.kind != "spend" && r.kind != "release":
		return "connection=" + r.connection + " was revoked before"
	case !f.connection.revoked && r.kind == "release":
		return "connection=" + r.connection + " is not revoked: a release moves nothing"
	}
	return ""
}

// checkIdentifiers checks the columns by which replays and receipts find a call.
func checkIdentifiers(_ *accountTotals, r *ledgerRow) string {
	billed := isBilled(r)
	for _, m := range []struct {
		name    string
		present bool
		wanted  bool
	}{
		{"key", r.key != "", billed}, {"fingerprint", r.fingerprint != "", billed},
		{"settlement", r.settlement != "", billed},
		{"connection_id", r.connection != "", r.kind != "topup"}, {"app_id", r.app != "", r.kind != "topup"},
		{"model", r.model != "", isSpend(r)}, {"paid_by", r.paidBy != "", isSpend(r)},
		{"reversal_of", r.reversalOf != "", r.status == "reversed"},
	} {
		if m.present != m.wanted {
			return fmt.Sprintf("%s present: %t, should be %t", m.name, m.present, m.wanted)
		}
	}
	if !strings.HasPrefix(r.id, "led_") {
		return "the id does not begin with led_"
	}
	return ""
}

// checkChargeSum checks the identity of contract §2 on a charge or its reversal.
func checkChargeSum(_ *accountTotals, r *ledgerRow) string {
	if sum := r.cost + r.fee + r.margin; r.charge != sum {
		return fmt.Sprintf("user_charge_mc is %d, the parts are %d", r.charge, sum)
	}
	if r.charge < 0 || r.cost < 0 || r.margin < 0 {
		return fmt.Sprintf("a negative part: provider_cost_mc %d, dev_margin_mc %d, user_charge_mc %d", r.cost,
			r.margin, r.charge)
	}
	return ""
}

// checkSeq checks that no row of an account is missing.
func checkSeq(f *accountTotals, r *ledgerRow) string {
	if r.seq != f.seq+1 {
		return fmt.Sprintf("follows seq %d", f.seq)
	}
	return ""
}

// checkHash recomputes the row's hash from the row before.
func checkHash(f *accountTotals, r *ledgerRow) string {
	if want := chainHash(f.head, r.values[:ledgerColumnCount-1]); want != r.hash {
		return fmt.Sprintf("hash is %s, should be %s", r.hash, want)
	}
	return ""
}

// chainHash returns the SHA-256 of the previous hash and the columns, each encoded with
// its type or length, so that no two rows have the same encoding.
func chainHash(before string, values []any) string {
	b := append(make([]byte, 0, 1024), before...)
	for i, value := range values {
		if i == 0 {
			b = append(b, '\n')
		} else {
			b = append(b, '|')
		}
		switch v := value.(type) {
		case nil:
			b = append(b, 'n')
		case int64:
			b = strconv.AppendInt(append(b, "i:"...), v, 10)
		case string:
			b = strconv.AppendInt(b, int64(len(v)), 10)
			b = append(append(b, ':'), v...)
		default: // no column is of another kind
			b = fmt.Appendf(b, "?:%v", v)
		}
	}
	sum := sha256.Sum256(b)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
