package voice

import "encoding/json"

// mustJSON renders a value that always marshals: one of our types, or decoded JSON.
func mustJSON(v any) []byte {
	b, _ := json.Marshal(v)
	return b
}
