package shapes

import (
	"strconv"

	"github.com/purserhq/purser/internal/models/provider"
)

// Usage is what the canonical usage of a call says, in tokens.
type Usage struct {
	Prompt    int64 // with Cached and Written
	Cached    int64
	Written   int64 // to the provider's cache
	Output    int64 // with Reasoning
	Reasoning int64
}

// ReadUsage reads a canonical usage; nil has no tokens.
func ReadUsage(usage []byte) (u Usage) {
	read := func(name, value []byte) bool {
		n, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil {
			return true
		}
		switch n = max(n, 0); string(name) {
		case "prompt_tokens":
			u.Prompt = n
		case "cached_tokens":
			u.Cached = n
		case "cache_write_tokens":
			u.Written = n
		case "completion_tokens":
			u.Output = n
		case "reasoning_tokens":
			u.Reasoning = n
		}
		return true
	}
	provider.Members(usage, func(name, value []byte) bool {
		switch string(name) {
		case "prompt_tokens_details", "completion_tokens_details":
			provider.Members(value, read)
			return true
		}
		return read(name, value)
	})
	return u
}
