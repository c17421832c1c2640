package responses

import (
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/gateway/shapes"
	"github.com/purserhq/purser/internal/models/conversation"
)

// maxItems bounds the input. Several items make one message.
const maxItems = 16384

// An inputItem has the members of all kinds of items.
type inputItem struct {
	Type      string         `json:"type"`
	ID        string         `json:"id"` // of an item_reference
	Role      string         `json:"role"`
	Phase     string         `json:"phase"` // of a message of the model
	Content   jsontext.Value `json:"content"`
	CallID    string         `json:"call_id"`
	Name      string         `json:"name"`
	Namespace string         `json:"namespace"`
	Arguments string         `json:"arguments"`
	Input     string         `json:"input"` // of a custom tool
	Output    jsontext.Value `json:"output"`
	Encrypted *string        `json:"encrypted_content"`

	Tools   []jsontext.Value `json:"tools"` // of additional_tools
	Unknown jsontext.Value   `json:",unknown"`
}

type inputPart struct {
	Type     string  `json:"type"`
	Text     *string `json:"text"`
	Refusal  string  `json:"refusal"`
	ImageURL *string `json:"image_url"`
	Detail   *string `json:"detail"`

	Unknown jsontext.Value `json:",unknown"`
}

// An inputReader makes turns of items. Consecutive items of the model are one turn.
type inputReader struct {
	c         *Call
	turn      []conversation.Block // of the model, which is being read
	turnPath  string
	calls     []string             // the paths of its calls
	images    []conversation.Block // of the results of tools, which follow these in a user message
	imagePath string
	open      map[string]int // how many calls have no result yet, by id
	answered  map[string]int // the turns with the results of custom tools, by call
	ignored   bool           // a reference was left out
}

func (c *Call) readInput(b *body) error {
	if b.Instructions != nil && *b.Instructions != "" {
		c.addTurn(conversation.Say("system", *b.Instructions), "instructions", nil)
	}
	switch b.Input.Kind() {
	case '"':
		var text string
		if err := decodeAt("input", b.Input, &text); err != nil {
			return err
		}
		c.addTurn(conversation.Say("user", text), "input", nil)
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
	r := &inputReader{c: c, open: map[string]int{}, answered: map[string]int{}}
	for i, v := range items {
		if err := r.readItem(v, fmt.Sprintf("input[%d]", i)); err != nil {
			return err
		}
	}
	r.endTurn()
	r.endResults()
	return nil
}

// addTurn adds a turn, which stands at path in the body, and returns its index. The calls in it stand at other paths.
func (c *Call) addTurn(t conversation.Turn, path string, calls []string) int {
	c.request.Turns = append(c.request.Turns, t)
	c.paths, c.calls = append(c.paths, path), append(c.calls, calls)
	return len(c.paths) - 1
}

func (r *inputReader) readItem(v jsontext.Value, path string) error {
	var it inputItem
	if err := decodeAt(path, v, &it); err != nil {
		return err
	}
	r.c.request.IgnoreIn("input", it.Unknown, "status", "summary")
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
		r.open[it.CallID]++
		r.add(path, conversation.Block{
			Kind:      conversation.CallBlock,
			ID:        it.CallID,
			Name:      joinNamespace(it.Namespace, it.Name),
			Arguments: it.Arguments,
		})
		r.calls = append(r.calls, path)
		return nil
	case "function_call_output", "custom_tool_call_output":
		return r.readOutput(&it, path)
	case "reasoning":
		if it.Encrypted != nil && *it.Encrypted != "" {
			r.add(path, conversation.Block{Kind: conversation.ReasoningBlock, Extra: readEncrypted(v, *it.Encrypted)})
		}
		return nil
	case "item_reference":
		return r.readReference(it.ID, path)
	}
	return plan.Invalid("%s.type: %q is not offered; send message, function_call, function_call_output, "+
		"custom_tool_call, custom_tool_call_output, additional_tools and reasoning items", path, it.Type)
}

// add adds blocks to the turn of the model, which is named by the first of its items that says something.
func (r *inputReader) add(path string, blocks ...conversation.Block) {
	if r.turnPath == "" && blocks[0].Kind != conversation.ReasoningBlock {
		r.turnPath = path
	}
	r.turn = append(r.turn, blocks...)
}

// endTurn ends the turn of the model, if it said something.
func (r *inputReader) endTurn() {
	if r.turnPath != "" {
		r.c.addTurn(conversation.Turn{Role: "assistant", Blocks: r.turn}, r.turnPath, r.calls)
	}
	r.turn, r.turnPath, r.calls = nil, "", nil
}

