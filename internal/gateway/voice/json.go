package voice

import "github.com/purserhq/purser/internal/gateway/voice/session"

// mustJSON renders a value that always marshals: one of our types, or decoded JSON.
func mustJSON(v any) []byte { return session.EncodeJSON(v) }
