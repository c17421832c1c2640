package anthropic

import (
	"bytes"
	"slices"

	"github.com/purserhq/purser/internal/models/conversation"
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

// countBreakpoints returns the numbers of breakpoints on tools and on what was said.
func countBreakpoints(r *provider.Request) (onTools, onTurns int) {
	for i := range r.Tools {
		if r.Tools[i].CacheBreakpoint {
			onTools++
		}
	}
	for i := range r.Turns {
		for j := range r.Turns[i].Blocks {
			if marksBlock(&r.Turns[i].Blocks[j]) {
				onTurns++
			}
		}
	}
	return onTools, onTurns
}

// marksBlock reports whether a breakpoint follows a block. A result is one block, whatever of it is marked.
func marksBlock(b *conversation.Block) bool {
	return b.CacheBreakpoint ||
		slices.ContainsFunc(b.Blocks, func(b conversation.Block) bool { return b.CacheBreakpoint })
}

// take reports whether the next breakpoint is sent.
func (p *breakpoints) take() bool {
	p.seen++
	return p.seen > p.surplus
}

// mark ends the cached part with the block that b ends with, if wrote says that there is one of the turn: a mark on
// what is not sent stands on what was sent before it. A block is marked once.
func (p *breakpoints) mark(b []byte, wrote bool) []byte {
	if !p.take() || !wrote || bytes.HasSuffix(b, []byte(cacheControl)) {
		return b
	}
	return append(b[:len(b)-1], cacheControl...)
}
