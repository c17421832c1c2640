package messages

import (
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/gateway/shapes"
	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/images"
	"github.com/purserhq/purser/internal/models/provider"
)

type message struct {
	Role    string         `json:"role"`
	Content jsontext.Value `json:"content"`
	Unknown jsontext.Value `json:",unknown"`
}

// A block is a piece of content, with the members of its type.
type block struct {
	Type         string         `json:"type"`
	Text         *string        `json:"text"`
	Source       *source        `json:"source"`
	ID           string         `json:"id"`
	Name         string         `json:"name"`
	Input        jsontext.Value `json:"input"`
	ToolUseID    string         `json:"tool_use_id"`
	Content      jsontext.Value `json:"content"`
	IsError      *bool          `json:"is_error"`
	Thinking     *string        `json:"thinking"`
	Signature    string         `json:"signature"`
	Data         string         `json:"data"`
	CacheControl *cacheControl  `json:"cache_control"`
	Unknown      jsontext.Value `json:",unknown"`

	at string // its path
}

// A source is where an image comes from.
type source struct {
	Type      string         `json:"type"`
	MediaType string         `json:"media_type"`
	Data      string         `json:"data"`
	URL       string         `json:"url"`
	Unknown   jsontext.Value `json:",unknown"`
}

// at returns the path of an element of a list.
func at(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

// readBlocks reads content: a string, or an array of blocks.
func (r *reader) readBlocks(content jsontext.Value, path string) ([]block, error) {
	switch content.Kind() {
	case '"':
		text, err := jsontext.AppendUnquote(nil, content)
		if err != nil {
			return nil, plan.Invalid("%s: not a valid string", path)
		}
		s := string(text)
		return []block{{Type: "text", Text: &s, at: path}}, nil
	case '[':
	default:
		return nil, plan.Invalid("%s: must be a string or an array of blocks", path)
	}
	var blocks []block
	if err := decodeAt(content, &blocks, path); err != nil {
		return nil, err
	}
	if err := r.out.CountParts(len(blocks)); err != nil {
		return nil, err
	}
	for i := range blocks {
		blocks[i].at = at(path, i)
		r.out.IgnoreIn(path, blocks[i].Unknown)
	}
	return blocks, nil
}

// readText reads a text block.
func (r *reader) readText(b *block) (conversation.Block, error) {
	if b.Text == nil {
		return conversation.Block{}, plan.Invalid("%s.text: required", b.at)
	}
	marked, err := r.marks(b.CacheControl, b.at)
	return conversation.Block{Text: *b.Text, CacheBreakpoint: marked}, err
}

// addTurn adds a turn to the canonical request.
func (r *reader) addTurn(role string, d shapes.Draft, at string) {
	d.Place.At = at
	r.out.Turns = append(r.out.Turns, conversation.Turn{Role: role, Blocks: d.Blocks})
	r.call.places = append(r.call.places, d.Place)
}

// readSystem reads the system prompt.
func (r *reader) readSystem() error {
	if !plan.IsSet(r.body.System) {
		return nil
	}
	blocks, err := r.readBlocks(r.body.System, "system")
	if err != nil {
		return err
	}
	return r.addSystem(blocks)
}

func (r *reader) addSystem(blocks []block) error {
	var d shapes.Draft
	for i := range blocks {
		b := &blocks[i]
		if b.Type != "text" {
			return plan.Invalid("%s.type: must be text", b.at)
		}
		text, err := r.readText(b)
		if err != nil {
			return err
		}
		d.Add(text, b.at)
	}
	if len(blocks) > 0 {
		r.addTurn("system", d, blocks[0].at)
	}
	return nil
}

// readMessages reads the conversation. Consecutive messages of one role are one turn.
func (r *reader) readMessages() error {
	list := r.body.Messages
	if len(list) == 0 {
		return plan.Invalid("messages: required, with at least one message")
	}
	if len(list) > plan.MaxMessages {
		return plan.Invalid("messages: at most %d", plan.MaxMessages)
	}
	for i := 0; i < len(list); {
		var turn []block
		first, role := i, list[i].Role
		for ; i < len(list) && list[i].Role == role; i++ {
			r.out.IgnoreIn("messages", list[i].Unknown)
			blocks, err := r.readBlocks(list[i].Content, at("messages", i)+".content")
			if err != nil {
				return err
			}
			turn = append(turn, blocks...)
		}
		if err := r.readTurn(role, turn, at("messages", first)); err != nil {
			return err
		}
	}
	for id := range r.calls {
		return plan.Invalid("messages: tool_use %q has no tool_result in the user message after it", id)
	}
	switch {
	case len(r.out.Turns) == 0:
		return plan.Invalid("messages: required, with some content")
	case len(r.out.Turns) > plan.MaxMessages:
		return plan.Invalid("messages: at most %d, where each tool_result counts as one", plan.MaxMessages)
	}
	return nil
}

func (r *reader) readTurn(role string, turn []block, path string) error {
	switch role {
	case "user":
		return r.readUser(turn, path)
	case "assistant":
		return r.readAssistant(turn, path)
	case "system": // in mid-conversation
		return r.addSystem(turn)
	}
	return plan.Invalid("%s.role: must be user or assistant", path)
}

// readUser reads a turn of the user: a turn for each result, and then one with all the rest. Not every model takes
// images in results, so they follow in that turn.
func (r *reader) readUser(turn []block, path string) error {
	var pictures, rest shapes.Draft
	for i := range turn {
		b := &turn[i]
		var c conversation.Block
		var err error
		switch b.Type {
		case "tool_result":
			if err := r.readResult(b, &pictures); err != nil {
				return err
			}
			continue
		case "text":
			c, err = r.readText(b)
		case "image":
			c, err = r.readImage(b)
		default:
			err = refuseBlock(b, "user", "text, image, tool_result")
		}
		if err != nil {
			return err
		}
		rest.Add(c, b.at)
	}
	for id := range r.calls {
		return plan.Invalid("%s: tool_use %q has no tool_result; each one needs its result in the next user message",
			path, id)
	}
	for i, c := range rest.Blocks {
		pictures.Add(c, rest.Place.Parts[i])
	}
	if len(pictures.Blocks) > 0 {
		r.addTurn("user", pictures, path)
	}
	return nil
}

// refuseBlock names the type of a block that cannot stand where it does.
func refuseBlock(b *block, role, allowed string) error {
	switch b.Type {
	case "document", "search_result", "container_upload":
		return plan.Invalid("%s.type: %s blocks are not offered here; send their text in a text block", b.at, b.Type)
	}
	return plan.Invalid("%s.type: must be one of %s in the %s's messages, not %q", b.at, allowed, role, b.Type)
}

func (r *reader) readImage(b *block) (conversation.Block, error) {
	s := b.Source
	if s == nil {
		return conversation.Block{}, plan.Invalid("%s.source: required", b.at)
	}
	r.out.IgnoreIn(b.at+".source", s.Unknown)
	marked, err := r.marks(b.CacheControl, b.at)
	if err != nil {
		return conversation.Block{}, err
	}
	p := &conversation.Picture{}
	path := b.at + ".source.url"
	switch s.Type {
	case "url":
		p.URL = s.URL
	case "base64":
		if !slices.Contains([]string{"image/jpeg", "image/png", "image/gif", "image/webp"}, s.MediaType) {
			return conversation.Block{}, plan.Invalid(
				"%s.source.media_type: must be one of image/jpeg, image/png, image/gif, image/webp", b.at)
		}
		p.URL, path = "data:"+s.MediaType+";base64,"+s.Data, b.at+".source.data"
	default:
		return conversation.Block{}, plan.Invalid("%s.source.type: must be base64 or url", b.at)
	}
	if err := images.CheckURL(p.URL); err != nil {
		return conversation.Block{}, plan.Invalid("%s: %v", path, err)
	}
	return conversation.Block{Kind: conversation.ImageBlock, Picture: p, CacheBreakpoint: marked}, nil
}

// readResult reads the result of a tool call. It adds its images to pictures.
func (r *reader) readResult(b *block, pictures *shapes.Draft) error {
	if r.calls[b.ToolUseID] == 0 {
		return plan.Invalid("%s.tool_use_id: %q answers no open tool_use of the assistant message before it", b.at,
			b.ToolUseID)
	}
	if r.calls[b.ToolUseID]--; r.calls[b.ToolUseID] == 0 {
		delete(r.calls, b.ToolUseID)
	}
	var content shapes.Draft
	if plan.IsSet(b.Content) {
		blocks, err := r.readBlocks(b.Content, b.at+".content")
		if err != nil {
			return err
		}
		for i := range blocks {
			if err := r.readResultBlock(&blocks[i], &content, pictures); err != nil {
				return err
			}
		}
	}
	marked, err := r.marks(b.CacheControl, b.at)
	if err != nil {
		return err
	}
	content.Blocks = []conversation.Block{{
		Kind:            conversation.ResultBlock,
		ID:              b.ToolUseID,
		Failed:          b.IsError != nil && *b.IsError,
		Blocks:          content.Blocks,
		CacheBreakpoint: marked,
	}}
	r.addTurn("tool", content, b.at)
	return nil
}

func (r *reader) readResultBlock(b *block, content, pictures *shapes.Draft) error {
	var c conversation.Block
	var err error
	switch b.Type {
	case "text":
		c, err = r.readText(b)
		content.Add(c, b.at)
	case "image":
		if c, err = r.readImage(b); err == nil {
			pictures.Add(c, b.at)
		}
	default:
		err = refuseBlock(b, "user", "text, image")
	}
	return err
}

// readAssistant reads a turn of the model, block by block.
func (r *reader) readAssistant(turn []block, path string) error {
	var d shapes.Draft
	for i := range turn {
		b := &turn[i]
		var c conversation.Block
		var err error
		switch b.Type {
		case "text":
			c, err = r.readText(b)
		case "tool_use":
			c, err = r.readCall(b)
		case "thinking", "redacted_thinking":
			c, err = readThought(b)
		default:
			err = refuseBlock(b, "assistant", "text, tool_use, thinking, redacted_thinking")
		}
		if err != nil {
			return err
		}
		if c.Text != "" || c.ID != "" || c.Extra != nil {
			d.Add(c, b.at)
		}
	}
	if d.Says() {
		r.addTurn("assistant", d, path)
	}
	return nil
}

// readCall reads a tool_use block.
func (r *reader) readCall(b *block) (c conversation.Block, err error) {
	switch {
	case b.ID == "":
		return c, plan.Invalid("%s.id: required", b.at)
	case b.Name == "":
		return c, plan.Invalid("%s.name: required", b.at)
	case b.Input.Kind() != '{':
		return c, plan.Invalid("%s.input: required, an object", b.at)
	}
	r.calls[b.ID]++
	marked, err := r.marks(b.CacheControl, b.at)
	return conversation.Block{
		Kind:            conversation.CallBlock,
		ID:              b.ID,
		Name:            b.Name,
		Arguments:       string(b.Input),
		CacheBreakpoint: marked,
	}, err
}

// readThought reads a thinking or redacted_thinking block. The block is empty if there is nothing to send back to a
// provider.
func readThought(b *block) (c conversation.Block, err error) {
	text, at := b.Data, b.at+".data"
	if b.Type == "thinking" {
		if b.Thinking == nil {
			return c, plan.Invalid("%s.thinking: required", b.at)
		}
		text, at = b.Signature, b.at+".signature"
	}
	if text == "" {
		return c, nil
	}
	c.Kind = conversation.ReasoningBlock
	if rest, ok := strings.CutPrefix(text, opaquePrefix); ok {
		o, ok := decodeOpaque(rest)
		if !ok {
			return c, plan.Invalid("%s: must be sent back as it came", at)
		}
		c.Extra = o.extra
		return c, nil
	}
	native := []byte(`{"anthropic":{"thinking":[`)
	if b.Type == "thinking" {
		native = provider.AppendQuote(append(native, `{"type":"thinking","thinking":`...), *b.Thinking)
		native = provider.AppendQuote(append(native, `,"signature":`...), b.Signature)
	} else {
		native = provider.AppendQuote(append(native, `{"type":"redacted_thinking","data":`...), b.Data)
	}
	c.Extra = append(native, "}]}}"...)
	return c, nil
}
