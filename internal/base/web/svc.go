package web

// The header names with the neutral token of the contract, and the contract's version (contract §9). They are spelled
// only here.
const (
	VersionHeader = "Svc-Version"
	FeatureHeader = "X-Svc-Feature"
	FitHeader     = "X-Svc-Fit"   // "1": lower the output cap of a call that does not fit; "0": refuse it
	IgnoredHeader = "Svc-Ignored" // of the members of a request that were dropped (decision 012)
	// Says that a refusal was asked for by the message and is not real (decision 081).
	SimulatedHeader = "Svc-Simulated"
	// AfterHeader has where to go on in a list that grows (decision 004).
	AfterHeader = "Svc-After"
	// Of webhook deliveries (contract §6).
	SignatureHeader = "Svc-Signature"
	EventIDHeader   = "Svc-Event-Id"
	Version         = "0.1.0"
)
