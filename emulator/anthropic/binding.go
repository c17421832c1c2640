package anthropic

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/purserhq/purser/emulator/exchange"
)

// A thinking block is bound to what stood before it: its signature holds hashes
// of the system prompt, the tools and the earlier messages, and of the block
// itself (provider notes B.8).

// signThought makes the signature of a block that follows the first n turns.
func (c *messages) signThought(n int, thought string) string {
	text := "emulated|" + c.model.ID + "|" + c.hashPrefix(n) + "|" + shortHash([]byte(thought))
	return base64.StdEncoding.EncodeToString([]byte(text))
}

// hashPrefix is the hash of all that stands before turn n.
func (c *messages) hashPrefix(n int) string {
	turns := slices.Clone(c.turns[:n])
	return shortHash(canonicalize(exchange.Encode(map[string]any{
		"system": c.instructions,
		"tools":  c.boundTools(),
		"turns":  turns,
	})))
}

// boundTools are the tools without what does not bind.
func (c *messages) boundTools() []customTool {
	tools := slices.Clone(c.request.Tools)
	for i := range tools {
		tools[i].CacheControl = nil
	}
	return tools
}

// canonicalize writes JSON in one way.
func canonicalize(v raw) []byte {
	if err := v.Canonicalize(); err != nil {
		panic(err) // we have just encoded it
	}
	return v
}

func shortHash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:12])
}

// checkBindings checks the thinking blocks that came back. Those of another model are
// dropped in silence, those that are bound to something else are refused, or
// dropped if the client asked for that.
func (c *messages) checkBindings() *exchange.Refusal {
	drop := c.request.Thinking != nil && c.request.Thinking.BlockBinding != nil &&
		c.request.Thinking.BlockBinding.PrefixMismatchBehavior == "drop_block"
	for i := range c.turns {
		var kept []inputBlock
		for _, b := range c.turns[i].Blocks {
			verdict, ok := "", true
			if b.Type == "thinking" {
				verdict, ok = c.verifySignature(i, b.Signature, b.Thinking)
			} else if b.Type == "redacted_thinking" {
				verdict, ok = c.verifySignature(i, b.Data, "")
			}
			switch {
			case ok && verdict == "":
				kept = append(kept, b)
			case ok: // not for this model
				c.dropBlock(b.at, "model_binding_mismatch")
			case verdict == "prefix" && drop:
				c.dropBlock(b.at, "prefix_binding_mismatch")
			case verdict == "prefix":
				return badRequest(
					"%s: Invalid `signature` in `thinking` block: it is bound to a different conversation", b.at)
			default:
				return badRequest("%s: Invalid `signature` in `thinking` block", b.at)
			}
		}
		c.turns[i].Blocks = kept
	}
	return c.checkFirstThought()
}

func (c *messages) dropBlock(at, reason string) {
	c.dropped = append(c.dropped, map[string]string{"type": "thinking_dropped", "path": at, "reason": reason})
}

// verifySignature says what is wrong with a signature of a block in turn i: "other" is
// another model's, which is no mistake.
func (c *messages) verifySignature(i int, signature, thought string) (verdict string, ok bool) {
	text, err := base64.StdEncoding.DecodeString(signature)
	fields := strings.Split(string(text), "|")
	switch {
	case err != nil || len(fields) != 4 || fields[0] != "emulated":
		return "signature", false
	case fields[1] != c.model.ID:
		return "other", true
	case fields[3] != shortHash([]byte(thought)):
		return "signature", false
	case fields[2] != c.hashPrefix(i):
		return "prefix", false
	}
	return "", true
}

// checkFirstThought checks the older rule: with a budget, a turn with calls begins
// with its thoughts.
func (c *messages) checkFirstThought() *exchange.Refusal {
	if c.request.Thinking == nil || c.request.Thinking.Type != "enabled" {
		return nil
	}
	for i, turn := range c.turns {
		if len(toolUseIDs(turn.Blocks)) > 0 && !strings.HasSuffix(turn.Blocks[0].Type, "thinking") {
			return badRequest(
				"messages.%d.content.0.type: Expected `thinking` or `redacted_thinking`, but found `%s`. When "+
					"`thinking` is enabled, a final `assistant` message must start with a thinking "+
					"block.", i, turn.Blocks[0].Type)
		}
	}
	return nil
}
