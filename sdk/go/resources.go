package purser

import (
	"encoding/json"
	"time"
)

// A ConnectionInfo is a connection as the service has it.
type ConnectionInfo struct {
	Resource
	ID                         string `json:"id"`
	AppID                      string `json:"app_id"`
	UserAccountID              string `json:"user_account_id"`
	AllocationMC               int64  `json:"allocation_mc"` // the spend cap; it does not refill
	AllocationDisplay          string `json:"allocation_display"`
	ConsumedMC                 int64  `json:"consumed_mc"` // spent by settled calls
	ConsumedDisplay            string `json:"consumed_display"`
	HeldMC                     int64  `json:"held_mc"` // held for calls in flight and for children
	HeldDisplay                string `json:"held_display"`
	DelegatedMC                int64  `json:"delegated_mc"`            // of HeldMC: what children can still spend
	ChildID                    string `json:"child_id"`                // with the token of a child: the child
	AllocationRemainingMC      int64  `json:"allocation_remaining_mc"` // what the next call can hold
	AllocationRemainingDisplay string `json:"allocation_remaining_display"`
	// the user's own limit for any 24 hours; nil: none
	VelocityLimitMC      *int64        `json:"velocity_limit_mc"`
	VelocityLimitDisplay string        `json:"velocity_limit_display"`
	Status               string        `json:"status"` // active, exhausted, revoked or frozen
	Freeze               *Freeze       `json:"freeze"` // why it is frozen; nil when it is not
	CreatedAt            time.Time     `json:"created_at"`
	RecentLedger         []LedgerEntry `json:"recent_ledger"` // the 20 newest; of ConnectionService.Get only
}

// A Freeze says why a connection is frozen.
type Freeze struct {
	Cause  string `json:"cause"`  // risk, user, payment or operator
	Reason string `json:"reason"` // the operator's reason, in words
}

// A LedgerEntry is one row of the ledger. Rows never change: a refund is a row of its own.
type LedgerEntry struct {
	Resource
	ID                string    `json:"id"`
	Type              string    `json:"type"` // spend or topup
	AccountID         string    `json:"account_id"`
	CreatedAt         time.Time `json:"created_at"`
	Status            string    `json:"status"`      // settled, reversed or pending
	ReversalOf        string    `json:"reversal_of"` // of a reversal: the entry that it reverses
	Reason            string    `json:"reason"`
	ConnectionID      string    `json:"connection_id"`
	AppID             string    `json:"app_id"`
	Feature           string    `json:"feature"`
	Model             string    `json:"model"`
	HoldAmountMC      int64     `json:"hold_amount_mc"`
	ProviderCostMC    int64     `json:"provider_cost_mc"`
	SvcFeeMC          int64     `json:"svc_fee_mc"`
	DevMarginMC       int64     `json:"dev_margin_mc"`
	UserChargeMC      int64     `json:"user_charge_mc"`
	UserChargeDisplay string    `json:"user_charge_display"`
	RequestID         string    `json:"request_id"`
	PaidBy            string    `json:"paid_by"`    // wallet or free_credit
	Settlement        string    `json:"settlement"` // settled or estimated
	RefundedMC        int64     `json:"refunded_mc"`
	ReversedBy        string    `json:"reversed_by"` // of a refunded spend: the entry that refunded it
}

// An AllocationRequest is an app's request for a higher spend cap. Its user decides at ApprovalURL.
type AllocationRequest struct {
	Resource
	ID                       string     `json:"id"`
	ConnectionID             string     `json:"connection_id"`
	Status                   string     `json:"status"` // pending, approved, denied or superseded
	CurrentAllocationMC      int64      `json:"current_allocation_mc"`
	CurrentAllocationDisplay string     `json:"current_allocation_display"`
	TargetAllocationMC       int64      `json:"target_allocation_mc"`
	TargetAllocationDisplay  string     `json:"target_allocation_display"`
	Reason                   string     `json:"reason"`
	SupersededBy             string     `json:"superseded_by"`
	CreatedAt                time.Time  `json:"created_at"`
	DecidedAt                *time.Time `json:"decided_at"`
	ApprovalURL              string     `json:"approval_url"`
}

