package realtime

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/purserhq/purser/emulator/exchange"
	"github.com/purserhq/purser/emulator/openai"
)

// A clientEvent is one from a sideband or from the browser.
type clientEvent struct {
	Type    string `json:"type"`
	EventID string `json:"event_id"`

	Session        raw    `json:"session"`
	Response       raw    `json:"response"`
	Item           raw    `json:"item"`
	PreviousItemID string `json:"previous_item_id"`
	ItemID         string `json:"item_id"`
	ContentIndex   *int   `json:"content_index"`
	AudioEndMS     *int   `json:"audio_end_ms"`
	ResponseID     string `json:"response_id"`
	Audio          string `json:"audio"`
}

// receiveEvent takes an event from a sideband, or from the browser if there is none.
// Its sender gets the error event.
func (c *call) receiveEvent(text []byte, from *socket) {
	var ev clientEvent
	f := readEvent(text, &ev)
	name := "browser"
	if from != nil {
		name = "sideband"
	}
	c.logEvent(name, ev.Type)
	if f == nil {
		f = c.handleEvent(&ev, from)
	}
	if f == nil {
		return
	}
	refused := encodeErrorEvent(f, ev.EventID)
	c.logEvent("provider", "error")
	if from == nil {
		c.sendToBrowser(refused)
	} else if c.sockets[from] {
		c.sendToSocket(from, "error", refused)
	}
}

func readEvent(text []byte, ev *clientEvent) *exchange.Refusal {
	pointer, unknown, err := exchange.DecodeStrict(text, ev)
	switch param := exchange.DottedPath(pointer); {
	case err == nil && ev.Type == "":
		return openai.BadParam("missing_required_parameter", "type", "Missing required parameter: 'type'.")
	case err == nil && len(ev.EventID) > 512:
		return openai.BadParam("string_above_max_length", "event_id", "Invalid 'event_id': string too long.")
	case err == nil:
		return nil
	case unknown:
		return openai.BadParam("unknown_parameter", param, "Unknown parameter: '%s'.", param)
	case param != "":
		return openai.BadParam("invalid_type", param, "Invalid type for '%s'.", param)
	}
	return openai.BadParam("invalid_json", "", "We could not parse the JSON of your event.")
}

// handleEvent does what an event says.
func (c *call) handleEvent(ev *clientEvent, from *socket) *exchange.Refusal {
	switch ev.Type {
	case "session.update":
		return c.updateSession(ev.Session, from)
	case "conversation.item.create":
		return c.createItem(ev)
	case "conversation.item.truncate":
		return c.truncateHeard(ev)
	case "conversation.item.delete", "conversation.item.retrieve":
		return c.editItem(ev)
	case "response.create":
		return c.createReply(ev.Response)
	case "response.cancel":
		return c.cancelReply(ev.ResponseID)
	case "output_audio_buffer.clear":
		c.clearPlayback(time.Now())
		return nil
	case "input_audio_buffer.clear":
		c.buffer = 0
		c.emitEvent("input_audio_buffer.cleared", nil)
		return nil
	case "input_audio_buffer.commit":
		if from != nil {
			return openai.BadParam("invalid_event", "type", "The audio belongs to the call's own connection.")
		}
		return c.commitAudio()
	case "input_audio_buffer.append":
		return openai.BadParam("invalid_event", "type", "Audio is taken from the media of this call.")
	}
	return openai.BadParam("invalid_value", "type", "Invalid value: '%s'. The emulator does not know this event.",
		ev.Type)
}

// updateSession changes the session.
func (c *call) updateSession(body []byte, from *socket) *exchange.Refusal {
	if len(body) == 0 {
		return openai.BadParam("missing_required_parameter", "session", "Missing required parameter: 'session'.")
	}
	next, f := c.session.withUpdate(body, c.model)
	if f != nil {
		return f
	}
	if c.spoken && !bytes.Equal(next.Audio.Output.Voice, c.session.Audio.Output.Voice) {
		return openai.BadParam("cannot_update_voice", "",
			"Cannot update a conversation's voice if assistant audio is present.")
	}
	if next.Instructions != c.session.Instructions ||
		!bytes.Equal(exchange.Encode(next.Tools), exchange.Encode(c.session.Tools)) {
		c.lastTokens = tokenCounts{} // the prefix is another
	}
	c.session.sessionSettings = next
	text := exchange.Encode(newEvent("session.updated", object{"session": c.session}))
	c.sendEvent("session.updated", text, from != nil || !c.script.private)
	return nil
}

