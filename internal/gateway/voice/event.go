package voice

import (
	"encoding/json"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger"
	"github.com/purserhq/purser/internal/models/pricing"
)

// An Event is something that happened to a session.
type Event interface{ event() }

// What happens to a session.
type (
	// TicketUsed says that the browser came, and that this node has the session.
	TicketUsed struct{}
	// Answered says that the call is up.
	Answered struct{ CallID string }
	// NotAnswered says that the provider refused the call.
	NotAnswered struct{}
	// Adopted says that another node has taken the session over.
	Adopted struct{}
	// SidebandUp and SidebandDown are about our own eye on the call. Gone says that
	// the call is no longer there.
	SidebandUp   struct{}
	SidebandDown struct{ Gone bool }
	// DialFailed says that the sideband could not be attached in time.
	DialFailed struct{ Gone bool }
	// ControlUp and ControlDown are about the app's channel.
	ControlUp   struct{}
	ControlDown struct{}
	// FromApp is an event of the control channel, checked by parseControl.
	FromApp struct{ control }
	// FromProvider is an event of the sideband.
	FromProvider struct {
		providerEvent
		Raw json.RawMessage
	}
	// HoldMade and HoldRefused answer Hold.
	HoldMade struct {
		N        int64
		AmountMC money.MC
	}
	HoldRefused struct {
		N    int64
		Code string
	}
	// Settled answers Settle; a reply that was not charged has no entry.
	Settled struct {
		N     int64
		Reply string
		Entry *ledger.Entry
		Usage pricing.VoiceUsage
		Warn  bool // the connection spends fast

	}
	// Released answers Release.
	Released struct{ N int64 }
	// Halt ends a session at once, for what happened to its connection or app.
	Halt struct{ Reason string }
	// Shutdown says that the node stops.
	Shutdown struct{}
	// EndAsked is the app's POST end.
	EndAsked struct{ Immediate bool }
	// Tick says that time has passed.
	Tick struct{}
)

func (TicketUsed) event()   {}
func (Answered) event()     {}
func (NotAnswered) event()  {}
func (Adopted) event()      {}
func (SidebandUp) event()   {}
func (SidebandDown) event() {}
func (DialFailed) event()   {}
func (ControlUp) event()    {}
func (ControlDown) event()  {}
func (FromApp) event()      {}
func (FromProvider) event() {}
func (HoldMade) event()     {}
func (HoldRefused) event()  {}
func (Settled) event()      {}
func (Released) event()     {}
func (Halt) event()         {}
func (Shutdown) event()     {}
func (EndAsked) event()     {}
func (Tick) event()         {}

// An Action is something that a step wants done. Actions are done in their order.
type Action interface{ action() }

// What a step may want.
type (
	// Persist keeps the state, before anything after it is done.
	Persist struct{}
	// Hold asks the ledger for the hold of reply N, which reads at most so many
	// tokens. HoldMade or HoldRefused answers.
	Hold struct{ N, Text, Audio int64 }
	// Settle charges a reply: to hold N, or without one. Settled answers.
	Settle struct {
		N         int64
		Reply     string
		Usage     pricing.VoiceUsage
		Estimated bool
		Unheld    bool // no hold was made for it
	}
	// Release gives hold N back. Released answers.
	Release struct{ N int64 }
	// Upstream sends an event to the provider.
	Upstream struct{ Event any }
	// Control sends an event to the app, if it listens.
	Control struct{ Event any }
	// Dial attaches the sideband. SidebandUp or DialFailed answers.
	Dial struct{ Again bool }
	// HangUp ends the call at the provider, and is repeated until it is gone.
	HangUp struct{}
	// Finish ends the session.
	Finish struct{ Reason string }
)

func (Persist) action()  {}
func (Hold) action()     {}
func (Settle) action()   {}
func (Release) action()  {}
func (Upstream) action() {}
func (Control) action()  {}
func (Dial) action()     {}
func (HangUp) action()   {}
func (Finish) action()   {}