// A Revocation is the end of a connection.
type Revocation struct {
	Resource
	ID              string    `json:"id"`
	Status          string    `json:"status"` // revoked
	RevokedAt       time.Time `json:"revoked_at"`
	ReleasedMC      int64     `json:"released_mc"` // what returned to the user
	ReleasedDisplay string    `json:"released_display"`
}

// A Hold is money that an app holds for work of its own. The id is that of its receipt, too.
type Hold struct {
	Resource
	ID            string     `json:"id"`
	Status        string     `json:"status"` // held, captured or released
	ConnectionID  string     `json:"connection_id"`
	Feature       string     `json:"feature"`
	Description   string     `json:"description"`
	AmountMC      int64      `json:"amount_mc"` // what is held
	AmountDisplay string     `json:"amount_display"`
	CapturedMC    *int64     `json:"captured_mc"`   // what the user was charged; nil unless it is captured
	SvcFeeMC      *int64     `json:"svc_fee_mc"`    // of CapturedMC: the service fee
	DevMarginMC   *int64     `json:"dev_margin_mc"` // of CapturedMC: the app's
	RefundedMC    int64      `json:"refunded_mc"`
	CreatedAt     time.Time  `json:"created_at"`
	ExpiresAt     *time.Time `json:"expires_at"` // when the hold ends by itself; nil when it has ended
}

// A Child is a part of a connection's budget, which another agent or job spends by a token of its own.
type Child struct {
	Resource
	ID               string     `json:"id"`
	ConnectionID     string     `json:"connection_id"`
	ParentID         string     `json:"parent_id"` // the child that gave the amount; "": the connection itself
	Depth            int        `json:"depth"`     // 1 for children of the connection, at most 4
	Label            string     `json:"label"`
	Status           string     `json:"status"`    // active or ended
	AmountMC         int64      `json:"amount_mc"` // as it was given
	AmountDisplay    string     `json:"amount_display"`
	HeldMC           int64      `json:"held_mc"`      // held for its calls in flight
	RemainingMC      int64      `json:"remaining_mc"` // what its next call can hold
	RemainingDisplay string     `json:"remaining_display"`
	Features         []string   `json:"features"` // the only ones that its calls may name; empty: as its parent
	Models           []string   `json:"models"`   // the only ones that it may call; empty: as its parent
	CreatedAt        time.Time  `json:"created_at"`
	ExpiresAt        time.Time  `json:"expires_at"`
	EndedAt          *time.Time `json:"ended_at"`
	EndedBy          string     `json:"ended_by"`    // app, user, expired, parent or revoked
	ReturnedMC       int64      `json:"returned_mc"` // what went back at its end, with that of children below
	// Token is for Client.WithToken. Only the answer of Connection.CreateChild has it.
	Token string `json:"token"`
}

// An EndedChild is a child at its end, in the event of it.
type EndedChild struct {
	Child
	SpentMC      int64  `json:"spent_mc"` // by it and the children below it
	SpentDisplay string `json:"spent_display"`
}

// A Receipt is what a call cost and why, or why it was refused.
type Receipt struct {
	Resource
	ID               string        `json:"id"`
	Status           string        `json:"status"` // settled, estimated, pending, refused, in_flight or failed
	ConnectionID     string        `json:"connection_id"`
	ChildID          string        `json:"child_id"` // the child whose budget paid; "": the connection's own
	CreatedAt        time.Time     `json:"created_at"`
	Model            string        `json:"model"`
	OwnWork          string        `json:"own_work"` // of the app's own work: what it was
	Feature          string        `json:"feature"`
	Billed           bool          `json:"billed"`
	Charge           *Bill         `json:"charge"` // nil when nothing was billed
	RefundedMC       int64         `json:"refunded_mc"`
	ReversedBy       string        `json:"reversed_by"`
	MaxTokensApplied int64         `json:"max_tokens_applied"`
	Usage            *Usage        `json:"usage"`
	PriceVersion     string        `json:"price_version"`
	Lines            []ReceiptLine `json:"lines"` // how the provider's cost adds up
	Error            *ReceiptError `json:"error"` // why the call was refused or failed
	Explanation      string        `json:"explanation"`
}

