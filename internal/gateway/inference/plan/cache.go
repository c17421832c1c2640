package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

// cacheControl ends the part of a request that the provider's cache should keep (decision 071).
type cacheControl struct {
	Type    string         `json:"type"`
	TTL     *string        `json:"ttl"`
	Unknown jsontext.Value `json:",unknown"`
}

// readMark reports whether a member at path is marked. A longer lifetime has another price, which is
// not in the price list, so it is refused.
func (r *Request) readMark(c *cacheControl, path string) (bool, error) {
	if c == nil {
		return false, nil
	}
	if path != "" {
		path += "."
	}
	r.IgnoreIn(path+"cache_control", c.Unknown)
	switch {
	case c.Type != "ephemeral":
		return false, invalid("%scache_control.type: must be ephemeral", path)
	case c.TTL != nil && *c.TTL != "5m":
		return false, invalid("%scache_control.ttl: only 5m is offered; a longer lifetime has another price", path)
	}
	return true, nil
}

// maxCacheKey bounds prompt_cache_key, in bytes.
const maxCacheKey = 512

// readCache reads the members that concern the provider's cache. A mark on the request itself is
// one on its last message.
func readCache(b *body, p *Request) error {
	marked, err := p.readMark(b.CacheControl, "")
	if err != nil {
		return err
	}
	if n := len(p.Turns); n > 0 && marked {
		p.Turns[n-1].MarkEnd()
	}
	p.NoCacheMarks = b.Cache != nil && !*b.Cache
	return p.SetCacheKey(b.PromptCacheKey)
}

// SetCacheKey sets the app's key of the provider's cache, prompt_cache_key; nil = none.
func (r *Request) SetCacheKey(key *string) error {
	if key == nil {
		return nil
	}
	if *key == "" || len(*key) > maxCacheKey {
		return invalid("prompt_cache_key: must have 1 to %d bytes", maxCacheKey)
	}
	r.CacheKey = *key
	return nil
}

// marksPrefixes reports whether Purser marks prefixes by itself: unless the app or the request says
// no.
func marksPrefixes(in *Input) bool { return in.Caller.App.PromptCache && !in.Request.NoCacheMarks }

// chooseCacheKey returns the cache key of a call: of the app's key, or of the connection alone.
func chooseCacheKey(in *Input) string {
	appKey := in.Request.CacheKey
	if appKey == "" && !marksPrefixes(in) {
		return ""
	}
	return hashCacheKey(in.Caller.ConnectionID, appKey)
}

// hashCacheKey returns the key under which the provider's cache finds the prefixes of a connection.
// The app's own key divides them further. The provider learns neither the key nor the connection,
// and no two connections share a key.
func hashCacheKey(connectionID, appKey string) string {
	sum := sha256.Sum256([]byte("prompt_cache_key\x00" + connectionID + "\x00" + appKey))
	return hex.EncodeToString(sum[:16])
}

// minCachedTokens is the shortest request that is marked, in tokens by our count. It is the least
// minimum of any model; where a model's is higher, the provider ignores the mark and charges nothing.
const minCachedTokens = 1024

// marksPay reports whether the provider charges for what it writes to its cache, and whether the
// first read saves more than the write costs.
func marksPay(s catalog.Step) bool {
	return s.CacheWrite > s.Input && s.CacheWrite-s.Input < s.Input-s.Cached
}

// markPrefix returns the request with marks where the next call will probably go on (decision 071):
// the end of tools and system prompt, the end of what the previous call sent, and the end of the
// request. It marks conversations only: requests in which the model has spoken, and requests that
// leave the model the choice of a tool, whose result comes next. A single question is not repeated,
// so its write would not be paid back. Marks of the app are left alone.
func markPrefix(r *provider.Request, inputTokens int64, rates catalog.Rates) {
	spoken := slices.IndexFunc(r.Turns, func(t conversation.Turn) bool { return t.Role == "assistant" })
	choosesTools := len(r.Tools) > 0 && (r.ToolChoice.Mode == "" || r.ToolChoice.Mode == "auto")
	if inputTokens < minCachedTokens || spoken < 0 && !choosesTools || !marksPay(rates.At(inputTokens)) || hasMarks(r) {
		return
	}
	r.Turns = slices.Clone(r.Turns) // the parsed request stays as it is
	mark := func(i int) {
		r.Turns[i].Blocks = slices.Clone(r.Turns[i].Blocks)
		r.Turns[i].MarkEnd()
	}
	last := len(r.Turns) - 1
	system := slices.IndexFunc(r.Turns, func(t conversation.Turn) bool { return !t.IsSystem() })
	switch {
	case system > 0:
		mark(system - 1)
	case len(r.Tools) > 0:
		r.Tools = slices.Clone(r.Tools)
		r.Tools[len(r.Tools)-1].CacheBreakpoint = true
	}
	// The provider looks back 20 blocks for a prefix that it knows, and a step with many calls adds more.
	for i := last; i > 0; i-- {
		if r.Turns[i].Role == "assistant" && r.Turns[i-1].Role != "assistant" {
			mark(i - 1)
			break
		}
	}
	mark(last)
}

// hasMarks reports whether a request has a mark.
func hasMarks(r *provider.Request) bool {
	return slices.ContainsFunc(r.Tools, func(t provider.Tool) bool { return t.CacheBreakpoint }) ||
		slices.ContainsFunc(r.Turns, func(t conversation.Turn) bool { return t.IsMarked() })
}
