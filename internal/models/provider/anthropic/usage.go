package anthropic

import (
	"github.com/purserhq/purser/internal/models/provider"
)

// usage is the usage that the provider has reported so far. Its counts are cumulative: each report replaces the counts
// that it names. Unlike OpenAI's prompt_tokens, input_tokens does not include cached input.
type usage struct {
	input, cached, written, output, thinking int64 // -1 = not reported
	absurd                                   bool
}

func newUsage() usage { return usage{-1, -1, -1, -1, -1, false} }

// addReport reads a report. The output of the first report is provisional and ignored.
func (u *usage) addReport(raw []byte, first bool) {
	if raw == nil {
		return
	}
	var input, cached, written, output, details, thinking []byte
	ok := readMembers(raw, member{"input_tokens", &input}, member{"cache_read_input_tokens", &cached},
		member{"cache_creation_input_tokens", &written},
		member{"output_tokens", &output}, member{"output_tokens_details", &details})
	if ok && details != nil {
		ok = readMembers(details, member{"thinking_tokens", &thinking})
	}
	ok = ok && readCount(input, &u.input) && readCount(cached, &u.cached) && readCount(written, &u.written)
	before := u.output
	if ok && !first {
		ok = readCount(output, &u.output) && readCount(thinking, &u.thinking)
	}
	if !ok || u.output < before {
		u.absurd = true
	}
}

const maxCount = 1 << 53

// readCount reads a whole number from 0 to 2^53. An absent count changes nothing.
func readCount(raw []byte, to *int64) bool {
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

// makeUsage returns the usage in disjoint token classes. It returns nil if a required count is missing or the counts
// cannot be true (decision 019).
func (u *usage) makeUsage() *provider.Usage {
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