// A ReceiptLine is the cost of one class of tokens.
type ReceiptLine struct {
	Class             string `json:"class"` // input, cached, cache_write, output, or another one
	Tokens            int64  `json:"tokens"`
	UnitPriceUSDPer1M string `json:"unit_price_usd_per_1m"` // decimal US dollars
	CostExactMC       string `json:"cost_exact_mc"`         // micro-cents, may have decimals
}

// A ReceiptError says why a call was refused or failed.
type ReceiptError struct {
	Code    string         `json:"code"`
	Message string         `json:"message"`
	Status  int            `json:"status"`
	Details map[string]any `json:"details"`
}

// An Estimate is what a call would cost.
type Estimate struct {
	Resource
	Model              string        `json:"model"`
	Feature            string        `json:"feature"`
	CountedInputTokens int64         `json:"counted_input_tokens"`
	InputTokens        int64         `json:"input_tokens"`
	MaxTokens          int64         `json:"max_tokens"` // the output cap of the call
	CappedBy           string        `json:"capped_by"`
	FitMinTokens       *int64        `json:"fit_min_tokens"`
	Fits               bool          `json:"fits"` // whether the call would be admitted now with MaxTokens
	MaxTokensThatFit   int64         `json:"max_tokens_that_fit"`
	MaxTokensApplied   int64         `json:"max_tokens_applied"` // 0 if the call would be refused
	PaidBy             string        `json:"paid_by"`            // wallet or free_credit
	Refusal            *ReceiptError `json:"refusal"`            // why the call would be refused now
	HoldAmountMC       int64         `json:"hold_amount_mc"`
	HoldAmountDisplay  string        `json:"hold_amount_display"`
	Expected           EstimateCosts `json:"expected"` // with an output as long as on average
	Largest            EstimateCosts `json:"largest"`  // with an output of MaxTokens
	PriceVersion       string        `json:"price_version"`
}

// EstimateCosts are the costs of a call with an assumed output.
type EstimateCosts struct {
	OutputTokens      int64         `json:"output_tokens"`
	OutputBasis       string        `json:"output_basis"` // recent_calls or max_tokens
	ProviderCostMC    int64         `json:"provider_cost_mc"`
	SvcFeeMC          int64         `json:"svc_fee_mc"`
	DevMarginMC       int64         `json:"dev_margin_mc"`
	UserChargeMC      int64         `json:"user_charge_mc"`
	UserChargeDisplay string        `json:"user_charge_display"`
	Lines             []ReceiptLine `json:"lines"`
}

// A Model is a model that can be called.
type Model struct {
	Resource
	ID                      string            `json:"id"`
	Provider                string            `json:"provider"`              // openai, anthropic or google
	InputCostPer1KUSD       string            `json:"input_cost_per_1k_usd"` // decimal US dollars for 1,000 tokens
	OutputCostPer1KUSD      string            `json:"output_cost_per_1k_usd"`
	CachedInputCostPer1KUSD string            `json:"cached_input_cost_per_1k_usd"`
	CacheWriteCostPer1KUSD  string            `json:"cache_write_cost_per_1k_usd"`
	ContextWindow           int64             `json:"context_window"` // tokens
	MaxOutputTokens         int64             `json:"max_output_tokens"`
	PriceConfidence         string            `json:"price_confidence"` // published or assumed
	Capabilities            ModelCapabilities `json:"capabilities"`
	DeprecatedAt            *time.Time        `json:"deprecated_at"`
	RetiresAt               *time.Time        `json:"retires_at"`
	Replacement             string            `json:"replacement"` // the model to move to
}

