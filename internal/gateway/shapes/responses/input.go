package responses

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/gateway/shapes"
	"github.com/purserhq/purser/internal/models/provider"
)

// maxItems bounds the input. Several items make one message.
const maxItems = 16384

// An inputItem has the members of all kinds of items.
type inputItem struct {
	Type      string         `json:"type"`
	Role      string         `json:"role"`
	Content   jsontext.Value `json:"content"`
	CallID    string         `json:"call_id"`
	Name      string         `json:"name"`
	Namespace string         `json:"namespace"`
	Arguments string         `json:"arguments"`
	Input     string         `json:"input"` // of a custom tool
	Output    jsontext.Value `json:"output"`
	Encrypted *string        `json:"encrypted_content"`

	Tools []jsontext.Value `json:"tools"` // of additional_tools
}

type inputPart struct {
	Type     string  `json:"type"`
	Text     *string `json:"text"`
	Refusal  string  `json:"refusal"`
	ImageURL *string `json:"image_url"`
	Detail   *string `json:"detail"`
}

// An inputReader makes canonical messages of items. Consecutive items of the model are one message.
type inputReader struct {
	c         *Call
	assistant int // the message of the model that items are added to, -1 = none
	refusal   strings.Builder
	extra     []json.RawMessage // of that message
	reasoning []json.RawMessage // that the next item of the model continues
	images    []provider.Part   // of the results of tools, which follow these in a user message
	imagePath string
	answered  map[string]int // the messages with the results of custom tools, by call
}

func (c *Call) readInput(b *body) error {
	if b.Instructions != nil && *b.Instructions != "" {
		c.addMessage(provider.Message{Role: "system", HasContent: true, Text: *b.Instructions}, "instructions")
	}
	switch b.Input.Kind() {
	case '"':
		var text string
		if err := decodeAt("input", b.Input, &text); err != nil {
			return err
		}
		c.addMessage(provider.Message{Role: "user", HasContent: true, Text: text}, "input")
		return nil
	case '[':
	default:
		return plan.Invalid("input: required, a string or an array of items")
	}
	var items []jsontext.Value
	if err := decodeAt("input", b.Input, &items); err != nil {
		return err
	}
	if len(items) == 0 || len(items) > maxItems {
		return plan.Invalid("input: must have 1 to %d items", maxItems)
	}
	r := &inputReader{c: c, assistant: -1, answered: map[string]int{}}
	for i, v := range items {
		if err := r.readItem(v, fmt.Sprintf("input[%d]", i)); err != nil {
			return err
		}
	}
	r.endTurn()
	r.endResults()
	return nil
}

// addMessage adds a canonical message, which stands at path in the body, and returns its index.
func (c *Call) addMessage(m provider.Message, path string) int {
	c.request.Messages = append(c.request.Messages, m)
	c.paths, c.calls = append(c.paths, path), append(c.calls, nil)
	return len(c.paths) - 1
}

func (r *inputReader) readItem(v jsontext.Value, path string) error {
	var it inputItem
	if err := decodeAt(path, v, &it); err != nil {
		return err
	}
	if it.Type == "" && it.Role != "" {
		it.Type = "message"
	}
	if it.Type != "function_call_output" && it.Type != "custom_tool_call_output" {
		r.endResults()
	}
	switch it.Type {
	case "message":
		return r.readMessage(&it, path)
	case "additional_tools":
		return r.c.readAdditional(it.Tools, path)
	case "function_call", "custom_tool_call":
		if it.Type == "custom_tool_call" {
			it.Arguments = wrapInput(it.Input)
		}
		delete(r.answered, it.CallID)
		m := r.openTurn(path)
		call := provider.ToolCall{
			ID:           it.CallID,
			Name:         joinNamespace(it.Namespace, it.Name),
			Arguments:    it.Arguments,
			ExtraContent: mergeAll(r.reasoning),
		}
		r.reasoning = nil
		m.ToolCalls = append(m.ToolCalls, call)
		r.c.calls[r.assistant] = append(r.c.calls[r.assistant], path)
		return nil
	case "function_call_output", "custom_tool_call_output":
		return r.readOutput(&it, path)
	case "reasoning":
		if it.Encrypted != nil {
			r.reasoning = append(r.reasoning, readEncrypted(v, *it.Encrypted))
		}
		return nil
	case "item_reference":
		return plan.Invalid("%s.type: nothing is stored here that an item_reference could name; send the item itself, "+
			"and set store to false", path)
	}
	return plan.Invalid("%s.type: %q is not offered; send message, function_call, function_call_output, "+
		"custom_tool_call, custom_tool_call_output, additional_tools and reasoning items", path, it.Type)
}

// openTurn returns the message of the model that items are added to.
func (r *inputReader) openTurn(path string) *provider.Message {
	if r.assistant < 0 {
		r.assistant = r.c.addMessage(provider.Message{Role: "assistant"}, path)
	}
	return &r.c.request.Messages[r.assistant]
}

// endTurn ends the message of the model. Reasoning that nothing of it follows belongs to it as a whole.
func (r *inputReader) endTurn() {
	if r.assistant >= 0 {
		m := &r.c.request.Messages[r.assistant]
		m.ExtraContent = mergeAll(append(r.extra, r.reasoning...))
		m.Refusal = r.refusal.String()
	}
	r.assistant, r.reasoning, r.extra = -1, nil, nil
	r.refusal.Reset()
}