// A conversationItem is one item of the conversation.
type conversationItem struct {
	ID      string        `json:"id"`
	Object  string        `json:"object"`
	Type    string        `json:"type"`
	Status  string        `json:"status"`
	Role    string        `json:"role,omitzero"`
	Content []contentPart `json:"content,omitzero"`
	CallID  string        `json:"call_id,omitzero"`
	Name    string        `json:"name,omitzero"`
	Args    *string       `json:"arguments,omitzero"`
	Output  *string       `json:"output,omitzero"`
	Phase   string        `json:"phase,omitzero"`

	audioMS int
	reply   int // that made it; 0 = none
}

type contentPart struct {
	Type       string      `json:"type"`
	Text       *string     `json:"text,omitzero"`
	Transcript *transcript `json:"transcript,omitzero"`
	Audio      string      `json:"audio,omitzero"`
	ImageURL   string      `json:"image_url,omitzero"`
	Detail     string      `json:"detail,omitzero"`

	spoken string // what an emulated user says; not in any event
}

// A transcript is null for the user's speech, as recorded: clients refuse a part without it.
type transcript struct{ said *string }

// MarshalJSON renders what was said, or null.
func (t transcript) MarshalJSON() ([]byte, error) { return json.Marshal(t.said) }

// UnmarshalJSON reads it.
func (t *transcript) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, &t.said) }

// said returns the transcript of a part; nil = it has none.
func (p *contentPart) said() *string {
	if p.Transcript == nil {
		return nil
	}
	return p.Transcript.said
}

// readItem reads an item of a client.
func (c *call) readItem(body []byte) (*conversationItem, *exchange.Refusal) {
	item := &conversationItem{}
	if pointer, unknown, err := exchange.DecodeStrict(body, item); err != nil {
		param := "item." + exchange.DottedPath(pointer)
		if unknown {
			return nil, openai.BadParam("unknown_parameter", param, "Unknown parameter: '%s'.", param)
		}
		return nil, openai.BadParam("invalid_type", param, "Invalid type for '%s'.", param)
	}
	if item.ID == "" {
		item.ID = "item_" + exchange.RandomID(21)
	} else if len(item.ID) > 32 || c.findItem(item.ID) != nil {
		return nil, openai.BadParam("item_create_invalid_item_id", "item.id",
			"Error creating item: the id '%s' is too long or there already.", item.ID)
	}
	item.Object, item.Status = "realtime.item", "completed"
	switch item.Type {
	case "message":
		return item, checkMessage(item)
	case "function_call":
		if item.CallID == "" || item.Name == "" || item.Args == nil {
			return nil, openai.BadParam("missing_required_parameter", "item",
				"Missing required parameters of a function_call.")
		}
	case "function_call_output":
		switch {
		case item.Output == nil:
			return nil, openai.BadParam("missing_required_parameter", "item.output",
				"Missing required parameter: 'item.output'.")
		case !slices.ContainsFunc(c.items, func(i *conversationItem) bool {
			return i.Type == "function_call" && i.CallID == item.CallID
		}):
			return nil, openai.BadParam("invalid_tool_call_id", "item.call_id",
				"Tool call ID '%s' not found in conversation.", item.CallID)
		}
	default:
		return nil, openai.BadParam("invalid_value", "item.type",
			"Invalid value: '%s'. Supported values are: 'message', 'function_call', and 'function_call_output'.",
			item.Type)
	}
	return item, nil
}

func checkMessage(item *conversationItem) *exchange.Refusal {
	kinds := map[string][]string{
		"user":      {"input_text", "input_audio", "input_image"},
		"system":    {"input_text"},
		"assistant": {"output_text", "output_audio"},
	}[item.Role]
	if kinds == nil {
		return openai.BadParam("invalid_value", "item.role",
			"Invalid value: '%s'. Supported values are: 'user', 'assistant', and 'system'.", item.Role)
	}
	if len(item.Content) == 0 {
		return openai.BadParam("missing_required_parameter", "item.content",
			"Missing required parameter: 'item.content'.")
	}
	for i, part := range item.Content {
		where := fmt.Sprintf("item.content[%d]", i)
		switch {
		case !slices.Contains(kinds, part.Type):
			return openai.BadParam("invalid_value", where+".type", "Invalid value: '%s'. Supported values are: '%s'.",
				part.Type, strings.Join(kinds, "', '"))
		case strings.HasSuffix(part.Type, "_text") && part.Text == nil:
			return openai.BadParam("missing_required_parameter", where+".text",
				"Missing required parameter: '%s.text'.", where)
		case part.Type == "input_text":
			s := newSteering()
			if _, _, err := s.readText(*part.Text); err != nil {
				return openai.BadParam("", where+".text", "%s", err.Error())
			}
		}
		item.audioMS += len(part.Audio) * 3 / 4 / 48 // base64 of 24,000 samples of two bytes a second
		item.Content[i].Audio = ""
	}
	return nil
}

