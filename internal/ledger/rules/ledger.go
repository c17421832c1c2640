package rules

import (
	"cmp"
	"time"

	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/limits"
)

// ConnectionStatus is the stored status of a connection. Exhausted is not stored but
// computed (see Connection.EffectiveStatus).
type ConnectionStatus string

// The stored states of contract §3, Connection status.
const (
	Active  ConnectionStatus = "active"
	Frozen  ConnectionStatus = "frozen"
	Revoked ConnectionStatus = "revoked"
)

// Balance is what an account owns: the part that no connection has reserved, and the reserved part.
type Balance struct {
	AccountID   string
	Sandbox     bool
	AvailableMC money.MC
	ReservedMC  money.MC
	Seq         int64  // of the newest ledger row of the account
	Head        string // its hash
}

// Connection is the grant of one account to one app (contract §2, Connection).
type Connection struct {
	ID, AppID, AccountID string
	AllocationMC         money.MC
	ConsumedMC           money.MC
	HeldMC               money.MC
	DelegatedMC          money.MC  // what is left of the budgets of its children, their held amounts included
	ChildHeldMC          money.MC  // of HeldMC: by calls of children
	VelocityLimitMC      *money.MC // per rolling 24 hours; nil = none
	Status               ConnectionStatus
	Spent                limits.Series // settled spend of the last 24 hours
	Forgiven             limits.Series // what of Spent the risk thresholds leave out, because of a resume
	FrozenBy             FreezeCause   // the strongest of the causes why it is frozen; "" = it is not
	FrozenReason         string        // the operator's reason for that one; "" = none
	FasterSpend          int64         // times the usual pace that its user allows, 1 to 3
	WarnedUS             int64         // time of the last risk warning
	EventSeq             int64
	CreatedUS            int64
	RevokedUS            *int64
	LimitsUS             int64 // when its user decided on its cap and daily limit; 0 = an earlier version wrote it
	ApprovedUS           int64 // when its user approved what the app last connected by; 0 = an earlier version wrote it
}

// AgreedUS is the time of the newest terms of the app that the user has agreed to.
func (c Connection) AgreedUS() int64 { return cmp.Or(c.ApprovedUS, c.CreatedUS) }

// RemainingMC is what calls can still hold, children's left out: allocation − consumed − held − delegated.
func (c Connection) RemainingMC() money.MC { return c.AllocationMC - c.CommittedMC() }

// CommittedMC is what the allocation cannot be lowered below: it is consumed, held or delegated.
func (c Connection) CommittedMC() money.MC { return c.ConsumedMC + c.SetAsideMC() }

// SetAsideMC is what is neither consumed nor remains: held for calls, or passed on to children.
func (c Connection) SetAsideMC() money.MC { return c.HeldMC + c.UnheldDelegatedMC() }

// UnheldDelegatedMC is what calls of the connection's children can still hold.
func (c Connection) UnheldDelegatedMC() money.MC { return c.DelegatedMC - c.ChildHeldMC }

// AddUnsaved adds what holds that are not in the file hold, by the subjects of HoldRow.EachHeldAmount.
func (c *Connection) AddUnsaved(unsavedMC map[string]money.MC) {
	c.HeldMC += unsavedMC[c.ID]
	if c.DelegatedMC > 0 {
		c.ChildHeldMC += unsavedMC[ChildHeldOf(c.ID)]
	}
}

// RiskSpend is the spend that risk thresholds compare: what is settled, without what was
// settled before the connection was last resumed.
func (c *Connection) RiskSpend() limits.Series { return c.Spent.Minus(c.Forgiven) }

// EffectiveStatus is the status of contract §2: an active connection whose allocation
// is consumed is exhausted.
func (c Connection) EffectiveStatus() string {
	if c.Status == Active && c.ConsumedMC >= c.AllocationMC {
		return "exhausted"
	}
	return string(c.Status)
}

// Key names one call: an idempotency key in its connection.
type Key struct{ ConnectionID, Key string }

// HoldState is where an attempt of a call stands. A billed call has no hold.
type HoldState string

// An open hold is a call in flight; a pending one waits for the provider's record
// of what its call used; a failed one keeps the key's fingerprint for the next attempt.
const (
	Open    HoldState = "open"
	Pending HoldState = "pending"
	Failed  HoldState = "failed"
)

// HoldsMoney reports whether the row holds money: it is open or pending.
func (h *HoldRow) HoldsMoney() bool { return h != nil && h.State != Failed }

// OwnWork is the model of a call that is work of an app's own (decision 109).
const OwnWork = "own-work"

