package web

// The header names in which the contract writes the service's own name, and the
// contract's version (spec §9). They are spelled here only.
const (
	VersionHeader = "Svc-Version"
	FeatureHeader = "X-Svc-Feature"
	Version       = "0.1.0"
)
