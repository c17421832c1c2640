package session

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/models/pricing"
)

// Status is the state of a session in the API (contract §3, Realtime session).
type Status string

// A session is pending until its ticket is used and the provider has answered, then live, then
// ended.
const (
	Pending Status = "pending"
	Live    Status = "live"
	Ended   Status = "ended"
)

// The end reasons of contract §3. The error code of a refused hold is an end reason, too.
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
	UserStopped       = "user_stopped" // the user stopped the session on the dashboard (decision 067)
	Unavailable       = "unavailable"  // the database did not answer; also the code of a refused hold
	RateLimited       = "rate_limited" // MaxReplies are used up; also the code of a refused hold
)

// When a session ends that its app asked to end (contract §4.4).
const (
	AfterHeard = "after_heard" // when the user has heard the current reply
	Immediate  = "immediate"
)

// Settings are what a session was created with. They never change.
type Settings struct {
	ID               string
	Mock             bool
	MaxOutputTokens  int64 // of each reply
	ContextTokens    int64 // what the model reads at most
	MaxDuration      time.Duration
	IdleTimeout      time.Duration
	MaxCostMC        *money.MC
	BudgetBlockMC    *money.MC
	ConfirmBlocks    bool     // the app must approve each budget block
	EndOnControlLost bool     // the session ends when the control channel is lost
	RelayAll         bool     `json:",omitempty"` // the app gets all events of the provider but audio (decision 195)
	ClientUpdatable  []string // what the browser may change: voice, instructions
	EventKey         string   `json:",omitempty"` // makes the ids of our own events ones that nobody can guess
}

// Reply is a reply that the provider has begun and not finished.
type Reply struct {
	ID        string
	StartedUS int64
	AudioUS   int64 // since when the user hears it; 0 = not yet
	SilentUS  int64 // since when the user no longer hears it; 0 = not yet
	TextBytes int64 // length of the text that the provider has reported of it
	GiveUpUS  int64 // when it is billed by our own count; 0 = no such time is set
	EventUS   int64 // time of its last event
	Held      bool  // the current hold is for it
	MaxOutput int64 // its output limit; 0 = not known

	OutOfBand bool          // it belongs to no conversation: its usage is not that of the context
	AddedText int64         // AddedTextTokens when it began: what its usage includes
	Speech    time.Duration // UserSpeech when it began

	BeginChanges int64 `json:",omitempty"` // State.BeginChanges when it began
}

// Playback is a finished reply that the user still hears.
type Playback struct {
	ReplyID string
	UntilUS int64 // when it must be over
}

// HoldPhase says where the current hold stands.
type HoldPhase string

// The current hold is requested from the ledger, then held, then charged or being released.
const (
	NoHold    HoldPhase = ""
	Requested HoldPhase = "requested"
	Held      HoldPhase = "held"
	Releasing HoldPhase = "releasing"
)

// SpendingCheck says what is known of the connection for the reply that the app has queued.
type SpendingCheck string

// The connection is asked for when the reply could begin, and allowed when it may spend.
const (
	NotChecked SpendingCheck = ""
	Checking   SpendingCheck = "checking"
	Allowed    SpendingCheck = "allowed"
)

// Ending is how a session ends.
type Ending struct {
	Reason     string
	BegunUS    int64 // when the end began
	Immediate  bool  // replies in progress are cancelled
	DeadlineUS int64 // how long the user may hear the current reply, or a cancelled one has to report its usage
	HungUp     bool  // the provider was asked to end the call
	CallGone   bool  // the provider has ended the call
}

