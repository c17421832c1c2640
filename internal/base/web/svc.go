package web

// The header names in which the contract writes the service's own name, and the
// contract's version (contract §9). They are spelled here only.
const (
	VersionHeader = "Svc-Version"
	FeatureHeader = "X-Svc-Feature"
	// Of webhook deliveries (contract §6).
	SignatureHeader = "Svc-Signature"
	EventIDHeader   = "Svc-Event-Id"
	Version         = "0.1.0"
)