// findItem finds one of the conversation.
func (c *call) findItem(id string) *conversationItem {
	i := slices.IndexFunc(c.items, func(i *conversationItem) bool { return i.ID == id })
	if i < 0 {
		return nil
	}
	return c.items[i]
}

// insertItem puts an item behind another, at the end if after is "".
func (c *call) insertItem(item *conversationItem, after string) object {
	at := len(c.items)
	switch {
	case after == "root":
		at = 0
	case after != "":
		at = slices.IndexFunc(c.items, func(i *conversationItem) bool { return i.ID == after }) + 1
	}
	var previous any
	if at > 0 {
		previous = c.items[at-1].ID
	}
	c.items = slices.Insert(c.items, at, item)
	return object{"previous_item_id": previous, "item": item}
}

func (c *call) createItem(ev *clientEvent) *exchange.Refusal {
	if len(ev.Item) == 0 {
		return openai.BadParam("missing_required_parameter", "item", "Missing required parameter: 'item'.")
	}
	item, f := c.readItem(ev.Item)
	if f != nil {
		return f
	}
	if ev.PreviousItemID != "" && ev.PreviousItemID != "root" && c.findItem(ev.PreviousItemID) == nil {
		return openai.BadParam("item_create_invalid_previous_item_id", "previous_item_id",
			"Error inserting item: there is no item with the id '%s'.", ev.PreviousItemID)
	}
	if ev.PreviousItemID != "" {
		c.lastTokens = tokenCounts{}
	}
	added := c.insertItem(item, ev.PreviousItemID)
	c.emitEvent("conversation.item.added", added)
	c.emitEvent("conversation.item.done", added)
	return nil
}

// truncateHeard handles conversation.item.truncate: it removes what the user has not heard.
func (c *call) truncateHeard(ev *clientEvent) *exchange.Refusal {
	item := c.findItem(ev.ItemID)
	for _, m := range []struct {
		name string
		is   bool
	}{{"item_id", ev.ItemID != ""}, {"content_index", ev.ContentIndex != nil}, {"audio_end_ms", ev.AudioEndMS != nil}} {
		if !m.is {
			return openai.BadParam("missing_required_parameter", m.name, "Missing required parameter: '%s'.", m.name)
		}
	}
	switch {
	case item == nil:
		return openai.BadParam("item_truncate_invalid_item_id", "item_id",
			"Error truncating item: the item with id '%s' does not exist.", ev.ItemID)
	case item.Role != "assistant":
		return openai.BadParam("invalid_value", "item_id", "Only model output audio messages can be truncated")
	case *ev.AudioEndMS < 0 || *ev.ContentIndex != 0:
		return openai.BadParam("invalid_value", "audio_end_ms", "Invalid 'audio_end_ms' or 'content_index'.")
	case *ev.AudioEndMS > item.audioMS:
		return openai.BadParam("invalid_value", "audio_end_ms", "Audio content of %dms is already shorter than %dms",
			item.audioMS, *ev.AudioEndMS)
	}
	c.truncateItem(item, *ev.AudioEndMS)
	return nil
}

// truncateItem leaves so much of an item, and no transcript.
func (c *call) truncateItem(item *conversationItem, ms int) {
	item.audioMS = ms
	for i := range item.Content {
		item.Content[i].Transcript = nil
	}
	c.emitEvent("conversation.item.truncated", object{"item_id": item.ID, "content_index": 0, "audio_end_ms": ms})
}

