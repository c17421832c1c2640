package contents

import (
	"bytes"
	"cmp"
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
	if err := r.countParts(len(c.Parts)); err != nil {
		return err
	}
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

func (r *reader) countParts(n int) error {
	if r.out.CountParts(n) != nil {
		return plan.Invalid("contents: too many parts in all")
	}
	return nil
}

// readContents reads the conversation. Neighbours of one role are one turn: clients keep each piece of a stream as a
// content of its own.
func (r *reader) readContents() error {
	all := r.body.Contents
	if len(all) == 0 {
		return plan.Invalid("contents: required, with at least one content")
	}
	for i := 0; i < len(all); {
		first, isModel := i, all[i].Role == "model"
		var parts []part
		for ; i < len(all) && (all[i].Role == "model") == isModel; i++ {
			c := &all[i]
			if !slices.Contains([]string{"model", "user", "function", ""}, c.Role) {
				return plan.Invalid("contents[%d].role: must be user or model", i)
			}
			if err := r.countParts(max(len(c.Parts), 1)); err != nil {
				return err
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
		return plan.Invalid("contents: at most %d turns, where each functionResponse counts as one", plan.MaxMessages)
	}
	return r.open.check("contents")
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
		rest.Add(b, p.pathOf(&b))
	}
	if err := r.open.check(path); err != nil {
		return err
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
	err := plan.Invalid("%s: must have one of %s", p.at, allowed)
	provider.Members(p.Unknown, func(name, _ []byte) bool {
		switch n := string(name); strings.ToLower(strings.ReplaceAll(n, "_", "")) {
		case "executablecode", "codeexecutionresult", "toolcall", "toolresponse":
			err = plan.Invalid("%s.%s: a tool of Google's own, which is not offered here; send its text", p.at, n)
		}
		return true
	})
	return err
}

// pathOf returns the path of what a block was read from.
func (p *part) pathOf(b *conversation.Block) string {
	switch {
	case b.Kind != conversation.ImageBlock:
		return p.at
	case p.InlineData != nil:
		return p.at + ".inlineData"
	}
	return p.at + ".fileData"
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
	id, ok := r.open.answer(f.ID, f.Name)
	if !ok && r.open.repeats(f) { // gemini-cli sends each response twice when it resumes a session
		r.out.Ignore("contents.parts.functionResponse")
		return nil
	}
	if !ok {
		return plan.Invalid("%s: %q answers no open functionCall of the model's content before it", path,
			cmp.Or(f.ID, f.Name))
	}
	r.open.answered[f.ID] = f
	if err := r.countParts(len(f.Parts)); err != nil {
		return err
	}
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
		pictures.Add(b, f.Parts[j].pathOf(&b))
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
	r.open = openCalls{ // those of the turn before have their responses
		open: map[string]int{}, named: map[string][]string{}, unnamed: map[string][]string{},
		answered: map[string]*functionReply{},
	}
	var d shapes.Draft
	var pieces strings.Builder // of the last block, a text that may go on; empty = it is whole
	end := func() {
		if pieces.Len() > 0 {
			d.Blocks[len(d.Blocks)-1].Text = pieces.String()
			pieces.Reset()
		}
	}
	reason := func(extra []byte, at string) {
		end()
		d.Add(conversation.Block{Kind: conversation.ReasoningBlock, Extra: extra}, at)
	}
	for i := range parts {
		p := &parts[i]
		m, err := readMark(p.ThoughtSignature)
		if err != nil {
			return plan.Invalid("%s.thoughtSignature: %v", p.at, err)
		}
		if err := r.countParts(len(m.Thoughts)); err != nil {
			return err
		}
		for _, extra := range m.Thoughts {
			reason([]byte(extra), p.at)
		}
		switch {
		case p.FunctionCall != nil:
			b, err := r.readCall(p, m)
			if err != nil {
				return err
			}
			end()
			d.Add(b, p.at)
		case p.Text != nil:
			text := *p.Text
			if p.Thought {
				text = "" // only its signature matters
			}
			if text != "" && (pieces.Len() == 0 || p.ThoughtSignature != "") {
				end()
				d.Add(conversation.Block{Phase: m.Phase}, p.at)
			}
			pieces.WriteString(text)
			for _, extra := range [][]byte{m.native, m.Call} { // of the text before it
				if extra != nil {
					reason(extra, p.at)
				}
			}
		case p.InlineData != nil || p.FileData != nil:
			return plan.Invalid("%s: images stand only in the user's contents", p.at)
		default:
			return refusePart(p, "text, functionCall")
		}
	}
	if end(); d.Says() {
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
	r.open.add(b.ID, f.Name, f.ID == "")
	return b, nil
}

// openCalls are the calls of a turn of the model that have no response yet.
type openCalls struct {
	n        int
	open     map[string]int      // how many, by id
	named    map[string][]string // the ids by the name of the function, in their order; some may have their response
	unnamed  map[string][]string // those of calls that came without an id
	all      []conversation.Block
	answered map[string]*functionReply // by the id of the response
}

// repeats reports whether a response is one that has come before.
func (c *openCalls) repeats(f *functionReply) bool {
	e := c.answered[f.ID]
	return f.ID != "" && e != nil && e.Name == f.Name && bytes.Equal(e.Response, f.Response)
}

func (c *openCalls) add(id, name string, withoutID bool) {
	c.n++
	c.all = append(c.all, conversation.Block{ID: id, Name: name})
	c.open[id]++
	c.named[name] = append(c.named[name], id)
	if withoutID {
		c.unnamed[name] = append(c.unnamed[name], id)
	}
}

// answer returns the id of the call that a response answers. Without an id it is the first of its name; with one that
// no call has, the first of its name that came without.
func (c *openCalls) answer(id, name string) (string, bool) {
	if c.n == 0 {
		return "", false
	}
	if c.open[id] == 0 {
		calls := c.named
		if id != "" {
			calls = c.unnamed
		}
		for list := calls[name]; ; list = list[1:] {
			if calls[name] = list; len(list) == 0 {
				return "", false
			}
			if id = list[0]; c.open[id] > 0 {
				break
			}
		}
	}
	c.open[id]--
	c.n--
	return id, true
}

// check refuses calls without a response, when something else follows at a path.
func (c *openCalls) check(path string) error {
	if c.n == 0 {
		return nil
	}
	first := slices.IndexFunc(c.all, func(b conversation.Block) bool { return c.open[b.ID] > 0 })
	return plan.Invalid("%s: the call of %s has no functionResponse; each needs its response in the next content", path,
		c.all[first].Name)
}
