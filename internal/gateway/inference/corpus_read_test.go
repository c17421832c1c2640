package inference

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// This file reads answers as the clients of each API do, into the views of tools/corpus/views.py.

// A clientView is what a client reads of an answer. Tests compare it as JSON.
type clientView struct {
	Blocks    []any   `json:"blocks,omitzero"` // of all but Chat Completions
	Content   *string `json:"content,omitempty"`
	Refusal   *string `json:"refusal,omitempty"`
	Reasoning *string `json:"reasoning,omitempty"`
	Calls     []any   `json:"calls,omitzero"`
	End       any     `json:"end"`
	Sequence  any     `json:"sequence,omitempty"`

	failed bool
	done   bool // the last event came
	pieces map[int]*[]any
}

// An object is a JSON object of which a client reads some members.
type object map[string]any

func (o object) at(path ...string) any {
	var v any = map[string]any(o)
	for _, name := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[name]
	}
	return v
}

func (o object) text(path ...string) string {
	s, _ := o.at(path...).(string)
	return s
}

func (o object) number(path ...string) int {
	var n int
	_, _ = fmt.Sscan(fmt.Sprint(o.at(path...)), &n)
	return n
}

func (o object) list(path ...string) (list []object) {
	values, _ := o.at(path...).([]any)
	for _, v := range values {
		m, _ := v.(map[string]any)
		list = append(list, m)
	}
	return list
}

// decode reads a JSON object, with its numbers as they are written.
func decode(text string) (object, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var o object
	return o, d.Decode(&o)
}

// numbered puts # before the numbers of a value.
func numbered(v any) any {
	switch v := v.(type) {
	case json.Number:
		return "#" + v.String()
	case map[string]any:
		for name := range v {
			v[name] = numbered(v[name])
		}
	case []any:
		for i := range v {
			v[i] = numbered(v[i])
		}
	}
	return v
}

// asObject is the value of arguments where they must be an object.
func asObject(arguments string) any {
	o, err := decode(arguments)
	if arguments == "" {
		o, err = object{}, nil
	}
	if err != nil || o == nil {
		return map[string]any{"invalid_json": arguments}
	}
	return numbered(map[string]any(o))
}

// addText adds a piece of a block; a piece of another kind begins one.
func (v *clientView) addText(kind, text string, isNew bool) {
	if text == "" {
		return
	}
	if n := len(v.Blocks); n > 0 && !isNew {
		if last := v.Blocks[n-1].([]any); last[0] == kind {
			last[1] = last[1].(string) + text
			return
		}
	}
	v.Blocks = append(v.Blocks, []any{kind, text})
}

// readView reads an answer of a route, which is a stream, or whole.
func readView(route, text string, streamed bool) (v clientView, err error) {
	read := map[string]func(*clientView, object){
		"ai": (*clientView).readChat, "chat": (*clientView).readChat, "contents": (*clientView).readContents,
		"messages": (*clientView).readMessages, "responses": (*clientView).readResponses,
	}[route]
	v.pieces = map[int]*[]any{}
	if route == "ai" || route == "chat" {
		v.Content, v.Refusal, v.Reasoning, v.Calls = new(string), new(string), new(string), []any{}
	} else {
		v.Blocks = []any{}
	}
	texts := []string{text}
	if streamed {
		texts = nil
		for event := range strings.SplitSeq(text, "\n\n") {
			for line := range strings.SplitSeq(event, "\n") {
				if data, ok := strings.CutPrefix(line, "data: "); ok {
					texts = append(texts, data)
				}
			}
		}
	}
	for _, data := range texts {
		if data == "[DONE]" {
			v.done = true
			continue
		}
		if v.done && streamed {
			return v, fmt.Errorf("behind the last event: %s", data)
		}
		o, err := decode(data)
		if err != nil {
			return v, fmt.Errorf("%w in %s", err, data)
		}
		read(&v, o)
	}
	if route == "contents" || !streamed {
		v.done = true
	}
	return v, nil
}

func (v *clientView) readChat(o object) {
	v.failed = v.failed || o.at("error") != nil
	for _, c := range o.list("choices") {
		m := object{}
		for _, name := range []string{"message", "delta"} {
			if o, ok := c.at(name).(map[string]any); ok {
				m = o
			}
		}
		*v.Content += m.text("content")
		*v.Refusal += m.text("refusal")
		*v.Reasoning += m.text("reasoning_content")
		for i, call := range m.list("tool_calls") {
			if call.at("index") != nil {
				i = call.number("index")
			}
			if i == len(v.Calls) {
				v.Calls = append(v.Calls, []any{call.text("id"), call.text("function", "name"), ""})
			}
			c := v.Calls[i].([]any)
			c[2] = c[2].(string) + call.text("function", "arguments")
		}
		if reason := c.at("finish_reason"); reason != nil {
			v.End = reason
		}
	}
}

// block adds a block of a message of Anthropic's.
func (v *clientView) block(b object) {
	switch b.text("type") {
	case "text":
		v.addText("text", b.text("text"), true)
	case "thinking":
		v.addText("reasoning", b.text("thinking"), true)
	case "tool_use":
		input, _ := b.at("input").(map[string]any)
		v.Blocks = append(v.Blocks, []any{"call", b.text("id"), b.text("name"), numbered(input)})
	}
}

