// Package facts says what the text APIs of the providers take and refuse: each rule of docs/internals/providers.md that
// can be said in a request, as data. The emulator's tests send what stands here, and those of the gateway send the
// calls that would lead to it. It has no rule of its own, so that neither side learns the other's.
package facts

import (
	"embed"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
)

//go:embed *.json
var files embed.FS

// A Fact is one rule of the page, or a reason why a part of it is none.
type Fact struct {
	Rule    string `json:"rule"`    // the section
	Says    string `json:"says"`    // its words, of which this is played; "" = the whole section
	Without string `json:"without"` // why nothing is played; "" = it is

	To      string            `json:"to"`     // a route of the file
	Model   string            `json:"model"`  // "" = the route's
	Header  map[string]string `json:"header"` // further headers; an empty one removes that of the route
	Send    map[string]any    `json:"send"`   // members that differ from the route's body; null removes
	Refused *Refusal          `json:"refused"`

	Call   map[string]any `json:"call"`    // members of a call of Purser that differ from an ordinary one
	NoCall string         `json:"no_call"` // why no call of Purser leads there
	Ours   string         `json:"ours"`    // what becomes of the call; "" = taken
	Own    string         `json:"own"`     // why Purser refuses what the provider takes, sent by the same API

	Path string         `json:"-"` // of the request
	Body map[string]any `json:"-"`
}

// A Refusal is the error that a provider answers with. Members that are not set are not compared.
type Refusal struct {
	Status int    `json:"status"` // 0 = 400
	Type   string `json:"type"`   // of Google the status
	Code   string `json:"code"`
	Param  string `json:"param"`
	Text   string `json:"text"` // a part of the message
}

// What becomes of a call of Purser that would naively lead to a refusal.
const (
	Taken   = ""        // the provider takes what Purser makes of it
	Refused = "refused" // Purser refuses it, before the provider is asked
	Passed  = "passed"  // the client speaks the provider's own API, and gets the provider's error
)

// Name returns how tests name a fact.
func (f *Fact) Name() string { return fmt.Sprintf("%s %s %s: %s", f.Rule, f.To, f.Model, f.Says) }

// Load returns all facts.
func Load() (list []Fact, err error) {
	for _, name := range []string{"openai.json", "anthropic.json", "google.json"} {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		var file struct {
			Routes map[string]struct {
				Path  string         `json:"path"`
				Model string         `json:"model"`
				Body  map[string]any `json:"body"`
			} `json:"routes"`
			Facts []Fact `json:"facts"`
		}
		if err := json.Unmarshal(text, &file, json.RejectUnknownMembers(true)); err != nil {
			return nil, fmt.Errorf("facts: %s: %w", name, err)
		}
		for _, f := range file.Facts {
			route, known := file.Routes[f.To]
			if !known && f.Without == "" {
				return nil, fmt.Errorf("facts: %s: %s goes to no route", name, f.Name())
			}
			if f.Model == "" {
				f.Model = route.Model
			}
			f.Path = strings.ReplaceAll(route.Path, "{model}", f.Model)
			f.Body = merge(route.Body, f.Send, f.Model)
			list = append(list, f)
		}
	}
	return list, nil
}

// CallBody returns the body of the call of Purser: POST /openai/v1/embeddings for embeddings, otherwise POST
// /v1/chat/completions. Where the provider speaks the same API, the call is what is sent, unless the fact says another.
func (f *Fact) CallBody() map[string]any {
	body := map[string]any{"model": "{model}", "max_tokens": 2000,
		"messages": []any{map[string]any{"role": "user", "content": "Hi"}}}
	if f.IsEmbedding() {
		body = map[string]any{"model": "{model}", "input": "Hi"}
	}
	call := f.Call
	if call == nil && f.SpeaksOurs() {
		call = f.Send
	}
	return merge(body, call, f.Model)
}

// IsEmbedding reports whether a fact is of embeddings.
func (f *Fact) IsEmbedding() bool { return strings.Contains(strings.ToLower(f.Path), "embed") }

// SpeaksOurs reports whether the provider's API is that of the call.
func (f *Fact) SpeaksOurs() bool {
	return f.Path == "/v1/chat/completions" || f.Path == "/v1/embeddings"
}

// merge returns a body with other members.
func merge(body, members map[string]any, model string) map[string]any {
	body = maps.Clone(body)
	for name, value := range members {
		if body[name] = value; value == nil {
			delete(body, name)
		}
	}
	return expand(body, map[string]string{"{model}": model}).(map[string]any)
}

// expand replaces words in strings, and writes out what is repeated: {"$repeat": 3, "of": …} stands for three elements
// of the list in which it stands, or for a text three times as long, {"$repeat": 3, "key": "k#", "of": …} for an object
// with three members. # is the number of the one.
func expand(v any, words map[string]string) any {
	switch v := v.(type) {
	case string:
		for word, by := range words {
			v = strings.ReplaceAll(v, word, by)
		}
		return v
	case []any:
		list := []any{}
		for _, one := range v {
			if of, n := repeated(one); n > 0 && of["key"] == nil {
				for i := range n {
					list = append(list, expand(of["of"], number(words, i)))
				}
			} else {
				list = append(list, expand(one, words))
			}
		}
		return list
	case map[string]any:
		of, n := repeated(v)
		if text, ok := of["of"].(string); ok && n > 0 && of["key"] == nil {
			return strings.Repeat(text, n)
		}
		object := map[string]any{}
		if key, ok := of["key"].(string); ok && n > 0 {
			for i := range n {
				words := number(words, i)
				object[expand(key, words).(string)] = expand(of["of"], words)
			}
			return object
		}
		for name, one := range v {
			object[name] = expand(one, words)
		}
		return object
	}
	return v
}

// repeated returns an object that stands for several values, and for how many; 0 = it does not.
func repeated(v any) (of map[string]any, n int) {
	of, _ = v.(map[string]any)
	times, _ := of["$repeat"].(float64)
	return of, int(times)
}

// number adds the number of a value.
func number(words map[string]string, i int) map[string]string {
	words = maps.Clone(words)
	words["#"] = strconv.Itoa(i)
	return words
}