// ModelCapabilities are what a model can do.
type ModelCapabilities struct {
	Vision           bool     `json:"vision"`
	Tools            bool     `json:"tools"`
	ForcedToolChoice bool     `json:"forced_tool_choice"`
	Temperature      bool     `json:"temperature"`
	Reasoning        bool     `json:"reasoning"`
	Realtime         bool     `json:"realtime"`   // works in voice sessions only
	Embeddings       bool     `json:"embeddings"` // makes embeddings only
	ReasoningEfforts []string `json:"reasoning_efforts"`
	ResponseFormats  []string `json:"response_formats"`
}

// An App is an app of a developer.
type App struct {
	Resource
	ID               string      `json:"id"`
	ClientID         string      `json:"client_id"`
	ClientType       string      `json:"client_type"` // confidential or public
	Name             string      `json:"name"`
	RedirectURIs     []string    `json:"redirect_uris"`
	AllowedModels    []string    `json:"allowed_models"`     // empty: all
	DefaultMaxTokens *int64      `json:"default_max_tokens"` // the output cap of calls that send none
	Fit              bool        `json:"fit"`
	FitMinTokens     *int64      `json:"fit_min_tokens"`
	DevMarginRate    json.Number `json:"dev_margin_rate"` // 0.15 is 15 %
	PromptCache      bool        `json:"prompt_cache"`
	OwnWork          bool        `json:"own_work"` // whether it may hold money for work of its own
	DeveloperName    *string     `json:"developer_name"`
	WebsiteURL       *string     `json:"website_url"`
	PrivacyPolicyURL *string     `json:"privacy_policy_url"`
	Support          *string     `json:"support"` // an email address or an https URL
	Domain           *string     `json:"domain"`
	DomainVerifiedAt *time.Time  `json:"domain_verified_at"` // nil = not verified
	Tier             string      `json:"tier"`               // sandbox, limited-live or full-live
	ProviderMode     string      `json:"provider_mode"`      // mock or live
	TestAllowlist    []string    `json:"test_allowlist"`
	Suspended        bool        `json:"suspended"`
	Suspension       *Suspension `json:"suspension"`
	CreatedAt        time.Time   `json:"created_at"`
}

// A Suspension says who suspended an app.
type Suspension struct {
	By     string     `json:"by"` // developer, operator or risk
	Reason string     `json:"reason"`
	Since  *time.Time `json:"since"`
}

// A Feature is a label for what an app uses AI for, with optional guardrails.
type Feature struct {
	Resource
	Slug             string      `json:"slug"`
	DisplayName      string      `json:"display_name"`
	Description      string      `json:"description"`
	MaxCostPerCallMC *int64      `json:"max_cost_per_call_mc"`
	MaxTokens        *int64      `json:"max_tokens"` // the output cap of calls that send none
	Fit              *bool       `json:"fit"`
	FitMinTokens     *int64      `json:"fit_min_tokens"`
	RateLimit        *int64      `json:"rate_limit"`    // calls in any 60 seconds for each user
	DefaultModel     string      `json:"default_model"` // CallFeature needs it
	DevMarginRate    json.Number `json:"dev_margin_rate"`
}

// A Webhook is an endpoint of an app that gets events.
type Webhook struct {
	Resource
	ID        string    `json:"id"`
	AppID     string    `json:"app_id"`
	URL       string    `json:"url"`
	Events    []string  `json:"events"` // empty: all events, including future types
	Status    string    `json:"status"` // active or disabled
	CreatedAt time.Time `json:"created_at"`
	Secret    string    `json:"secret"` // of Create and RotateSecret only; store it
}

// A Delivery is one event on its way to one endpoint.
type Delivery struct {
	Resource
	ID             string     `json:"id"`
	EventID        string     `json:"event_id"`
	EventType      string     `json:"event_type"`
	Status         string     `json:"status"` // pending, delivered or failed
	Attempts       int        `json:"attempts"`
	NextAttemptAt  *time.Time `json:"next_attempt_at"`
	LastError      string     `json:"last_error"`
	ResponseStatus int        `json:"response_status"` // 0: there was no answer
	DeliveredAt    *time.Time `json:"delivered_at"`
	CreatedAt      time.Time  `json:"created_at"`
}

