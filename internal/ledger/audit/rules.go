package audit

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
)

// Which rows a rule is for.
func every(*row) bool          { return true }
func ofConnection(r *row) bool { return r.connection != "" }
func isSpend(r *row) bool      { return r.kind == "spend" }
func isFree(r *row) bool       { return r.paidBy == "free_credit" }
func isBilled(r *row) bool     { return r.kind == "spend" && r.status == "settled" }

// absurd is more than all money that can be in one account; below it the sums
// of a few amounts cannot overflow.
const absurd = int64(1) << 60

// movement is what a row moves.
type movement struct{ available, reserved, allocation, consumed int64 }

func (m movement) String() string {
	return fmt.Sprintf("available %+d, reserved %+d, allocation %+d, consumed %+d", m.available, m.reserved,
		m.allocation, m.consumed)
}

// wrongMovement compares what a row moves with its type and amounts (contract §2,
// Balance, holds and allocation semantics).
func wrongMovement(f *fold, r *row) string {
	for _, n := range []int64{r.hold, r.cost, r.fee, r.margin, r.charge, r.remaining, r.amount, r.available, r.reserved,
		r.allocation, r.consumed} {
		if n > absurd || n < -absurd {
			return fmt.Sprintf("an amount of %d micro-cents is more than all money", n)
		}
	}
	revoked := f.grant != nil && f.grant.revoked
	x := r.allocation
	var want movement
	switch r.kind + " " + r.status {
	case "spend settled":
		want = movement{consumed: r.charge, reserved: -r.charge}
		if revoked { // it keeps nothing of the hold
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
		if !f.pending[r.reversalOf] {
			want = movement{available: -r.amount}
		}
	case "topup pending":
	case "connect settled", "cap settled", "revoke settled", "release settled":
		want = movement{available: -x, reserved: x, allocation: x}
	default:
		return "no row may be " + r.status
	}
	if r.kind == "topup" && r.amount <= 0 {
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

// takesBack says whether the row is a payment that went back after it was credited.
func takesBack(r *row) bool { return r.kind == "topup" && r.status == "reversed" && r.available < 0 }

// negative says whether an account is overdrawn by the row. Only a payment that went
// back may do that; below zero, nothing else may take more.
func negative(f *fold, r *row) string {
	available, reserved := f.available+r.available, f.reserved+r.reserved
	if available < 0 && !takesBack(r) && (!f.disputed || r.available < 0) || reserved < 0 {
		return fmt.Sprintf("available becomes %d, reserved %d", available, reserved)
	}
	return ""
}

// after returns allocation and consumed of the row's connection after the row.
func (f *fold) after(r *row) (allocation, consumed int64) {
	if f.grant == nil {
		return r.allocation, r.consumed
	}
	return f.grant.allocation + r.allocation, f.grant.consumed + r.consumed
}

// overCap says whether a connection consumed more than its allocation.
func overCap(f *fold, r *row) string {
	if allocation, consumed := f.after(r); consumed > allocation || consumed < 0 {
		return fmt.Sprintf("connection=%s allocation becomes %d, consumed %d", r.connection, allocation, consumed)
	}
	return ""
}

// wrongRemaining says whether more remained than was there; what other calls
// held at that moment is not in the journal.
func wrongRemaining(f *fold, r *row) string {
	allocation, consumed := f.after(r)
	if r.remaining < 0 || r.remaining > allocation-consumed {
		return fmt.Sprintf("connection=%s remaining_mc is %d, allocation − consumed %d", r.connection, r.remaining,
			allocation-consumed)
	}
	return ""
}

// outOfOrder checks the life of a connection: connect, cap and spend, revoke, and
// after it only what ends its holds or refunds (contract §3).
func outOfOrder(f *fold, r *row) string {
	switch {
	case (f.grant == nil) != (r.kind == "connect"):
		if f.grant == nil {
			return "connection=" + r.connection + " was not connected by this account"
		}
		return "connection=" + r.connection + " was connected before"
	case f.grant == nil:
		return ""
	case f.grant.app != r.app:
		return "connection=" + r.connection + " belongs to app " + f.grant.app + ", not " + r.app
	case f.grant.revoked && r.kind != "spend" && r.kind != "release":
		return "connection=" + r.connection + " was revoked before"
	case !f.grant.revoked && r.kind == "release":
		return "connection=" + r.connection + " is not revoked: a release moves nothing"
	}
	return ""
}

// wrongNames checks what replays and receipts find a call by.
func wrongNames(_ *fold, r *row) string {
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

// wrongSum checks the identity of contract §2 on a charge or its reversal.
func wrongSum(_ *fold, r *row) string {
	if sum := r.cost + r.fee + r.margin; r.charge != sum {
		return fmt.Sprintf("user_charge_mc is %d, the parts are %d", r.charge, sum)
	}
	if r.charge < 0 || r.cost < 0 || r.margin < 0 {
		return fmt.Sprintf("a negative part: provider_cost_mc %d, dev_margin_mc %d, user_charge_mc %d", r.cost,
			r.margin, r.charge)
	}
	return ""
}

// wrongSeq checks that no row of an account is missing.
func wrongSeq(f *fold, r *row) string {
	if r.seq != f.seq+1 {
		return fmt.Sprintf("follows seq %d", f.seq)
	}
	return ""
}

// wrongHash recomputes the row's hash from the row before.
func wrongHash(f *fold, r *row) string {
	if want := chainHash(f.head, r.values[:width-1]); want != r.hash {
		return fmt.Sprintf("hash is %s, should be %s", r.hash, want)
	}
	return ""
}

// chainHash is SHA-256 over the hash before and the columns, each written with
// its kind or length, so that no two rows are written alike.
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
