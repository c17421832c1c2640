package contents

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

type content struct {
	Role    string         `json:"role"`
	Parts   list[part]     `json:"parts"`
	Unknown jsontext.Value `json:",unknown"`
}

// A part is a piece of content, with the members of its kind.
type part struct {
	Text             *string        `json:"text"`
	Thought          bool           `json:"thought"`
	ThoughtSignature string         `json:"thoughtSignature,case:ignore"`
	InlineData       *data          `json:"inlineData,case:ignore"`
	FileData         *data          `json:"fileData,case:ignore"`
	FunctionCall     *functionCall  `json:"functionCall,case:ignore"`
	FunctionResponse *functionReply `json:"functionResponse,case:ignore"`
	ExecutableCode   jsontext.Value `json:"executableCode,case:ignore"`
	CodeResult       jsontext.Value `json:"codeExecutionResult,case:ignore"`
	ToolCall         jsontext.Value `json:"toolCall,case:ignore"`
	ToolResponse     jsontext.Value `json:"toolResponse,case:ignore"`
	Unknown          jsontext.Value `json:",unknown"`

	at string // its path
}

// Data is a file: by its bytes, or by its address.
type data struct {
	MIMEType string         `json:"mimeType,case:ignore"`
	Data     string         `json:"data"`
	FileURI  string         `json:"fileUri,case:ignore"`
	Unknown  jsontext.Value `json:",unknown"`
}

type functionCall struct {
	ID      string         `json:"id"`
	Name    string         `json:"name"`
	Args    jsontext.Value `json:"args"`
	Unknown jsontext.Value `json:",unknown"`
}

type functionReply struct {
	ID       string         `json:"id"`
	Name     string         `json:"name"`
	Response jsontext.Value `json:"response"`
	Parts    list[part]     `json:"parts"`
	Unknown  jsontext.Value `json:",unknown"`
}

// addTurn adds a turn to the canonical request.
func (r *reader) addTurn(role string, d shapes.Draft, at string) {
	d.Place.At = at
	r.out.Turns = append(r.out.Turns, conversation.Turn{Role: role, Blocks: d.Blocks})
	r.call.places = append(r.call.places, d.Place)
}

// readSystem reads the instruction, which is text.
func (r *reader) readSystem() error {
	c := r.body.SystemInstruction
	if c == nil || len(c.Parts) == 0 {
		return nil
	}
	r.out.IgnoreIn("systemInstruction", c.Unknown)
	var d shapes.Draft
	for i := range c.Parts {
		p := &c.Parts[i]
		path := at("systemInstruction.parts", i)
		r.out.IgnoreIn("systemInstruction.parts", p.Unknown)
		if p.Text == nil {
			return plan.Invalid("%s.text: required; an instruction is text", path)
		}
		d.Add(conversation.Block{Text: *p.Text}, path)
	}
	r.addTurn("system", d, "systemInstruction")
	return nil
}

// readContents reads the conversation. Neighbours of one role are one turn: clients keep each piece of a stream as a
// content of its own.
func (r *reader) readContents() error {
	all := r.body.Contents
	switch {
	case len(all) == 0:
		return plan.Invalid("contents: required, with at least one content")
	case len(all) > plan.MaxMessages:
		return plan.Invalid("contents: at most %d", plan.MaxMessages)
	}
	for i := 0; i < len(all); {
		first, isModel := i, all[i].Role == "model"
		var parts []part
		for ; i < len(all) && (all[i].Role == "model") == isModel; i++ {
			c := &all[i]
			if !slices.Contains([]string{"model", "user", "function", ""}, c.Role) {
				return plan.Invalid("contents[%d].role: must be user or model", i)
			}
			if err := r.out.CountParts(len(c.Parts)); err != nil {
				return plan.Invalid("contents: too many parts in all")
			}
			r.out.IgnoreIn("contents", c.Unknown)
			for j := range c.Parts {
				c.Parts[j].at = at("contents["+strconv.Itoa(i)+"].parts", j)
				r.out.IgnoreIn("contents.parts", c.Parts[j].Unknown)
			}
			parts = append(parts, c.Parts...)
		}
		if len(parts) == 0 && !isModel {
			return plan.Invalid("contents[%d].parts: required, with at least one part", first)
		}
		read := r.readUser
		if isModel {
			read = r.readModel
		}
		if err := read(parts, at("contents", first)); err != nil {
			return err
		}
	}
	if len(r.out.Turns) > plan.MaxMessages {
		return plan.Invalid("contents: at most %d, where each functionResponse counts as one", plan.MaxMessages)
	}
	return nil
}