// State is everything that the rules know of a session. It is saved as JSON, so that another node
// can take the session over.
type State struct {
	Settings
	Config          Config
	Status          Status
	CallID          string // the provider's name of the call; "" = none yet
	CreatedUS       int64
	TicketExpiresUS int64
	TicketUsed      bool
	StartedUS       int64

	LastN      int64 // number of the newest reply that was held or charged
	Numbers    int64 // how many numbers of replies were given, at most MaxReplies and those that are in progress then
	Hold       HoldPhase
	HoldN      int64    // number of the reply that the current hold is for
	HoldOutput int64    // the output limit that the newest hold covers; 0 = MaxOutputTokens
	HoldText   int64    // the uncached text and image tokens of input that the newest hold covers
	HoldAudio  int64    // the uncached audio tokens of input that the newest hold covers
	AppOutput  int64    // the output limit that the app has set by session.update; 0 = MaxOutputTokens
	Unsettled  []Settle // charges that the ledger has not confirmed
	Replies    []Reply  // in progress
	Playback   *Playback
	BilledIDs  []string // of the newest replies and transcripts that were given to the ledger

	Transcripts []Transcript `json:",omitempty"` // that are to come

	ChargedMC  money.MC
	ReplyCount int64 // charged replies
	Failures   int64 // replies in a row that the provider failed

	Context         pricing.VoiceUsage // the context of the next reply, as the last usage reported it
	AddedTextTokens int64              // text that was added to the context since, rounded up
	UserSpeech      time.Duration      // how long the user has spoken since
	BeginChanges    int64              `json:",omitempty"` // how often the begin of the context has changed
	LastItemID      string             `json:",omitempty"` // the last item of the conversation; "" = not known
	SpokenItemID    string             `json:",omitempty"` // what the last reply has said; "" = nothing, or not known
	LastActivityUS  int64              // when the user or the model last spoke
	SpeakingUS      int64              // since when the user speaks; 0 = silent
	SpeechStartMS   int64              // the same by the provider's clock of the audio

	SidebandAttached bool
	SidebandLostUS   int64 // since when the sideband is missing
	LostCleanly      bool  // the provider closed the last sideband as at the end of a call
	EverAttached     bool
	UnwatchedUS      int64 // since when a call that had a sideband has none; 0 = it has one
	Unheard          bool  // the context may hold speech that no sideband has reported
	ControlAttached  bool
	ControlLostUS    int64    // since when the control channel is missing; 0 = it never was there
	Updates          []Update `json:",omitempty"` // our session.update that are not answered, in their order
	LastUpdate       int64    // number of the newest one
	AudioHeard       bool     // the model has spoken, so the provider refuses another voice
	ConfigResets     int64    // how often the browser tried to change what counts as tampering
	// Reference is the first session that the provider has confirmed, without what Config has, ids and times. Nil =
	// none is known yet. Unrestorable are paths in it that the provider does not set back.
	Reference    json.RawMessage `json:",omitempty"`
	Unrestorable []string        `json:",omitempty"`
	ToolCallIDs  []string        // whose results the app has sent
	// RetrievalsUS is when the app's retrievals would have come at their rate (GCRA); 0 = there was none.
	RetrievalsUS int64 `json:",omitempty"`
	// QueuedReply is a response.create of the app that waits for its hold. It is omitted when empty:
	// a null in the saved JSON would read back as the four bytes "null".
	QueuedReply json.RawMessage `json:",omitempty"`
	Spending    SpendingCheck   // for QueuedReply

	Blocks         int64 // how many budget blocks are spent
	ApproveByUS    int64 // until when the app must approve the block; 0 = nothing to approve
	ApprovalMissed bool  // the app did not: the next reply ends the session
	NearMaxCost    bool  `json:",omitempty"` // the app is to be warned of max_cost_mc when the session is live
	CostWarned     bool  // the app was warned of max_cost_mc

	Ending    *Ending
	EndReason string
}

// Forget drops what only a session needs that runs: the app's texts and names, and what is in progress.
func (s *State) Forget() {
	s.Config.Instructions, s.Config.Tools, s.Config.ToolChoice, s.QueuedReply = "", nil, nil, nil
	s.ToolCallIDs, s.BilledIDs, s.Replies, s.Playback, s.Updates = nil, nil, nil, nil, nil
	s.Reference, s.Unrestorable, s.Config.Transcription, s.EventKey = nil, nil, nil, ""
}

// clone copies s, so that a step may change the copy.
func (s State) clone() State {
	s.Replies = slices.Clone(s.Replies)
	s.Unsettled = slices.Clone(s.Unsettled)
	s.Transcripts = slices.Clone(s.Transcripts)
	s.BilledIDs = slices.Clone(s.BilledIDs)
	s.ToolCallIDs = slices.Clone(s.ToolCallIDs)
	s.Updates = slices.Clone(s.Updates)
	s.Unrestorable = slices.Clone(s.Unrestorable)
	if s.Playback != nil {
		p := *s.Playback
		s.Playback = &p
	}
	if s.Ending != nil {
		e := *s.Ending
		s.Ending = &e
	}
	return s
}
