package anthropic

import (
	"bytes"

	"github.com/purserhq/purser/internal/models/provider"
)

// maxBreakpoints is how many cache breakpoints the API takes in one request.
const maxBreakpoints = 4

// cacheControl is the member that ends the cached part of a request. A write lasts for five minutes, the only lifetime
// whose price is in the price list.
const cacheControl = `,"cache_control":{"type":"ephemeral"}}`

// breakpoints counts the cache breakpoints of a request in the order of the provider's prefix: tools, system prompt,
// messages. The first ones beyond maxBreakpoints are left out, because later ones cover what they do.
type breakpoints struct{ seen, surplus int }

// countBreakpoints returns the numbers of breakpoints on tools and on messages.
func countBreakpoints(r *provider.Request) (tools, messages int) {
	for i := range r.Tools {
		if r.Tools[i].CacheBreakpoint {
			tools++
		}
	}
	for i := range r.Messages {
		m := &r.Messages[i]
		n := 0
		for j := range m.Parts {
			if m.Parts[j].CacheBreakpoint {
				n++
			}
		}
		if marksEnd(m) {
			n++
		}
		if m.Role == "tool" {
			n = min(n, 1) // a result is one block
		}
		messages += n
	}
	return tools, messages
}

// marksEnd reports whether a breakpoint follows the last block of a message, in addition to those of its parts.
func marksEnd(m *provider.Message) bool {
	n := len(m.Parts)
	return m.CacheBreakpoint && (n == 0 || !m.Parts[n-1].CacheBreakpoint || len(m.ToolCalls) > 0)
}

// take reports whether the next breakpoint is sent.
func (p *breakpoints) take() bool {
	p.seen++
	return p.seen > p.surplus
}

// mark ends the cached part with the block that b ends with, if wrote says that there is one. A block is marked once.
func (p *breakpoints) mark(b []byte, wrote bool) []byte {
	if !p.take() || !wrote || bytes.HasSuffix(b, []byte(cacheControl)) {
		return b
	}
	return append(b[:len(b)-1], cacheControl...)
}