// readUser reads a turn of the user: a turn for each response of a function, and then one with all the rest, with the
// images of the responses.
func (r *reader) readUser(parts []part, path string) error {
	var pictures, rest shapes.Draft
	for i := range parts {
		p := &parts[i]
		if p.FunctionResponse != nil {
			if err := r.readReply(p, &pictures); err != nil {
				return err
			}
			continue
		}
		b, err := r.readSaid(p)
		if err != nil {
			return err
		}
		rest.Add(b, p.at)
	}
	if len(r.open) > 0 {
		return plan.Invalid("%s: the call of %s has no functionResponse; each needs its response in the next content",
			path, r.named[0])
	}
	for i, b := range rest.Blocks {
		pictures.Add(b, rest.Place.Parts[i])
	}
	if len(pictures.Blocks) > 0 {
		r.addTurn("user", pictures, path)
	}
	return nil
}

// readSaid reads a text or an image.
func (r *reader) readSaid(p *part) (b conversation.Block, err error) {
	switch {
	case p.Text != nil:
		return conversation.Block{Text: *p.Text}, nil
	case p.InlineData != nil:
		return r.readImage(p.InlineData, p.at+".inlineData")
	case p.FileData != nil:
		return r.readImage(p.FileData, p.at+".fileData")
	case p.FunctionCall != nil:
		return b, plan.Invalid("%s.functionCall: stands only in the model's contents", p.at)
	}
	return b, refusePart(p, "text, inlineData, fileData, functionResponse")
}

// refusePart says what a part may be.
func refusePart(p *part, allowed string) error {
	for _, m := range []struct {
		name  string
		value jsontext.Value
	}{
		{"executableCode", p.ExecutableCode}, {"codeExecutionResult", p.CodeResult},
		{"toolCall", p.ToolCall}, {"toolResponse", p.ToolResponse},
	} {
		if plan.IsSet(m.value) {
			return plan.Invalid("%s.%s: a tool of Google's own, which is not offered here; send its text", p.at, m.name)
		}
	}
	return plan.Invalid("%s: must have one of %s", p.at, allowed)
}

// readImage reads an image, by its bytes or by its address on the web.
func (r *reader) readImage(d *data, path string) (b conversation.Block, err error) {
	r.out.IgnoreIn(path, d.Unknown)
	kind := strings.ToLower(d.MIMEType)
	url, path, from := d.FileURI, path+".fileUri", path
	switch {
	case kind != "" && !strings.HasPrefix(kind, "image/"), kind == "" && d.FileURI == "":
		return b, plan.Invalid("%s.mimeType: only images are read here, as image/png; send the text of other files",
			from)
	case d.FileURI == "":
		url, path = "data:"+kind+";base64,"+standard.Replace(d.Data), from+".data"
	case strings.HasPrefix(url, "gs://") || strings.HasPrefix(url, "files/") ||
		strings.HasPrefix(url, "https://generativelanguage.googleapis.com/"):
		return b, plan.Invalid("%s: Google's files are not reached from here; send the bytes as inlineData", path)
	}
	if err := images.CheckURL(url); err != nil {
		return b, plan.Invalid("%s: %v", path, err)
	}
	return conversation.Block{Kind: conversation.ImageBlock, Picture: &conversation.Picture{URL: url}}, nil
}

// standard turns Base64 for addresses, which some clients send, into the usual one.
var standard = strings.NewReplacer("-", "+", "_", "/")