// Call is what a hold and the row that settles it say about a call.
type Call struct {
	ConnectionID string
	AccountID    string
	AppID        string
	Key          string // idempotency key
	RequestID    string
	Fingerprint  string
	Feature      string // as sent; "" = none
	FeatureLabel string // for analytics: "", the slug, or "other"
	Model        string
	Terms        string // prices, rates and counts, JSON, as they are at the hold
	HoldMC       money.MC
	PaidBy       string       // Wallet or FreeCredit: the hold decides
	Reservations Reservations // what it holds of counters: the hold decides
}

// Who pays for a call: one of them, never both (contract §2, 9).
const (
	PaidByWallet     = "wallet"
	PaidByFreeCredit = "free_credit"
)

func (c Call) key() Key { return Key{c.ConnectionID, c.Key} }

// HoldRow is one row of holds.
type HoldRow struct {
	Call
	State     HoldState
	Attempt   int64
	NodeID    string
	Claim     string
	CreatedUS int64
}

// Amounts is the price of one call: UserCharge is always the sum of the others.
type Amounts struct {
	ProviderCostMC, SvcFeeMC, DevMarginMC, UserChargeMC money.MC
}

// Usage is what a call consumed. JSON is what is stored and audited.
type Usage struct {
	JSON          string
	InputTokens   int64
	OutputTokens  int64
	CachedTokens  int64    // of InputTokens: read from the provider's cache
	CacheSavedMC  money.MC // member cache_saved_mc of JSON, from which a reversal takes it (decision 071)
	PublicJSON    string   // the provider's own usage object, for svc_final; not stored
	FromOurCounts bool
}

// StoredResponse is the response of a settled call, kept for replays.
type StoredResponse struct {
	Encoding string // raw or s2
	Body     []byte
}

// Settlement says how the amounts of a spend were found (contract §3).
type Settlement string

// Settled is exact, from the provider's usage; Estimated is our own count.
const (
	Settled   Settlement = "settled"
	Estimated Settlement = "estimated"
)

// EntryType is the kind of movement of a ledger row.
type EntryType string

// Spend and Topup are the contract's; the others move money between available
// and reserved.
const (
	EntrySpend   EntryType = "spend"
	EntryTopUp   EntryType = "topup"
	EntryConnect EntryType = "connect"
	EntryCap     EntryType = "cap"
	EntryRevoke  EntryType = "revoke"
	EntryRelease EntryType = "release"
)

// Entry is one immutable row of the ledger (contract §2, Ledger entry).
type Entry struct {
	ID           string
	AccountID    string
	Seq          int64
	Type         EntryType
	Status       string // settled or reversed; of top-ups also pending
	ReversalOf   string
	Reason       string
	ConnectionID string
	AppID        string
	Feature      string
	FeatureLabel string
	Model        string
	Key          string
	Fingerprint  string
	PaidBy       string
	Settlement   Settlement
	Terms        string
	Usage        string
	HoldMC       money.MC
	Amounts
	RemainingMC       money.MC
	AmountMC          money.MC
	AvailableDeltaMC  money.MC // the change of the account's available balance
	ReservedDeltaMC   money.MC
	AllocationDeltaMC money.MC // the change of the connection's allocation
	ConsumedDeltaMC   money.MC
	CreatedUS         int64
	Hash              string
	Delivery          Delivery // of spends; not hashed
	ReversedBy        string   // the spend row that refunded this one; no column, so it is not hashed
	PaymentIntent     string   // of a top-up: what paid it at Stripe, if it was asked for; no column
	HoldUntilUS       int64    // of a top-up that is paid: the end of its clearance; no column
}

// RefundedMC is how much of a charge was refunded: all of it, or nothing.
func (e *Entry) RefundedMC() money.MC {
	if e.ReversedBy == "" {
		return 0
	}
	return e.UserChargeMC
}

// Refusal is a call that was refused before it cost anything, kept so that its
// receipt can say why.
type Refusal struct {
	RequestID, ConnectionID, AppID string
	Status                         int
	Code, Message                  string
	Details                        string // JSON object
	Feature, Model                 string
	CreatedUS                      int64
	DurationMS                     int64 // from the arrival of the call, rounded up; 0 = not known
}

// Event is one row of the outbox (contract §6).
type Event struct {
	ID, Type, AppID, ConnectionID string
	Seq                           int64
	Data                          string // JSON object
	CreatedUS                     int64
}

// VelocityWindow is the rolling window of a connection's own daily limit.
const VelocityWindow = 24 * time.Hour

// RequestID is the call that a spend row bills. A row and its request share
// their random part; a reversed row names the request of its original.
func (e Entry) RequestID() string {
	switch {
	case e.Type != EntrySpend:
		return ""
	case e.ReversalOf != "":
		return id.ReplacePrefix(e.ReversalOf, id.Ledger, id.Request)
	}
	return id.ReplacePrefix(e.ID, id.Ledger, id.Request)
}
