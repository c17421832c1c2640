package messages

import (
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/models/images"
	"github.com/purserhq/purser/internal/models/provider"
)

type message struct {
	Role    string         `json:"role"`
	Content jsontext.Value `json:"content"`
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

	at string // its path
}

// A source is where an image comes from.
type source struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type"`
	Data      string `json:"data"`
	URL       string `json:"url"`
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
	}
	return blocks, nil
}

// readText reads a text block.
func (r *reader) readText(b *block) (provider.Part, error) {
	if b.Text == nil {
		return provider.Part{}, plan.Invalid("%s.text: required", b.at)
	}
	marked, err := r.marks(b.CacheControl, b.at)
	return provider.Part{Type: "text", Text: *b.Text, CacheBreakpoint: marked}, err
}

// parts are those of one message, and the paths of their blocks.
type parts struct {
	list []provider.Part
	at   []string
}

func (p *parts) add(part provider.Part, at string) {
	p.list, p.at = append(p.list, part), append(p.at, at)
}

// A place says where a canonical message comes from in the body: the paths of the message, of its parts and its calls.
type place struct {
	at           string
	parts, calls []string
}

// addMessage adds a message to the canonical request. One text is its string, as most clients of the canonical shape
// send it.
func (r *reader) addMessage(m provider.Message, p parts, at string, calls []string) {
	m.HasContent = m.HasContent || len(p.list) > 0
	if len(p.list) == 1 && p.list[0].Type == "text" {
		m.Text, m.CacheBreakpoint = p.list[0].Text, m.CacheBreakpoint || p.list[0].CacheBreakpoint
	} else {
		m.Parts = p.list
	}
	r.out.Messages = append(r.out.Messages, m)
	r.call.places = append(r.call.places, place{at: at, parts: p.at, calls: calls})
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
	var content parts
	for i := range blocks {
		b := &blocks[i]
		if b.Type != "text" {
			return plan.Invalid("%s.type: must be text", b.at)
		}
		p, err := r.readText(b)
		if err != nil {
			return err
		}
		content.add(p, b.at)
	}
	if len(blocks) > 0 {
		r.addMessage(provider.Message{Role: "system"}, content, blocks[0].at, nil)
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
	case len(r.out.Messages) == 0:
		return plan.Invalid("messages: required, with some content")
	case len(r.out.Messages) > plan.MaxMessages:
		return plan.Invalid("messages: at most %d, where each tool_result counts as one", plan.MaxMessages)
	case r.out.Images > plan.MaxImages:
		return plan.Invalid("messages: at most %d images in a request", plan.MaxImages)
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

// readUser reads a turn of the user: a tool message for each result, and then one message with all the rest. The
// canonical form has no images in results, so they follow in that message.
func (r *reader) readUser(turn []block, path string) error {
	var content, rest parts
	for i := range turn {
		b := &turn[i]
		var p provider.Part
		var err error
		switch b.Type {
		case "tool_result":
			if err := r.readResult(b, &content); err != nil {
				return err
			}
			continue
		case "text":
			p, err = r.readText(b)
		case "image":
			p, err = r.readImage(b)
		default:
			err = refuseBlock(b, "user", "text, image, tool_result")
		}
		if err != nil {
			return err
		}
		rest.add(p, b.at)
	}
	for id := range r.calls {
		return plan.Invalid("%s: tool_use %q has no tool_result; each one needs its result in the next user message",
			path, id)
	}
	for i, p := range rest.list {
		content.add(p, rest.at[i])
	}
	if len(content.list) > 0 {
		r.addMessage(provider.Message{Role: "user"}, content, path, nil)
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

func (r *reader) readImage(b *block) (provider.Part, error) {
	s := b.Source
	if s == nil {
		return provider.Part{}, plan.Invalid("%s.source: required", b.at)
	}
	marked, err := r.marks(b.CacheControl, b.at)
	if err != nil {
		return provider.Part{}, err
	}
	p := provider.Part{Type: "image_url", CacheBreakpoint: marked}
	path := b.at + ".source.url"
	switch s.Type {
	case "url":
		p.ImageURL = s.URL
	case "base64":
		if !slices.Contains([]string{"image/jpeg", "image/png", "image/gif", "image/webp"}, s.MediaType) {
			return p, plan.Invalid(
				"%s.source.media_type: must be one of image/jpeg, image/png, image/gif, image/webp", b.at)
		}
		p.ImageURL, path = "data:"+s.MediaType+";base64,"+s.Data, b.at+".source.data"
	default:
		return p, plan.Invalid("%s.source.type: must be base64 or url", b.at)
	}
	r.out.Images++
	if err := images.CheckURL(p.ImageURL); err != nil {
		return p, plan.Invalid("%s: %v", path, err)
	}
	return p, nil
}

// readResult reads the result of a tool call. It adds its images to pictures.
func (r *reader) readResult(b *block, pictures *parts) error {
	if !r.calls[b.ToolUseID] {
		return plan.Invalid("%s.tool_use_id: %q answers no open tool_use of the assistant message before it", b.at,
			b.ToolUseID)
	}
	delete(r.calls, b.ToolUseID)
	var content parts
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
	r.addMessage(provider.Message{
		Role:            "tool",
		HasContent:      true,
		ToolCallID:      b.ToolUseID,
		ToolFailed:      b.IsError != nil && *b.IsError,
		CacheBreakpoint: marked,
	}, content, b.at, nil)
	return nil
}

func (r *reader) readResultBlock(b *block, content, pictures *parts) error {
	var p provider.Part
	var err error
	switch b.Type {
	case "text":
		p, err = r.readText(b)
		content.add(p, b.at)
	case "image":
		p, err = r.readImage(b)
		pictures.add(p, b.at)
	default:
		err = refuseBlock(b, "user", "text, image")
	}
	return err
}

// readAssistant reads a turn of the model. Thinking belongs to the call that directly follows it, or else to the
// message; a block of ours says which.
func (r *reader) readAssistant(turn []block, path string) error {
	m := provider.Message{Role: "assistant"}
	var content parts
	var calls []string
	var own, next extras // of the message, and of the next call
	for i := range turn {
		b := &turn[i]
		marked := false
		var err error
		switch b.Type {
		case "text":
			var p provider.Part
			p, err = r.readText(b)
			if p.Text != "" {
				content.add(p, b.at)
			}
		case "tool_use":
			marked, err = r.readCall(b, &m, &next)
			calls = append(calls, b.at)
		case "thinking", "redacted_thinking":
			err = readThought(b, &own, &next, len(m.ToolCalls) > 0)
		default:
			err = refuseBlock(b, "assistant", "text, tool_use, thinking, redacted_thinking")
		}
		if err != nil {
			return err
		}
		m.CacheBreakpoint = m.CacheBreakpoint || marked
	}
	m.ExtraContent = own.encode()
	if len(content.list) > 0 || len(m.ToolCalls) > 0 { // otherwise nothing was said
		r.addMessage(m, content, path, calls)
	}
	return nil
}

// readCall reads a tool_use block.
func (r *reader) readCall(b *block, m *provider.Message, next *extras) (marked bool, err error) {
	switch {
	case b.ID == "":
		return false, plan.Invalid("%s.id: required", b.at)
	case r.calls[b.ID]:
		return false, plan.Invalid("%s.id: %q stands twice", b.at, b.ID)
	case !plan.IsToolName(b.Name):
		return false, plan.Invalid("%s.name: must match %s", b.at, plan.ToolNameRule())
	case b.Input.Kind() != '{':
		return false, plan.Invalid("%s.input: required, an object", b.at)
	}
	r.calls[b.ID] = true
	m.ToolCalls = append(m.ToolCalls, provider.ToolCall{
		ID:           b.ID,
		Name:         b.Name,
		Arguments:    string(b.Input),
		ExtraContent: next.encode(),
	})
	*next = extras{}
	return r.marks(b.CacheControl, b.at)
}

// readThought reads a thinking or redacted_thinking block.
func readThought(b *block, own, next *extras, called bool) error {
	text, at := b.Data, b.at+".data"
	if b.Type == "thinking" {
		if b.Thinking == nil {
			return plan.Invalid("%s.thinking: required", b.at)
		}
		text, at = b.Signature, b.at+".signature"
	}
	if rest, ok := strings.CutPrefix(text, opaquePrefix); ok {
		o, ok := decodeOpaque(rest)
		if !ok {
			return plan.Invalid("%s: must be sent back as it came", at)
		}
		if o.call {
			next.add(o.extra)
		} else {
			own.add(o.extra)
		}
		return nil
	}
	if text == "" { // it cannot be sent back to a provider
		return nil
	}
	var native []byte
	if b.Type == "thinking" {
		native = provider.AppendQuote([]byte(`{"type":"thinking","thinking":`), *b.Thinking)
		native = provider.AppendQuote(append(native, `,"signature":`...), b.Signature)
	} else {
		native = provider.AppendQuote([]byte(`{"type":"redacted_thinking","data":`), b.Data)
	}
	target := own
	if called {
		target = next
	}
	target.addNative(append(native, '}'))
	return nil
}