// The types of events. More may follow: ignore those that you do not know.
const (
	EventConnectionCreated         = "connection.created"
	EventConnectionUpdated         = "connection.updated"
	EventConnectionExhausted       = "connection.exhausted"
	EventConnectionRevoked         = "connection.revoked"
	EventConnectionFrozen          = "connection.frozen"
	EventConnectionResumed         = "connection.resumed"
	EventConnectionRiskWarning     = "connection.risk_warning"
	EventConnectionChildEnded      = "connection.child_ended"
	EventAllocationChangeRequested = "allocation_change.requested"
	EventAllocationChangeApproved  = "allocation_change.approved"
	EventAllocationChangeDenied    = "allocation_change.denied"
	EventAppSpendLimitReached      = "app.spend_limit_reached"
	EventAppSuspended              = "app.suspended"
	EventRequestSettled            = "request.settled"
	EventRequestRefunded           = "request.refunded"
	EventRealtimeSessionEnded      = "realtime_session.ended"
)

// An Event is something that has happened to an app or to one of its connections. The same event may arrive twice, with
// the same ID, and events may overtake each other: Seq rises with each event of a connection.
type Event struct {
	Resource
	ID           string    `json:"id"`
	Type         string    `json:"type"`
	CreatedAt    time.Time `json:"created_at"`
	AppID        string    `json:"app_id"`
	ConnectionID string    `json:"connection_id"` // "" of events about the whole app
	Sandbox      bool      `json:"sandbox"`       // whether it is about fake money
	Test         bool      `json:"test"`          // whether it is a sample
	Seq          int64     `json:"seq"`
	APIVersion   string    `json:"api_version"`
	Data         EventData `json:"data"`
}

// An EventData is the object that an event is about. One field is set, and ReviewURL next to a frozen connection.
type EventData struct {
	Connection        *ConnectionInfo    `json:"connection"`         // of all other connection.…
	Child             *EndedChild        `json:"child"`              // of connection.child_ended
	ReviewURL         string             `json:"review_url"`         // of connection.frozen: where the user resumes it
	AllocationRequest *AllocationRequest `json:"allocation_request"` // of allocation_change.…
	App               *AppSpendLimit     `json:"app"`                // of app.spend_limit_reached and app.suspended
	Request           *Receipt           `json:"request"`            // of request.settled and request.refunded
	Session           json.RawMessage    `json:"session"`            // of realtime_session.ended: the voice session
}

// An AppSpendLimit is the limit that all users of an app have reached together, or the suspension of an app.
type AppSpendLimit struct {
	ID           string     `json:"id"`
	LimitMC      int64      `json:"limit_mc"`
	LimitDisplay string     `json:"limit_display"`
	WindowS      int64      `json:"window_s"`     // seconds
	SuspendedBy  string     `json:"suspended_by"` // risk or operator; of app.suspended
	Reason       string     `json:"reason"`       // of app.suspended
	SuspendedAt  *time.Time `json:"suspended_at"` // of app.suspended
}

// A TestAccount is a fake user with a fake balance.
type TestAccount struct {
	Resource
	ID                      string    `json:"wac_id"`
	Email                   string    `json:"email"`
	Sandbox                 bool      `json:"sandbox"`
	BalanceAvailableMC      int64     `json:"balance_available_mc"`
	BalanceAvailableDisplay string    `json:"balance_available_display"`
	BalanceReservedMC       int64     `json:"balance_reserved_mc"`
	BalanceReservedDisplay  string    `json:"balance_reserved_display"`
	Tester                  string    `json:"tester"` // the address of the tester who has it, or ""
	CreatedAt               time.Time `json:"created_at"`
	Password                string    `json:"password"` // of Create only
}
