package google

import (
	"fmt"
	"slices"
	"strings"

	"github.com/purserhq/purser/emulator/exchange"
)

// readContents reads the contents.
func (q *generateRequest) readContents(p *exchange.Prompt) *exchange.Refusal {
	if len(q.Contents) == 0 {
		return badRequest("* GenerateContentRequest.contents: contents is not specified\n")
	}
	if q.SystemInstruction != nil {
		if _, f := q.SystemInstruction.readParts("system_instruction", p); f != nil {
			return f
		}
		p.AddBlock(exchange.Encode(q.SystemInstruction), false)
	}
	for i := range q.Contents {
		c := &q.Contents[i]
		if c.Role == "" && len(q.Contents) == 1 {
			c.Role = "user"
		}
		if c.Role != "user" && c.Role != "model" {
			return badRequest("Please use a valid role: user, model.")
		}
		if i == 0 && c.Role == "model" {
			return badRequest("Please ensure that multiturn requests begin with a user turn.")
		}
		text, f := c.readParts(fmt.Sprintf("contents[%d]", i), p)
		if f != nil {
			return f
		}
		p.Input.AddMessage()
		p.AddBlock(exchange.Encode(c), false)
		switch {
		case c.Role == "user" && text != "":
			p.Text, p.Rounds, p.Results = text, 0, nil
		case c.Role == "user":
			for _, part := range c.Parts {
				if part.FunctionResponse != nil {
					p.Results = append(p.Results, string(part.FunctionResponse.Response))
				}
			}
		case c.countCalls() > 0:
			p.Rounds++
		}
	}
	return nil
}

// readParts checks the parts of a content and returns its text.
func (c *inputContent) readParts(at string, p *exchange.Prompt) (string, *exchange.Refusal) {
	if len(c.Parts) == 0 {
		return "", badRequest("* GenerateContentRequest.%s.parts: contents.parts must not be empty.\n", at)
	}
	var texts []string
	for i, part := range c.Parts {
		at := fmt.Sprintf("GenerateContentRequest.%s.parts[%d]", at, i)
		set := 0
		for _, has := range []bool{part.Text != nil, part.InlineData != nil, len(part.FileData) > 0,
			part.FunctionCall != nil, part.FunctionResponse != nil} {
			if has {
				set++
			}
		}
		if set != 1 {
			return "", badRequest("* %s.data: required oneof field 'data' must have one initialized field\n", at)
		}
		if part.Text != nil && *part.Text != "" && !part.Thought {
			texts = append(texts, *part.Text)
		}
		if f := part.checkPart(at, c.Role, p); f != nil {
			return "", f
		}
	}
	text := strings.Join(texts, "\n")
	p.Input.AddTexts(text)
	return text, nil
}

// checkPart checks one part that is no text, and counts it.
func (part *inputPart) checkPart(at, role string, p *exchange.Prompt) *exchange.Refusal {
	switch {
	case part.InlineData != nil:
		return part.InlineData.checkImage(p)
	case len(part.FileData) > 0:
		return badRequest("Cannot fetch content from the provided URL.")
	case part.FunctionCall != nil:
		if role != "model" {
			return badRequest("* %s: function_call is only for role model.\n", at)
		} else if !toolName.MatchString(part.FunctionCall.Name) {
			return badRequest("* %s.function_call.name: Name cannot be empty.\n", at)
		} else if kind := part.FunctionCall.Args.Kind(); kind != 0 && kind != '{' {
			return badRequest("Invalid value at '%s.function_call.args' (type.googleapis.com/google.protobuf.Struct)",
				at)
		}
		p.Input.AddTexts(part.FunctionCall.Name, string(part.FunctionCall.Args))
	case part.FunctionResponse != nil:
		if role != "user" {
			return badRequest("* %s: function_response is only for role user.\n", at)
		} else if part.FunctionResponse.Name == "" {
			return badRequest("* %s.function_response.name: Name cannot be empty.\n", at)
		} else if part.FunctionResponse.Response.Kind() != '{' {
			return badRequest(
				"Invalid value at '%s.function_response.response' (type.googleapis.com/google.protobuf.Struct)", at)
		}
		p.Input.AddTexts(part.FunctionResponse.Name, string(part.FunctionResponse.Response))
	}
	return nil
}

// checkImage checks an image (provider notes C.6).
func (b *inlineData) checkImage(p *exchange.Prompt) *exchange.Refusal {
	kinds := []string{"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"}
	if !slices.Contains(kinds, b.MIMEType) {
		return badRequest("Unsupported MIME type: %s", b.MIMEType)
	}
	pic, err := exchange.DecodeImage(b.Data)
	if err != nil {
		return badRequest("Invalid value at 'contents.parts.inline_data.data' (TYPE_BYTES), Base64 decoding failed")
	}
	if pic.Kind != b.MIMEType && b.MIMEType != "image/heic" && b.MIMEType != "image/heif" {
		return badRequest(
			"Unable to process input image. Please retry or report in " +
				"https://developers.generativeai.google/guide/troubleshooting")
	}
	if p.Model.Signatures {
		p.Input.Images += 1_120
	} else {
		p.Input.Images += 258 * pic.Patches(768, 16)
	}
	return nil
}
