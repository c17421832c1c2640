package anthropic

import (
	"strconv"

	"github.com/purserhq/purser/internal/models/provider"
)

// usage is what the provider has reported so far. Its counts are cumulative:
// each report replaces what it names. Cached input is not part of input_tokens,
// as it is of OpenAI's prompt_tokens.
type usage struct {
	input, cached, written, output, thinking int64 // -1 = not reported
	absurd                                   bool
}

func newUsage() usage { return usage{-1, -1, -1, -1, -1, false} }

// read takes in a report. The output of a first one is provisional.
func (u *usage) read(raw []byte, first bool) {
	if raw == nil {
		return
	}
	var input, cached, written, output, details, thinking []byte
	ok := pick(raw, member{"input_tokens", &input}, member{"cache_read_input_tokens", &cached},
		member{"cache_creation_input_tokens", &written},
		member{"output_tokens", &output}, member{"output_tokens_details", &details})
	if ok && details != nil {
		ok = pick(details, member{"thinking_tokens", &thinking})
	}
	ok = ok && count(input, &u.input) && count(cached, &u.cached) && count(written, &u.written)
	before := u.output
	if ok && !first {
		ok = count(output, &u.output) && count(thinking, &u.thinking)
	}
	if !ok || u.output < before {
		u.absurd = true
	}
}

const maxCount = 1 << 53

// count reads a whole number from 0 to 2^53; absent changes nothing.
func count(raw []byte, to *int64) bool {
	if raw == nil {
		return true
	}
	if len(raw) > 16 {
		return false
	}
	n := int64(0)
	for _, c := range raw {
		if c < '0' || '9' < c {
			return false
		}
		n = n*10 + int64(c-'0')
	}
	*to = n
	return n <= maxCount
}

// total returns the usage in disjoint classes; nil if what must be there is
// missing, or if it cannot be true (decision 019).
func (u *usage) total() *provider.Usage {
	t := &provider.Usage{
		Input:      u.input,
		Cached:     max(u.cached, 0),
		CacheWrite: max(u.written, 0),
		Output:     u.output,
		Reasoning:  max(u.thinking, 0),
	}
	if u.absurd || t.Input < 0 || t.Output < 0 || t.Reasoning > t.Output ||
		t.Input+t.Cached+t.CacheWrite+t.Output > maxCount {
		return nil
	}
	return t
}

// appendUsage appends OpenAI's usage object, whose prompt includes what was cached.
func appendUsage(b []byte, u *provider.Usage) []byte {
	prompt := u.Input + u.Cached + u.CacheWrite
	b = strconv.AppendInt(append(b, `{"prompt_tokens":`...), prompt, 10)
	b = strconv.AppendInt(append(b, `,"completion_tokens":`...), u.Output, 10)
	b = strconv.AppendInt(append(b, `,"total_tokens":`...), prompt+u.Output, 10)
	b = strconv.AppendInt(append(b, `,"prompt_tokens_details":{"cached_tokens":`...), u.Cached, 10)
	b = strconv.AppendInt(append(b, `,"cache_write_tokens":`...), u.CacheWrite, 10)
	b = strconv.AppendInt(append(b, `},"completion_tokens_details":{"reasoning_tokens":`...), u.Reasoning, 10)
	return append(b, "}}"...)
}
