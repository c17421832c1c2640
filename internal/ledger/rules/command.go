package rules

import (
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/limits"
)

// A Command is one change that the ledger's writer commits: of money, or of the right to
// spend it. EmitEvent and RecordRefusal change neither; they append a row in the order of
// the other commands.
type Command interface {
	// addKeys adds the rows that the command reads or changes.
	addKeys(*RowKeys)
	// apply checks everything, then changes everything; an error leaves s as it was.
	apply(s *State, now int64) (Result, error)
}

// Outcome says what a command found.
type Outcome int

// Applied is the ordinary outcome. A Hold may instead find its key Running, Done
// or Waiting for its charge; a Settle, Defer or Release may find that it came too
// late (Fenced).
const (
	Applied Outcome = iota
	Running
	Done
	Waiting
	Fenced
)

// Result is the result of a command.
type Result struct {
	Outcome Outcome
	Call    Call // Hold: the call as it is held: who pays, and by which terms
	// Hold: a refusal that has appended an event; Do returns it as an error
	Refused           *apierr.Error
	MaxTokens         int64  // Hold: the output cap that the call is held for; 0 = it came without OutputCap
	UseProviderKey    bool   // Hold: the developer's own key at the provider serves the call
	Attempt           int64  // Hold: which attempt of the key this is
	RequestID         string // Hold: the key's request; its first attempt named it
	NodeID            string // Hold: the node that runs it, when Running
	Entry             Entry  // the row that was written; of a Done key only ID and Fingerprint
	Connection        Connection
	ReleasedMC        money.MC          // Revoke: what returned to the user
	HoldExpired       bool              // Settle: the hold had expired
	WasPending        bool              // a settlement ended a pending hold: the response that was stored then stays
	Shortfall         money.MC          // Settle: what the fee gave up so that the cap stays true
	Waived            bool              // Settle: the call is free, by its Waiver
	Unstored          bool              // Settle, Defer: its large response, as storing it took too long
	Estimated         bool              // Release: the attempt is charged, by its Unbilled.Estimate
	AllocationRequest AllocationRequest // RequestAllocation, DecideAllocationRequest: the request
	Payment           Payment           // of the commands of a payment: as it is now
	RestMC            money.MC          // ReversePayment: what is gone beyond what was paid, and is not booked
	Goodwill          Goodwill          // of the commands of a goodwill credit: as it is now
	CallRefund        CallRefund        // RefundCall: who paid for it
	Payout            Payout            // BeginPayout, EndPayout, RecordPayout: as it is now
	Child             Child             // Delegate, EndChild: as it is now
}

// TopUp credits an account and opens its balance without a payment, as a sandbox's.
// Users pay by OpenPayment; the operator credits them by GiveGoodwill.
type TopUp struct {
	AccountID string
	Sandbox   bool
	AmountMC  money.MC
}

// Connect grants min(Requested, available) to an app. On a live connection of
// the same app and account it moves the cap instead, and keeps the id. Limits of a live connection that its user
// decided on after the approval stay.
type Connect struct {
	ConnectionID, AppID, AccountID string
	Sandbox                        bool // the app is in the sandbox: fake money only (I29)
	RequestedMC                    money.MC
	MaxMC                          money.MC // the most that the app's tier allows; 0 = no bound
	VelocityLimitMC                *money.MC
	KeepCap, KeepVelocity          bool  // a live connection keeps its cap, its daily limit
	ApprovedUS                     int64 // when the user approved; 0 = now
}

// ChangeCap sets the allocation: lowered, but never below consumed plus
// held; raised from the available balance.
type ChangeCap struct {
	ConnectionID string
	TargetMC     money.MC
	MaxMC        money.MC // the most that the app's tier allows; 0 = no bound
}

// SetVelocityLimit sets the connection's own limit of spend per rolling 24 hours; nil
// = none.
type SetVelocityLimit struct {
	ConnectionID string
	LimitMC      *money.MC
}

// Revoke ends a connection and returns what is neither spent nor held.
type Revoke struct {
	ConnectionID string
	StopCalls    bool // its running calls end now (decision 067); otherwise they may finish
}

