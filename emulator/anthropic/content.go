package anthropic

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/purserhq/purser/emulator/exchange"
)

// readSystem reads the system prompt.
func (c *messages) readSystem(p *exchange.Prompt) *exchange.Refusal {
	if len(c.request.System) == 0 {
		return nil
	}
	blocks, f := readBlocks(c.request.System, "system")
	for i, b := range blocks {
		if f == nil && b.Type != "text" {
			f = badRequest("system.%d.type: Input should be 'text'", i)
		} else if f == nil && (b.Text == nil || *b.Text == "") {
			f = badRequest("system: text content blocks must be non-empty")
		} else if f == nil {
			p.Input.AddTexts(*b.Text)
			f = c.request.addBlock(p, []byte(*b.Text), b.CacheControl, fmt.Sprintf("system.%d", i))
		}
		if f == nil {
			blocks[i].CacheControl = nil // thinking is not bound to it
		}
	}
	c.instructions = blocks
	return f
}

// readBlocks reads content: a text, or blocks.
func readBlocks(content raw, at string) (blocks []inputBlock, f *exchange.Refusal) {
	if content.Kind() == '"' {
		var text string
		f := decodeBody(content, &text, at)
		return []inputBlock{{Type: "text", Text: &text}}, f
	}
	f = decodeBody(content, &blocks, at)
	return blocks, f
}

// readTurns reads the messages into turns.
func (c *messages) readTurns(p *exchange.Prompt) *exchange.Refusal {
	for i, m := range c.request.Messages {
		at := fmt.Sprintf("messages.%d", i)
		if m.Role != "user" && m.Role != "assistant" {
			return badRequest("%s.role: Input should be 'user' or 'assistant'", at)
		}
		if len(m.Content) == 0 {
			return badRequest("%s.content: Field required", at)
		}
		blocks, f := readBlocks(m.Content, at+".content")
		if f != nil {
			return f
		}
		empty := len(blocks) == 0 || m.Content.Kind() == '"' && *blocks[0].Text == ""
		if empty && (m.Role == "user" || i < len(c.request.Messages)-1) {
			return badRequest("%s: %s messages must have non-empty content", at, m.Role)
		}
		p.Input.AddMessage()
		for j := range blocks {
			b, at := &blocks[j], fmt.Sprintf("%s.content.%d", at, j)
			mark := b.CacheControl
			if i == len(c.request.Messages)-1 && j == len(blocks)-1 && len(mark) == 0 {
				mark = c.request.CacheControl // of the request: its last block
			}
			if f := c.checkBlock(b, m.Role, at, p); f != nil {
				return f
			}
			if len(b.CacheControl) == 0 && strings.HasSuffix(b.Type, "thinking") && len(mark) > 0 {
				return badRequest("%s.%s.cache_control: Extra inputs are not permitted", at, b.Type)
			}
			if f := c.request.addBlock(p, slices.Concat([]byte(m.Role), exchange.Encode(b)), mark, at); f != nil {
				return f
			}
		}
		if n := len(c.turns); n > 0 && c.turns[n-1].Role == m.Role {
			c.turns[n-1].Blocks = append(c.turns[n-1].Blocks, blocks...)
		} else {
			c.turns = append(c.turns, inputTurn{m.Role, blocks})
		}
	}
	if c.turns[0].Role != "user" {
		return badRequest("messages: first message must use the \"user\" role")
	}
	return c.checkSizes()
}

var toolUseID = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

