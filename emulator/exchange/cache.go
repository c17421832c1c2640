package exchange

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"
)

// A Block is a piece of a prompt that a cache keeps as a whole. Blocks are in the order of the provider's prefix.
type Block struct {
	hash   string
	end    InputTokens // the tokens up to its end
	marked bool        // Anthropic: cache_control
}

// AddBlock ends a block, whose content has been counted.
func (p *Prompt) AddBlock(content []byte, marked bool) {
	sum := sha256.Sum256(content)
	p.Blocks = append(p.Blocks, Block{hash: hex.EncodeToString(sum[:]), end: p.Input, marked: marked})
}

// A promptCache keeps prefixes of prompts, as the provider's cache does. It is deterministic but for time. The mutex of
// its server guards it.
type promptCache struct {
	kept map[string]time.Time // until when, by model, key and hashes of the blocks
}

// Lifetimes of a prefix since it was last used.
const (
	anthropicLifetime = 5 * time.Minute
	openAILifetime    = 30 * time.Minute
	googleLifetime    = 5 * time.Minute
)

// Rules of caches, in tokens.
const (
	openAIMinimum = 1024
	openAIStep    = 128
	lookBack      = 20 // blocks before a mark of Anthropic's
)

// usePrompt returns how many input tokens of a prompt are read from the cache, and how many are written to it. It
// keeps what is written.
func (e *Server) usePrompt(p *Prompt, now time.Time) (read, written int) {
	if len(p.Blocks) == 0 {
		return 0, 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	c := &e.cache
	keys := p.prefixKeys()
	tokens := func(i int) int { return p.Blocks[i].end.ReportedCount(e.ppm) }
	if p.Model.Provider == Anthropic {
		return c.useMarks(p, keys, tokens, now)
	}
	lifetime, minimum, step := googleLifetime, p.Model.MinCached, 1
	if p.Model.Provider == OpenAI {
		lifetime, minimum, step = openAILifetime, openAIMinimum, openAIStep
	}
	for i := len(keys) - 1; i >= 0 && read == 0; i-- {
		if n := tokens(i) / step * step; n >= minimum && c.isKept(keys[i], now) {
			read = n
		}
	}
	for i := range keys {
		if tokens(i) >= minimum {
			c.kept[keys[i]] = now.Add(lifetime)
		}
	}
	if n := tokens(len(keys)-1) / step * step; p.Model.CacheWrites && n >= minimum {
		written = n - read
	}
	return read, written
}

// useMarks is usePrompt for Anthropic: parts end at marks, and each mark finds what was kept up to 20 blocks before it.
func (c *promptCache) useMarks(p *Prompt, keys []string, tokens func(int) int, now time.Time) (read, written int) {
	last := -1
	for i, b := range p.Blocks {
		if !b.marked || tokens(i) < p.Model.MinCached {
			continue
		}
		last = i
		for j := i; j >= max(0, i-lookBack); j-- {
			if c.isKept(keys[j], now) {
				read = max(read, tokens(j))
				c.kept[keys[j]] = now.Add(anthropicLifetime)
				break
			}
		}
	}
	if last < 0 {
		return 0, 0
	}
	for i, b := range p.Blocks {
		if b.marked && tokens(i) >= p.Model.MinCached {
			c.kept[keys[i]] = now.Add(anthropicLifetime)
		}
	}
	return read, tokens(last) - read
}

func (c *promptCache) isKept(key string, now time.Time) bool { return now.Before(c.kept[key]) }

// prefixKeys returns the key of the prefix that ends with each block.
func (p *Prompt) prefixKeys() []string {
	sum := sha256.Sum256([]byte(strings.Join([]string{p.Model.ID, p.CacheKey}, "\n")))
	keys := make([]string, 0, len(p.Blocks))
	for _, b := range p.Blocks {
		sum = sha256.Sum256(slices.Concat(sum[:], []byte(b.hash)))
		keys = append(keys, hex.EncodeToString(sum[:]))
	}
	return keys
}