func (v *clientView) readMessages(o object) {
	switch o.text("type") {
	case "message":
		for _, b := range o.list("content") {
			v.block(b)
		}
		v.End, v.Sequence = o.at("stop_reason"), o.at("stop_sequence")
	case "content_block_start":
		b := object(o.at("content_block").(map[string]any))
		v.pieces[o.number("index")] = &[]any{b, ""}
	case "content_block_delta":
		p := *v.pieces[o.number("index")]
		for _, name := range []string{"text", "thinking", "partial_json"} {
			p[1] = p[1].(string) + o.text("delta", name)
		}
	case "content_block_stop":
		p := *v.pieces[o.number("index")]
		b := p[0].(object)
		if b.text("type") == "tool_use" {
			if p[1] != "" || len(b.at("input").(map[string]any)) == 0 {
				b["input"] = asObject(p[1].(string))
			}
		} else {
			name := map[string]string{"thinking": "thinking"}[b.text("type")]
			if name == "" {
				name = "text"
			}
			b[name] = b.text(name) + p[1].(string)
		}
		v.block(b)
	case "message_delta":
		v.End, v.Sequence = o.at("delta", "stop_reason"), o.at("delta", "stop_sequence")
	case "message_stop":
		v.done = true
	case "error":
		v.failed, v.done = true, true
	}
}

func (v *clientView) readResponses(o object) {
	switch kind := o.text("type"); kind {
	case "error":
		v.failed = true
	case "response.failed":
		v.failed, v.done = true, true
	case "response.output_text.delta", "response.refusal.delta", "response.function_call_arguments.delta",
		"response.reasoning_summary_text.delta":
		i := o.number("output_index")
		if v.pieces[i] == nil {
			v.pieces[i] = &[]any{""}
		}
		(*v.pieces[i])[0] = (*v.pieces[i])[0].(string) + o.text("delta")
	case "response.completed", "response.incomplete":
		v.done = true
		r, _ := o.at("response").(map[string]any)
		v.readResponse(r)
	case "":
		v.readResponse(o)
	}
}

func (v *clientView) readResponse(o object) {
	if v.failed = v.failed || o.at("error") != nil; v.failed {
		return
	}
	for i, item := range o.list("output") {
		said := ""
		switch item.text("type") {
		case "message":
			var parts []any
			for _, p := range item.list("content") {
				if p.text("type") == "refusal" {
					parts = append(parts, []any{"refusal", p.text("refusal")})
				} else if p.text("text") != "" {
					parts = append(parts, []any{"text", p.text("text")})
				}
				said += p.text("text") + p.text("refusal")
			}
			if len(parts) > 0 {
				v.Blocks = append(v.Blocks, []any{"message", item.at("phase"), parts})
			}
		case "reasoning":
			for n, s := range item.list("summary") {
				if n > 0 {
					said += "\n\n"
				}
				said += s.text("text")
			}
			v.addText("reasoning", said, true)
		case "function_call":
			said = item.text("arguments")
			v.Blocks = append(v.Blocks, []any{"call", item.text("call_id"), item.text("name"), said})
		}
		if p := v.pieces[i]; p != nil && joined((*p)[0].(string)) != joined(said) {
			v.Blocks = append(v.Blocks, []any{"deltas", (*p)[0]})
		}
	}
	v.End = o.text("status")
	if reason := o.text("incomplete_details", "reason"); reason != "" {
		v.End = reason
	}
}

// joined is a text without what stands between the parts of a summary.
func joined(s string) string { return strings.ReplaceAll(s, "\n\n", "") }

func (v *clientView) readContents(o object) {
	v.failed = v.failed || o.at("error") != nil
	for _, c := range o.list("candidates") {
		for _, p := range c.list("content", "parts") {
			switch {
			case p.at("functionCall") != nil:
				args, _ := p.at("functionCall", "args").(map[string]any)
				if args == nil {
					args = map[string]any{}
				}
				id, name := p.text("functionCall", "id"), p.text("functionCall", "name")
				v.Blocks = append(v.Blocks, []any{"call", id, name, numbered(args)})
			case p.at("thought") == true:
				v.addText("reasoning", p.text("text"), false)
			default:
				v.addText("text", p.text("text"), false)
			}
		}
		if reason := c.at("finishReason"); reason != nil {
			v.End = reason
		}
	}
}

// equalViews reports whether a view is what is wanted, in which * is any id.
func equalViews(got clientView, want json.RawMessage) (string, bool) {
	var w any
	if err := json.Unmarshal(want, &w); err != nil {
		return err.Error(), false
	}
	text, err := json.Marshal(got)
	if err != nil {
		return err.Error(), false
	}
	var g any
	if err := json.Unmarshal(text, &g); err != nil {
		return err.Error(), false
	}
	hideIDs(g, w)
	gotText, _ := json.Marshal(g)
	wantText, _ := json.Marshal(w)
	return fmt.Sprintf("%s\nwant %s", gotText, wantText), bytes.Equal(gotText, wantText)
}

// hideIDs puts * for an id wherever any is wanted.
func hideIDs(got, want any) {
	g, _ := got.(map[string]any)
	w, _ := want.(map[string]any)
	for _, name := range []string{"blocks", "calls"} {
		gs, _ := g[name].([]any)
		ws, _ := w[name].([]any)
		for i := range min(len(gs), len(ws)) {
			a, _ := gs[i].([]any)
			b, _ := ws[i].([]any)
			for j := range min(2, len(a), len(b)) {
				if b[j] == "*" && a[j] != "" {
					a[j] = "*"
				}
			}
		}
	}
	if w["sequence"] == nil {
		delete(w, "sequence")
	}
}