// checkBlock checks one block and counts it.
func (c *messages) checkBlock(b *inputBlock, role, at string, p *exchange.Prompt) *exchange.Refusal {
	b.at, b.CacheControl = at, nil // thinking is not bound to cache_control
	users := map[string]bool{
		"image":             true,
		"tool_result":       true,
		"tool_use":          false,
		"thinking":          false,
		"redacted_thinking": false,
	}
	if user, known := users[b.Type]; b.Type != "text" && (!known || user != (role == "user")) {
		return badRequest(
			"%s: Input tag '%s' found using 'type' does not match any of the expected tags in a message of the %s", at,
			b.Type, role)
	}
	switch b.Type {
	case "text":
		if b.Text == nil {
			return badRequest("%s.text.text: Field required", at)
		} else if *b.Text == "" {
			return badRequest("messages: text content blocks must be non-empty")
		} else if strings.TrimSpace(*b.Text) == "" {
			return badRequest("messages: text content blocks must contain non-whitespace text")
		}
		p.Input.AddTexts(*b.Text)
	case "image":
		return c.checkImage(b.Source, at, p)
	case "tool_use":
		if !toolUseID.MatchString(b.ID) {
			return badRequest("%s.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'", at)
		} else if !toolName.MatchString(b.Name) {
			return badRequest("%s.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'", at)
		} else if b.Input.Kind() != '{' {
			return badRequest("%s.tool_use.input: Input should be a valid dictionary", at)
		}
		p.Input.AddTexts(b.Name, string(b.Input))
	case "tool_result":
		return c.checkResult(b, at, p)
	case "thinking":
		if b.Signature == "" {
			return badRequest("%s.thinking.signature: Field required", at)
		}
	}
	return nil
}

// checkResult reads the content of a tool's result.
func (c *messages) checkResult(b *inputBlock, at string, p *exchange.Prompt) *exchange.Refusal {
	if !toolUseID.MatchString(b.ToolUseID) {
		return badRequest("%s.tool_result.tool_use_id: String should match pattern '^[a-zA-Z0-9_-]+$'", at)
	}
	if len(b.Content) == 0 || b.Content.Kind() == 'n' {
		return nil
	}
	blocks, f := readBlocks(b.Content, at+".tool_result.content")
	if f != nil {
		return f
	}
	for i, part := range blocks {
		at := fmt.Sprintf("%s.tool_result.content.%d", at, i)
		switch {
		case part.Type == "image":
			f = c.checkImage(part.Source, at, p)
		case part.Type != "text" || part.Text == nil:
			f = badRequest("%s: Input tag '%s' found using 'type' does not match any of the expected tags: 'image', "+
				"'text'", at, part.Type)
		case *part.Text == "" && b.Content.Kind() == '[':
			f = badRequest("messages: text content blocks must be non-empty")
		default:
			p.Input.AddTexts(*part.Text)
		}
		if f != nil {
			return f
		}
	}
	return nil
}

// checkImage checks an image as provider notes B.4 says.
func (c *messages) checkImage(s *imageSource, at string, p *exchange.Prompt) *exchange.Refusal {
	if s == nil {
		return badRequest("%s.image.source: Field required", at)
	}
	kinds := []string{"image/jpeg", "image/png", "image/gif", "image/webp"}
	switch {
	case s.Type == "url" && strings.HasPrefix(s.URL, "https://"):
		c.pictures = append(c.pictures, exchange.Image{})
		p.Input.Images += 1_600
		return nil
	case s.Type != "base64":
		return badRequest("%s.image.source: only base64 and https sources are supported", at)
	case !slices.Contains(kinds, s.MediaType):
		return badRequest(
			"%s.image.source.base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'",
			at)
	case len(s.Data)/4*3 > 5<<20:
		return badRequest("%s.image.source.base64: image exceeds 5 MB maximum: %d bytes > 5242880 bytes", at,
			len(s.Data)/4*3)
	}
	pic, err := exchange.DecodeImage(s.Data)
	if err != nil {
		return badRequest("%s.image.source.base64.data: The file format is invalid or unsupported", at)
	} else if pic.Kind != s.MediaType {
		return badRequest(
			"%s.image.source.base64.data: The image was specified using the %s media type, but the image appears to "+
				"be a %s image", at, s.MediaType, pic.Kind)
	}
	c.pictures = append(c.pictures, pic)
	most := 4_784
	if !c.model.Fixed {
		most = 1_568
	}
	p.Input.Images += pic.Patches(28, most)
	return nil
}

// checkSizes checks all images together: the more there are, the smaller each must be.
func (c *messages) checkSizes() *exchange.Refusal {
	side := 8000
	if len(c.pictures) > 20 {
		side = 2000
	}
	for _, p := range c.pictures {
		if max(p.Width, p.Height) > side {
			return badRequest(
				"messages: At least one of the image dimensions exceed max allowed size for these images: %d pixels",
				side)
		}
	}
	most := 600
	if c.model.Context <= 200_000 {
		most = 100
	}
	if len(c.pictures) > most {
		return badRequest("messages: too many images: %d > %d", len(c.pictures), most)
	}
	return nil
}