func (c *call) editItem(ev *clientEvent) *exchange.Refusal {
	item := c.findItem(ev.ItemID)
	verb := strings.TrimPrefix(ev.Type, "conversation.item.")
	if item == nil {
		return openai.BadParam("item_"+verb+"_invalid_item_id", "item_id", "The item with id '%s' does not exist.",
			ev.ItemID)
	}
	if verb == "retrieve" {
		c.emitEvent("conversation.item.retrieved", object{"item": item})
		return nil
	}
	c.items = slices.DeleteFunc(c.items, func(i *conversationItem) bool { return i == item })
	c.lastTokens = tokenCounts{}
	c.emitEvent("conversation.item.deleted", object{"item_id": item.ID})
	return nil
}

// A replyOverride is what response.create may say about one reply.
type replyOverride struct {
	Instructions     *string         `json:"instructions"`
	OutputModalities []string        `json:"output_modalities"`
	Audio            replyAudio      `json:"audio"`
	Tools            *[]functionTool `json:"tools"`
	ToolChoice       raw             `json:"tool_choice"`
	MaxOutputTokens  raw             `json:"max_output_tokens"`
	Metadata         raw             `json:"metadata"`
	Conversation     string          `json:"conversation"`
	Input            *[]raw          `json:"input"`
	Parallel         *bool           `json:"parallel_tool_calls"`
	Reasoning        raw             `json:"reasoning"`
}

type replyAudio struct {
	Output struct {
		Format raw `json:"format"`
		Voice  raw `json:"voice"`
	} `json:"output"`
}

// createReply handles response.create.
func (c *call) createReply(body []byte) *exchange.Refusal {
	if c.reply != nil {
		return openai.BadParam("conversation_already_has_active_response", "",
			"Conversation already has an active response in progress: %s. Wait until the response is finished before "+
				"creating a new one.", c.reply.id)
	}
	var o replyOverride
	if len(body) > 0 {
		if pointer, unknown, err := exchange.DecodeStrict(body, &o); err != nil {
			param := "response." + exchange.DottedPath(pointer)
			if unknown {
				return openai.BadParam("unknown_parameter", param, "Unknown parameter: '%s'.", param)
			}
			return openai.BadParam("invalid_type", param, "Invalid type for '%s'.", param)
		}
	}
	conf, f := c.session.withOverride(&o, c.model)
	if f != nil {
		return f
	}
	context := c.items
	if o.Input != nil {
		context = nil
		for _, body := range *o.Input {
			item, f := c.inputItem(body)
			if f != nil {
				return f
			}
			context = append(context, item)
		}
	}
	c.beginReply(conf, context, o.Conversation == "none", o.Metadata)
	return nil
}

// inputItem is an item of a reply's own input, or a reference to one.
func (c *call) inputItem(body []byte) (*conversationItem, *exchange.Refusal) {
	var reference struct {
		Type string `json:"type"`
		ID   string `json:"id"`
	}
	if json.Unmarshal(body, &reference) == nil && reference.Type == "item_reference" {
		if item := c.findItem(reference.ID); item != nil {
			return item, nil
		}
		return nil, openai.BadParam("invalid_value", "response.input", "The item with id '%s' does not exist.",
			reference.ID)
	}
	return c.readItem(body)
}

// withOverride returns the session as one reply has it.
func (s sessionObject) withOverride(o *replyOverride, m realtimeModel) (sessionSettings, *exchange.Refusal) {
	conf := s.sessionSettings
	if o.Instructions != nil {
		conf.Instructions = *o.Instructions
	}
	if o.OutputModalities != nil {
		conf.OutputModalities = o.OutputModalities
	}
	if o.Tools != nil {
		conf.Tools = *o.Tools
	}
	for _, v := range []struct{ from, to *raw }{
		{&o.ToolChoice, &conf.ToolChoice},
		{&o.MaxOutputTokens, &conf.MaxOutputTokens},
		{&o.Audio.Output.Voice, &conf.Audio.Output.Voice},
	} {
		if len(*v.from) > 0 {
			*v.to = *v.from
		}
	}
	if o.Conversation != "" && o.Conversation != "auto" && o.Conversation != "none" {
		return conf, openai.BadParam("invalid_value", "response.conversation",
			"Invalid value: '%s'. Supported values are: 'auto' and 'none'.", o.Conversation)
	}
	return conf, conf.validate(m)
}

// cancelReply handles response.cancel.
func (c *call) cancelReply(id string) *exchange.Refusal {
	switch {
	case c.reply == nil, id != "" && id != c.reply.id:
		return openai.BadParam("response_cancel_not_active", "", "Cancellation failed: no active response found")
	case c.reply.script.deaf:
		return nil
	}
	c.cutReply("client_cancelled")
	return nil
}