// endResults adds the images of the results of tools, as only user messages have images.
func (r *inputReader) endResults() {
	if len(r.images) > 0 {
		r.c.addMessage(provider.Message{Role: "user", HasContent: true, Parts: r.images}, r.imagePath)
		r.images = nil
	}
}

func (r *inputReader) readMessage(it *inputItem, path string) error {
	if it.Role != "assistant" {
		if !slices.Contains([]string{"system", "developer", "user"}, it.Role) {
			return plan.Invalid("%s.role: must be one of user, assistant, system, developer", path)
		}
		r.endTurn()
		m := provider.Message{Role: it.Role}
		if err := r.c.readContent(it.Content, &m, path+".content"); err != nil {
			return err
		}
		r.c.addMessage(m, path)
		return nil
	}
	said := provider.Message{Role: it.Role}
	if err := r.c.readContent(it.Content, &said, path+".content"); err != nil {
		return err
	}
	if !said.HasContent && said.Refusal == "" { // a list without parts
		return nil
	}
	m := r.openTurn(path)
	if !m.HasContent {
		m.Text, m.Parts, m.HasContent = said.Text, said.Parts, said.HasContent
	} else {
		m.Parts = append(listParts(m), listParts(&said)...)
		m.Text = ""
	}
	r.refusal.WriteString(said.Refusal)
	r.extra, r.reasoning = append(r.extra, r.reasoning...), nil
	return nil
}

// listParts returns the content of a message as parts.
func listParts(m *provider.Message) []provider.Part {
	if m.Parts == nil && m.HasContent {
		return []provider.Part{{Type: "text", Text: m.Text}}
	}
	return m.Parts
}

// readContent reads a string or parts into a message.
func (c *Call) readContent(v jsontext.Value, m *provider.Message, path string) error {
	switch v.Kind() {
	case '"':
		m.HasContent = true
		return decodeAt(path, v, &m.Text)
	case '[':
	default:
		return plan.Invalid("%s: required, a string or an array of parts", path)
	}
	var parts []inputPart
	if err := decodeAt(path, v, &parts); err != nil {
		return err
	}
	switch {
	case len(parts) == 0 && m.Role == "assistant":
		return nil
	case len(parts) == 0:
		return plan.Invalid("%s: must have at least one part", path)
	}
	if err := c.request.CountParts(len(parts)); err != nil {
		return shapes.RenameMember(err, c.MemberName)
	}
	var refusal strings.Builder
	for i := range parts {
		if err := readPart(&parts[i], m, &refusal, fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}
	m.HasContent, m.Refusal = len(m.Parts) > 0, refusal.String()
	if len(m.Parts) == 1 && m.Parts[0].Type == "text" {
		m.Text, m.Parts = m.Parts[0].Text, nil
	}
	return nil
}

func readPart(q *inputPart, m *provider.Message, refusal *strings.Builder, path string) error {
	switch q.Type {
	case "input_text", "output_text", "text":
		if q.Text == nil {
			return plan.Invalid("%s.text: required", path)
		}
		m.Parts = append(m.Parts, provider.Part{Type: "text", Text: *q.Text})
		return nil
	case "refusal":
		refusal.WriteString(q.Refusal)
		return nil
	case "input_image":
		if q.ImageURL == nil {
			return plan.Invalid("%s.image_url: required; files are not offered, so send a data: or an https: URL", path)
		}
		image := provider.Part{Type: "image_url", ImageURL: *q.ImageURL}
		if q.Detail != nil {
			image.Detail = *q.Detail
		}
		m.Parts = append(m.Parts, image)
		return nil
	}
	return plan.Invalid("%s.type: must be one of input_text, output_text, input_image, refusal", path)
}

// readOutput reads the result of a tool. Its images follow in a user message. A custom tool may have several results,
// as Codex sends notes of a running one: the later ones are added to the first, as canonical calls have one.
func (r *inputReader) readOutput(it *inputItem, path string) error {
	custom := it.Type == "custom_tool_call_output"
	first, again := r.answered[it.CallID]
	if again = again && custom; !again {
		r.endTurn()
	}
	m := provider.Message{Role: "tool", ToolCallID: it.CallID}
	if err := r.c.readContent(it.Output, &m, path+".output"); err != nil {
		return err
	}
	if it.CallID == "" {
		return plan.Invalid("%s.call_id: required", path)
	}
	m.Parts = slices.DeleteFunc(m.Parts, func(p provider.Part) bool {
		if p.Type == "image_url" {
			r.images, r.imagePath = append(r.images, p), path+".output"
		}
		return p.Type == "image_url"
	})
	if len(m.Parts) == 0 && len(r.images) > 0 && m.Text == "" {
		m.Text, m.Parts, m.HasContent = "The result is the image that follows.", nil, true
	}
	if again {
		earlier := &r.c.request.Messages[first]
		earlier.Parts, earlier.Text = append(listParts(earlier), listParts(&m)...), ""
		earlier.HasContent = true
		return nil
	}
	added := r.c.addMessage(m, path)
	if custom {
		r.answered[it.CallID] = added
	}
	return nil
}
