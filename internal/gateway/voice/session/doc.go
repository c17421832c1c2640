// Package session holds the rules of one voice session (contract §2, Realtime session; §3; §4.4) as
// one pure function, Step: from a State and an Event follow the next State and the Actions that the
// caller must carry out. The package does no I/O and has no clock, so every order of events can be
// tested without a provider, a ledger or an app.
//
// The rules are laid out by concern. Each file uses only those above it:
//
//	config.go         what the provider's session must be set to
//	action.go         what a step asks for
//	app_event.go      what the app sends on the control channel
//	provider_event.go what the provider sends on the sideband
//	event.go          everything that can happen to a session
//	state.go          what the rules know of a session
//	app_message.go    the service's own events for the app
//	machine.go        one step in progress
//	reference.go      the provider's session as it was first confirmed
//	update.go         our changes of the provider's session, until they are answered
//	end.go            how an end begins
//	billing.go        holds, charges, budget blocks
//	tampering.go      what the browser may not change
//	reply.go          the course of a reply
//	lifecycle.go      the call, the sideband, the control channel
//	progress.go       deadlines, the next hold, the completion of an end
//	control.go        the app's events
//	step.go           Step, which dispatches an event to its rule
package session