// Hold reserves the most that a call can cost, or answers what its key already
// did. It enforces every limit; nothing after it checks again.
type Hold struct {
	Call
	NodeID         string // the process that runs the call
	Claim          string // the HTTP request that does; a repeated Hold of one claim is one hold
	Limits         []limits.Limit
	Risk           *limits.RiskThresholds // nil = spend is never too fast: fake money
	MaxHoldMC      *money.MC              // the feature's guardrail per call
	MaxCapMC       money.MC               // how much of the allocation the app's tier lets it spend; 0 = all
	CostMC         money.MC               // the most that the provider may be paid, for limits of that
	HasProviderKey bool                   // the developer has a provider key, which serves beyond a limit of cost
	FreeCredit     *FreeCreditHold        // nil = no free credit
	Output         *OutputCap             // nil = the output cap is not known here, as in voice
	ChildID        string                 // the child whose budget pays; "" = none
	DryRun         bool                   // only decide: nothing is held, and no event is emitted

	// Pending opens the hold as a pending one, which no lease ends: who will say what it is charged. "" = an open hold.
	Pending string
}

// FreeCreditHold is how a call is held if free credit pays for it: at cost (contract
// §8).
type FreeCreditHold struct {
	Terms  string
	HoldMC money.MC
	Limits []limits.Limit // of FreeSubjects
}

// Settle writes the row of a call that cost something, and ends its hold, open or
// pending. Of a pending one it tells the app, by what Receipt makes of the row.
type Settle struct {
	Call
	Attempt    int64
	Charge     Amounts
	Settlement Settlement
	Usage      Usage
	Delivery   Delivery
	Risk       *limits.RiskThresholds       // as at the hold
	Response   *StoredResponse              // a pending call has left its own already
	Receipt    func(*Entry) (string, error) // the request as its GET returns it, JSON (decision 039)

	// Waiver makes the call free if its rule allows. nil = it is charged.
	Waiver *Waiver

	// Held refuses a settlement whose hold has ended: of an app's own work the user agreed to the hold alone.
	Held bool

	MaxChargeMC *money.MC // the most that the user is charged; the service fee takes the rest; nil = no such bound
	Budget      *Budget   // the call shares it with others; nil = none
}

// A Budget bounds what the user is charged for several calls of a connection together, such as the replies of a voice
// session. What free credit pays does not count.
type Budget struct {
	Subject string // the counter of the charges, such as VoiceSubject
	MaxMC   money.MC
}

// VoiceSubject is the counter of what the wallet has paid for the replies of a voice session that has a max_cost_mc.
func VoiceSubject(sessionID string) string { return "voice/" + sessionID }

// Defer leaves a call that was answered pending: its hold stays until a Settle
// knows from the provider's record what it cost (contract §3, §4.3). No lease ends it.
type Defer struct {
	Call
	Attempt  int64
	Provider string
	RecordID string          // the provider's id of the answer; "" = not known
	Delivery Delivery        // for the row of its charge
	Response *StoredResponse // what was delivered, for replays

	DeliveredTokens int64 // output that was delivered, for an estimate
}

// Release ends the hold of a call that costs nothing; its key may try again.
type Release struct {
	Call
	Attempt  int64
	Pending  bool      // also of a pending hold, for an app's own work
	Unbilled *Unbilled // what the attempt has cost the operator; nil = nothing
}

// Reverse refunds a spend row, once, by a new row, and reports it to the app.
type Reverse struct {
	EntryID   string // of the original
	AccountID string // its account
	Reason    string
	Receipt   func(*Entry) (string, error) // the refunded request as its GET returns it, JSON; nil = no event
}

// RecordRefusal stores a refusal for its receipt. It moves no money.
type RecordRefusal struct{ Refusal }

// EmitAppEvent appends an event about an app as a whole that is not about its money, such as its suspension. Data is a
// JSON object.
type EmitAppEvent struct {
	AppID string
	Type  string
	Data  string
}

// EmitEvent appends an event about a connection that is not about its money, such as
// the end of a voice session (contract §6). Data is a JSON object.
type EmitEvent struct {
	ConnectionID string
	Type         string
	Data         string
}