// endResults adds the images of the results of tools, as only user messages have images.
func (r *inputReader) endResults() {
	if len(r.images) > 0 {
		r.c.addTurn(conversation.Turn{Role: "user", Blocks: r.images}, r.imagePath, nil)
		r.images = nil
	}
}

func (r *inputReader) readMessage(it *inputItem, path string) error {
	if !slices.Contains([]string{"system", "developer", "user", "assistant"}, it.Role) {
		return plan.Invalid("%s.role: must be one of user, assistant, system, developer", path)
	}
	blocks, err := r.c.readContent(it.Content, it.Role, path+".content")
	switch {
	case err != nil:
		return err
	case it.Role != "assistant":
		r.endTurn()
		r.c.addTurn(conversation.Turn{Role: it.Role, Blocks: blocks}, path, nil)
	case len(blocks) > 0: // a list may be without parts
		for i := range blocks {
			blocks[i].Phase, blocks[i].Joined = it.Phase, i > 0
		}
		r.add(path, blocks...)
	}
	return nil
}

// readContent reads a string or parts.
func (c *Call) readContent(v jsontext.Value, role, path string) ([]conversation.Block, error) {
	switch v.Kind() {
	case '"':
		blocks := make([]conversation.Block, 1)
		return blocks, decodeAt(path, v, &blocks[0].Text)
	case '[':
	default:
		return nil, plan.Invalid("%s: required, a string or an array of parts", path)
	}
	var parts []inputPart
	if err := decodeAt(path, v, &parts); err != nil {
		return nil, err
	}
	if len(parts) == 0 && role != "assistant" {
		return nil, plan.Invalid("%s: must have at least one part", path)
	}
	if err := c.request.CountParts(len(parts)); err != nil {
		return nil, shapes.RenameMember(err, c.MemberName)
	}
	blocks := make([]conversation.Block, 0, len(parts))
	for i := range parts {
		c.request.IgnoreIn(path, parts[i].Unknown, "annotations", "logprobs")
		b, err := readPart(&parts[i], fmt.Sprintf("%s[%d]", path, i))
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, b)
	}
	return blocks, nil
}

func readPart(q *inputPart, path string) (conversation.Block, error) {
	switch q.Type {
	case "input_text", "output_text", "text":
		if q.Text == nil {
			return conversation.Block{}, plan.Invalid("%s.text: required", path)
		}
		return conversation.Block{Text: *q.Text}, nil
	case "refusal":
		return conversation.Block{Kind: conversation.RefusalBlock, Text: q.Refusal}, nil
	case "input_image":
		if q.ImageURL == nil {
			return conversation.Block{}, plan.Invalid(
				"%s.image_url: required; files are not offered, so send a data: or an https: URL", path)
		}
		p := &conversation.Picture{URL: *q.ImageURL}
		if q.Detail != nil {
			p.Detail = *q.Detail
		}
		return conversation.Block{Kind: conversation.ImageBlock, Picture: p}, nil
	}
	return conversation.Block{}, plan.Invalid("%s.type: must be one of input_text, output_text, input_image, refusal",
		path)
}

// readOutput reads the result of a tool. Its images follow in a user message. A custom tool may have several results,
// as Codex sends notes of a running one: the later ones are added to the first, as a call has one.
func (r *inputReader) readOutput(it *inputItem, path string) error {
	custom := it.Type == "custom_tool_call_output"
	first, again := r.answered[it.CallID]
	if again = again && custom && r.open[it.CallID] == 0; !again {
		r.endTurn()
	}
	blocks, err := r.c.readContent(it.Output, "tool", path+".output")
	if err != nil {
		return err
	}
	if it.CallID == "" {
		return plan.Invalid("%s.call_id: required", path)
	}
	pictures := len(r.images)
	blocks = slices.DeleteFunc(blocks, func(b conversation.Block) bool {
		if b.Picture != nil {
			r.images, r.imagePath = append(r.images, b), path+".output"
		}
		return b.Picture != nil
	})
	if len(blocks) == 0 && len(r.images) > pictures {
		blocks = []conversation.Block{{Text: "The result is the image that follows."}}
	}
	if again {
		earlier := r.c.request.Turns[first].Result()
		earlier.Blocks = append(earlier.Blocks, blocks...)
		return nil
	}
	r.open[it.CallID]--
	added := r.c.addTurn(conversation.Turn{Role: "tool", Blocks: []conversation.Block{{
		Kind:   conversation.ResultBlock,
		ID:     it.CallID,
		Blocks: blocks,
	}}}, path, nil)
	if custom {
		r.answered[it.CallID] = added
	}
	return nil
}
