package session

import (
	"encoding/json"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/models/pricing"
)

// An Event is something that happened to a session.
type Event interface{ event() }

// What can happen to a session.
type (
	// TicketUsed says that the browser used its ticket: this node runs the session.
	TicketUsed struct{}
	// CallAnswered says that the provider answered the browser's offer.
	CallAnswered struct{ CallID string }
	// CallRefused says that the provider did not answer the offer, and why. Details are error.details of the 502 that
	// the browser got.
	CallRefused struct {
		Message string
		Details map[string]any
	}
	// Adopted says that another node has taken the session over from a dead one, which was last heard
	// of at SinceUS; 0 = now.
	Adopted struct{ SinceUS int64 }
	// SidebandUp says that the sideband is attached.
	SidebandUp struct{}
	// SidebandDown says that the sideband is lost. Gone says that the call no longer exists. Clean says
	// that the provider closed the sideband as it does at the end of a call.
	SidebandDown struct{ Gone, Clean bool }
	// CallGone says that the call is hung up: the provider has confirmed HangUp, or knows no such call.
	CallGone struct{}
	// AttachFailed says that the sideband could not be attached in time. Gone is as above.
	AttachFailed struct{ Gone bool }
	// ControlUp says that the app opened its control channel.
	ControlUp struct{}
	// ControlDown says that the app's control channel is closed.
	ControlDown struct{}
	// FromApp is an event of the control channel.
	FromApp struct{ AppEvent }
	// FromProvider is an event of the sideband; ParseProviderEvent makes it.
	FromProvider struct {
		content providerEvent
		Raw     json.RawMessage // as the provider sent it, if the app gets it
	}
	// HoldMade answers Hold.
	HoldMade struct {
		N               int64
		AmountMC        money.MC
		MaxOutputTokens int64 // the output limit that the hold covers; 0 = the session's
		NearMaxCost     bool  // max_cost_mc has lowered it, or may leave no room for another reply
	}
	// HoldRefused answers Hold with the code of an error.
	HoldRefused struct {
		N    int64
		Code string
	}
	// Settled answers Settle.
	Settled struct {
		N         int64
		ReplyID   string
		Entry     *rules.Entry // nil if the reply was not charged
		Usage     pricing.VoiceUsage
		FastSpend bool // the charge took the connection over its warning threshold
		// Exhausted is the end reason that the bound is which a transcript cost more than; "" = it cost less.
		Exhausted string
	}
	// Released answers Release.
	Released struct{ N int64 }
	// MaySpend answers CheckSpending.
	MaySpend struct{}
	// Halt ends a session immediately because its connection or app may no longer spend.
	Halt struct{ Reason string }
	// DatabaseSilent says that the database has not answered this node for too long: replies can
	// neither be held nor be saved.
	DatabaseSilent struct{}
	// Shutdown says that the node stops.
	Shutdown struct{}
	// EndRequested says that the app asked for the end over the API.
	EndRequested struct{ Immediate bool }
	// Tick says that time has passed, and that no earlier event waits. LeaseOver says that the node has
	// not renewed its lease in time, so that another node may own the session: the times of the session
	// end nothing then.
	Tick struct{ LeaseOver bool }
)

func (TicketUsed) event()     {}
func (CallAnswered) event()   {}
func (CallRefused) event()    {}
func (Adopted) event()        {}
func (SidebandUp) event()     {}
func (SidebandDown) event()   {}
func (AttachFailed) event()   {}
func (CallGone) event()       {}
func (DatabaseSilent) event() {}
func (ControlUp) event()      {}
func (ControlDown) event()    {}
func (FromApp) event()        {}
func (FromProvider) event()   {}
func (HoldMade) event()       {}
func (HoldRefused) event()    {}
func (Settled) event()        {}
func (Released) event()       {}
func (MaySpend) event()       {}
func (Halt) event()           {}
func (Shutdown) event()       {}
func (EndRequested) event()   {}
func (Tick) event()           {}