// readReply reads the response of a function. Without an id it answers the first open call of its name.
func (r *reader) readReply(p *part, pictures *shapes.Draft) error {
	f := p.FunctionResponse
	path := p.at + ".functionResponse"
	r.out.IgnoreIn("contents.parts.functionResponse", f.Unknown)
	i := slices.Index(r.open, f.ID)
	if f.ID == "" {
		i = slices.Index(r.named, f.Name)
	}
	if i < 0 {
		name := f.Name
		if f.ID != "" {
			name = f.ID
		}
		return plan.Invalid("%s: %q answers no open functionCall of the model's content before it", path, name)
	}
	id := r.open[i]
	r.open, r.named = slices.Delete(r.open, i, i+1), slices.Delete(r.named, i, i+1)
	text, failed := readOutput(f.Response)
	for j := range f.Parts {
		f.Parts[j].at = at(path+".parts", j)
		r.out.IgnoreIn(path+".parts", f.Parts[j].Unknown)
		b, err := r.readSaid(&f.Parts[j])
		if err != nil {
			return err
		}
		if b.Kind == conversation.TextBlock {
			return plan.Invalid("%s: must be an image; the text is in response", f.Parts[j].at)
		}
		pictures.Add(b, f.Parts[j].at)
	}
	var d shapes.Draft
	d.Blocks = []conversation.Block{{
		Kind:   conversation.ResultBlock,
		ID:     id,
		Failed: failed,
		Blocks: []conversation.Block{{Text: text}},
	}}
	d.Place.Parts = []string{path}
	r.addTurn("tool", d, p.at)
	return nil
}

// readOutput returns what a function has said. Google gives the members output and error a meaning; any other object is
// the output.
func readOutput(response jsontext.Value) (text string, failed bool) {
	if !plan.IsSet(response) {
		return "", false
	}
	members, name, only := 0, "", jsontext.Value(nil)
	provider.Members(response, func(n, value []byte) bool {
		members, name, only = members+1, string(n), value
		return true
	})
	if members == 1 && (name == "output" || name == "error") {
		response, failed = only, name == "error"
		if plain, err := jsontext.AppendUnquote(nil, only); err == nil {
			return string(plain), failed
		}
	}
	if response.Kind() == '{' {
		return provider.CompactObject(response), failed
	}
	return string(response), failed
}

// readModel reads a turn of the model, block by block. Pieces of one text are one block.
func (r *reader) readModel(parts []part, path string) error {
	var d shapes.Draft
	goesOn := false // the last block is a text that may go on
	for i := range parts {
		p := &parts[i]
		m, err := readMark(p.ThoughtSignature)
		if err != nil {
			return plan.Invalid("%s.thoughtSignature: %v", p.at, err)
		}
		for _, extra := range m.Thoughts {
			d.Add(conversation.Block{Kind: conversation.ReasoningBlock, Extra: []byte(extra)}, p.at)
			goesOn = false
		}
		switch {
		case p.FunctionCall != nil:
			b, err := r.readCall(p, m)
			if err != nil {
				return err
			}
			d.Add(b, p.at)
			goesOn = false
		case p.Text != nil:
			text := *p.Text
			if p.Thought {
				text = "" // only its signature matters
			}
			switch last := len(d.Blocks) - 1; {
			case text == "":
			case goesOn && p.ThoughtSignature == "":
				d.Blocks[last].Text += text
			default:
				d.Add(conversation.Block{Text: text, Phase: m.Phase}, p.at)
				goesOn = true
			}
			if m.native != nil { // it signs the text before it
				d.Add(conversation.Block{Kind: conversation.ReasoningBlock, Extra: m.native}, p.at)
				goesOn = false
			}
		case p.InlineData != nil || p.FileData != nil:
			return plan.Invalid("%s: images stand only in the user's contents", p.at)
		default:
			return refusePart(p, "text, functionCall")
		}
	}
	if d.Says() {
		r.addTurn("assistant", d, path)
	}
	return nil
}

// readCall reads a call of a function. One without an id gets one.
func (r *reader) readCall(p *part, m mark) (b conversation.Block, err error) {
	f := p.FunctionCall
	switch {
	case f.Name == "":
		return b, plan.Invalid("%s.functionCall.name: required", p.at)
	case plan.IsSet(f.Args) && f.Args.Kind() != '{':
		return b, plan.Invalid("%s.functionCall.args: must be an object", p.at)
	}
	r.out.IgnoreIn("contents.parts.functionCall", f.Unknown)
	r.calls++
	b = conversation.Block{Kind: conversation.CallBlock, ID: f.ID, Name: f.Name, Arguments: "{}"}
	if b.ID == "" {
		b.ID = "call_" + strconv.Itoa(r.calls)
	}
	if plan.IsSet(f.Args) {
		b.Arguments = string(f.Args)
	}
	b.Extra = m.native
	if m.Call != nil {
		b.Extra = []byte(m.Call)
	}
	r.open, r.named = append(r.open, b.ID), append(r.named, f.Name)
	return b, nil
}
