package session

import (
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/models/pricing"
)

// An Action is something that a step asks its caller to do. Actions are carried out in their order.
type Action interface{ action() }

// What a step may ask for.
type (
	// Persist saves the state. It comes first: what follows must not be done before it is saved.
	Persist struct{}
	// Hold asks the ledger for the hold of reply or transcript N, whose input is at most so many tokens. Its output
	// limit may be lowered to what fits. HoldMade or HoldRefused answers.
	Hold struct {
		N          int64
		Transcript bool // of the user's speech, not a reply
		pricing.VoiceInput
		MaxOutputTokens int64     // the highest output limit
		BudgetMC        *money.MC // the most that the reply may cost; nil = no such bound
	}
	// CheckSpending asks whether the connection may spend. MaySpend or Halt answers.
	CheckSpending struct{}
	// Settle charges a reply or a transcript to hold N, or without a hold. Settled answers.
	Settle struct {
		N          int64
		ReplyID    string // or the name of a transcript
		Transcript bool   `json:",omitempty"`
		Usage      pricing.VoiceUsage
		Estimated  bool // by our own count; the charge is at most the hold
		Unheld     bool // the reply has no hold
		Silent     bool // it failed or said nothing: it is free while the service bears that (decision 112)

		FirstAudioMS int64  // from the reply's begin to its audio, rounded up; 0 = not known
		DurationMS   int64  // from the reply's begin to its end, rounded up; 0 = not known
		Status       string // of the reply, by the provider; "" = not known
	}
	// Release ends hold N without a charge. Released answers.
	Release struct{ N int64 }
	// Unmetered reports what was or may have been said while no sideband was attached: how long that
	// was, or by how much more audio than was known the context has grown since. Or it reports an event of the provider
	// that could not be read.
	Unmetered struct {
		Gap         time.Duration
		AudioTokens int64
		Event       string // the type of an event that could not be read; "" = no event is meant
	}
	// ToProvider sends an event to the provider.
	ToProvider struct{ Event any }
	// ToApp sends an event to the app, if its control channel is open.
	ToApp struct {
		Event any
		// Saved says that the app may rely on the state: the event, and those after it, go out when it is saved.
		Saved bool
	}
	// AttachSideband opens the sideband; Again if the call had one before. SidebandUp or
	// AttachFailed answers.
	AttachSideband struct{ Again bool }
	// HangUp ends the call at the provider. The caller repeats it until the call is gone.
	HangUp struct{}
	// Finish writes the end of the session.
	Finish struct{ Reason string }
)

func (Persist) action()        {}
func (Hold) action()           {}
func (CheckSpending) action()  {}
func (Settle) action()         {}
func (Release) action()        {}
func (Unmetered) action()      {}
func (ToProvider) action()     {}
func (ToApp) action()          {}
func (AttachSideband) action() {}
func (HangUp) action()         {}
func (Finish) action()         {}
