package google

import (
	"strconv"

	"github.com/purserhq/purser/internal/models/provider"
)

// counts are the members of usageMetadata. Most chunks of a stream have them. They are cumulative, but early chunks
// lack some.
type counts struct {
	prompt     int64 // includes cached
	cached     int64
	tools      int64 // input from the provider's own tools
	candidates int64 // the visible output
	thoughts   int64 // not in candidates
	total      int64 // -1 = it cannot be read
	absurd     bool
}

// add reads a later usageMetadata object. The last count that is not zero is kept.
func (c *counts) add(metadata []byte) {
	if metadata == nil {
		return
	}
	ok := readMembers(metadata, func(name, value []byte) bool {
		to := (*int64)(nil)
		switch string(name) {
		case "promptTokenCount":
			to = &c.prompt
		case "cachedContentTokenCount":
			to = &c.cached
		case "toolUsePromptTokenCount":
			to = &c.tools
		case "candidatesTokenCount":
			to = &c.candidates
		case "thoughtsTokenCount":
			to = &c.thoughts
		case "totalTokenCount": // noted only: the parts count
			if n, ok := readCount(value); !ok && string(value) != "null" {
				c.total = -1
			} else if n > 0 {
				c.total = n
			}
			return true
		default:
			return true
		}
		n, ok := readCount(value)
		if n > 0 {
			*to = n
		}
		return ok
	})
	c.absurd = c.absurd || !ok
}

// maxCount bounds a count. No call uses so many tokens, and up to here every count is exact in JSON.
const maxCount = 1 << 53

// readCount reads a whole number from 0 to 2^53.
func readCount(value []byte) (int64, bool) {
	n, err := strconv.ParseInt(string(value), 10, 64)
	return n, err == nil && 0 <= n && n <= maxCount
}

// makeUsage returns the usage in disjoint token classes. It returns nil if the counts are absent or cannot be true
// (decision 019).
func (c *counts) makeUsage() *provider.Usage {
	input, output := c.prompt+c.tools, c.candidates+c.thoughts
	switch {
	case c.absurd, c.prompt == 0, c.cached > input:
		return nil
	}
	return &provider.Usage{
		Input:      input - c.cached,
		Cached:     c.cached,
		Output:     output,
		Reasoning:  c.thoughts,
		SumDiffers: c.total != 0 && c.total != input+output,
	}
}
