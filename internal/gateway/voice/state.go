package voice

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/models/pricing"
)

// Status is the state of spec §3, Realtime session.
type Status string

// A session waits for its ticket to be used, speaks, and has ended.
const (
	Pending Status = "pending"
	Live    Status = "live"
	Ended   Status = "ended"
)

// The end reasons of spec §3; a hold's error code is one, too.
const (
	ClientClosed      = "client_closed"
	AppEnded          = "app_ended"
	MaxDuration       = "max_duration"
	MaxCost           = "max_cost"
	IdleTimeout       = "idle_timeout"
	BudgetNotApproved = "budget_not_approved"
	ControlLost       = "control_lost"
	ConfigTampering   = "config_tampering"
	SidebandLost      = "sideband_lost"
	ProviderError     = "provider_error"
	TicketExpired     = "ticket_expired"
	ConnectionRevoked = "connection_revoked"
	ConnectionFrozen  = "connection_frozen"
	ServerShutdown    = "server_shutdown"
)

// When a session that is asked to end does so (spec §4.4).
const (
	AfterHeard = "after_heard"
	Immediate  = "immediate"
)

// Settings are what a session was created with. They never change.
type Settings struct {
	ID              string
	Mock            bool
	MaxOutputTokens int64
	ContextTokens   int64
	MaxDuration     time.Duration
	Idle            time.Duration
	MaxCostMC       *money.MC
	BudgetBlockMC   *money.MC
	ConfirmBlocks   bool
	EndWithControl  bool     // on_control_lost: end
	Updatable       []string // what the browser may change: voice, instructions
}

// Config is what the provider's session must be set to.
type Config struct {
	Model        string
	Instructions string
	Voice        string          // "" = the model's own
	Tools        json.RawMessage // flat function tools, an array
	ToolChoice   json.RawMessage
	MaxOutput    int64
	Speaks       bool // replies begin by themselves when the user has spoken
}

// Reply is a reply that the provider has begun and not finished.
type Reply struct {
	ID        string
	StartedUS int64
	AudioUS   int64 // when the user began to hear it; 0 = not yet
	CutUS     int64 // when the user stopped to hear it; 0 = not yet
	TextBytes int64 // of what was said, as far as it was told
	GiveUpUS  int64 // when it is billed by our own count; 0 = it may take its time
	Held      bool  // the hold is for it
}

// Playing is a finished reply that the user still hears.
type Playing struct {
	ID      string
	UntilUS int64 // when it must be over
}

// HoldPhase says where the hold of the next reply stands.
type HoldPhase string

// A hold is asked of the ledger, made, and given back by asking again.
const (
	NoHold    HoldPhase = ""
	Asking    HoldPhase = "asking"
	Held      HoldPhase = "held"
	Releasing HoldPhase = "releasing"
)

// Ending is how a session ends.
type Ending struct {
	Reason    string
	Immediate bool
	DueUS     int64 // until when the user may be let to hear the reply
	Closing   bool  // the call is hung up; only money is still on its way
}

// State is everything that a session's rules know of it. It is kept as JSON, for
// the node that takes the session over.
type State struct {
	Settings
	Config    Config
	Status    Status
	CallID    string
	CreatedUS int64
	TicketUS  int64 // until when the ticket may be used
	Used      bool  // the ticket
	StartedUS int64

	N         int64 // of the newest reply in the ledger, held for or charged
	HoldN     int64 // of the hold
	Hold      HoldPhase
	Owed      []Settle // replies whose charge is on its way into the ledger
	Replies   []Reply
	Playing   *Playing
	Billed    []string // the newest replies that were given to the ledger
	ChargedMC money.MC
	Count     int64
	Failures  int64 // replies that the provider failed in a row

	Bound  pricing.VoiceUsage // the context of the next reply, as far as it is known
	Grown  int64              // text tokens that were added to it since
	Heard  time.Duration      // what the user has said since
	ActUS  int64              // when somebody last spoke
	TalkUS int64              // since when the user speaks; 0 = silent

	Watched    bool  // the sideband is there
	LostUS     int64 // since when it is not
	EverWatch  bool
	Controlled bool  // the control channel is there
	ControlUS  int64 // since when it is not; 0 = it never was
	Updates    int64 // of ours that the provider has not yet confirmed
	Resets     int64
	Outputs    []string        // call ids that the app has answered
	Wanted     json.RawMessage `json:",omitempty"` // a response.create of the app that waits for its hold; no null of JSON

	Blocks  int64 // how many of budget_block_mc are spent
	BlockUS int64 // until when the app must approve; 0 = nothing to approve
	Barred  bool  // it did not: the next reply ends the session
	Warned  bool

	Ending *Ending
	Reason string // why it has ended
}

// clone lets a step change its copy.
func (s State) clone() State {
	s.Replies, s.Owed, s.Billed, s.Outputs = slices.Clone(s.Replies), slices.Clone(s.Owed), slices.Clone(s.Billed), slices.Clone(s.Outputs)
	if s.Playing != nil {
		p := *s.Playing
		s.Playing = &p
	}
	if s.Ending != nil {
		e := *s.Ending
		s.Ending = &e
	}
	return s
}
