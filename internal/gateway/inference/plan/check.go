package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/images"
)

// Bounds of a request (contract §8).
const (
	maxMessages = 4096
	maxParts    = 1 << 15 // content parts and tool calls of all messages
	maxTools    = 128
	maxImages   = 20 // that are downloaded; those in the body are bounded by its bytes
)

var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

const maxToolName = 64

// Check checks a canonical request that was built from a client's body, and counts its images. Every shape's request
// passes it. Its errors name the members as the body of POST /v1/chat/completions has them.
func (r *Request) Check() error {
	for _, check := range []func() error{
		r.checkDropped, r.checkScalars, r.checkStop, r.checkFormat, r.checkTurns, r.checkTools, r.checkResults,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func errEffort() error {
	return invalid("reasoning_effort: must be one of none, minimal, low, medium, high, xhigh, max")
}

func errMessages() error { return invalid("messages: at most %d", maxMessages) }

func errTools() error { return invalid("tools: at most %d", maxTools) }

func (r *Request) checkScalars() error {
	if t := r.Temperature; t != nil && (*t < 0 || *t > 2) {
		return invalid("temperature: must be between 0 and 2")
	}
	if t := r.TopP; t != nil && (*t < 0 || *t > 1) {
		return invalid("top_p: must be between 0 and 1")
	}
	efforts := []string{"", "none", "minimal", "low", "medium", "high", "xhigh", "max"} // "" = not given
	if !slices.Contains(efforts, r.ReasoningEffort) {
		return errEffort()
	}
	return nil
}

func (r *Request) checkStop() error {
	if len(r.Stop) > 4 {
		return invalid("stop: at most 4 sequences")
	}
	for i, s := range r.Stop {
		if s == "" || len(s) > 256 {
			return invalid("stop[%d]: must have 1 to 256 bytes", i)
		}
	}
	return nil
}

// checkFormat checks response_format. The type text is the default, so it is dropped.
func (r *Request) checkFormat() error {
	if r.ResponseFormat == nil {
		return nil
	}
	var f struct {
		Type       string `json:"type"`
		JSONSchema *struct {
			Name   string         `json:"name"`
			Schema jsontext.Value `json:"schema"`
		} `json:"json_schema"`
	}
	if jsontext.Value(r.ResponseFormat).Kind() != '{' || web.DecodeSaid(r.ResponseFormat, &f) != nil {
		return invalid("response_format: must be an object with a type")
	}
	switch f.Type {
	case "text":
		r.ResponseFormat = nil
	case "json_object":
	case "json_schema":
		if f.JSONSchema == nil || !toolName.MatchString(f.JSONSchema.Name) {
			return invalid("response_format.json_schema.name: required, must match %s", toolName)
		}
		if isSet(f.JSONSchema.Schema) && f.JSONSchema.Schema.Kind() != '{' {
			return invalid("response_format.json_schema.schema: must be a JSON Schema object")
		}
	default:
		return invalid("response_format.type: must be one of text, json_object, json_schema")
	}
	return nil
}

// checkTurns checks what was said, and counts its images.
func (r *Request) checkTurns() error {
	if len(r.Turns) == 0 {
		return invalid("messages: required, with at least one message")
	}
	if len(r.Turns) > maxMessages {
		return errMessages()
	}
	remote := 0
	r.Images = 0
	for i := range r.Turns {
		if t := &r.Turns[i]; !slices.ContainsFunc(t.Blocks, saysSomething) {
			return invalid("messages[%d].content: required", i)
		}
		for j := range r.Turns[i].Blocks {
			if err := r.checkBlock(i, j); err != nil {
				return err
			}
			if p := r.Turns[i].Blocks[j].Picture; p != nil && images.IsRemote(p.URL) {
				remote++
			}
		}
	}
	if remote > maxImages {
		return invalid("messages: at most %d images in a request that are to be downloaded", maxImages)
	}
	return nil
}

func saysSomething(b conversation.Block) bool { return b.Kind != conversation.ReasoningBlock }

// fitToolName returns the name of a tool that was called as each provider takes it. Models invent names, such as
// multi_tool_use.parallel, which come back with the history; the same one always becomes the same.
func fitToolName(name string) string {
	if toolName.MatchString(name) {
		return name
	}
	fitted := strings.Map(func(c rune) rune {
		if c < 0x80 && toolName.MatchString(string(c)) {
			return c
		}
		return '_'
	}, name)
	if len(fitted) <= maxToolName {
		return fitted
	}
	sum := sha256.Sum256([]byte(name))
	return fitted[:maxToolName-9] + "_" + hex.EncodeToString(sum[:4])
}

// checkBlock checks what of a block needs no network.
func (r *Request) checkBlock(i, j int) error {
	b := &r.Turns[i].Blocks[j]
	at := func() string { return conversation.Member(r.Turns, i, j) }
	switch b.Kind {
	case conversation.CallBlock:
		switch {
		case b.ID == "":
			return invalid("%s.id: required", at())
		case b.Name == "":
			return invalid("%s.function.name: required", at())
		}
		b.Name = fitToolName(b.Name)
	case conversation.ResultBlock:
		if k := slices.IndexFunc(b.Blocks, func(b conversation.Block) bool {
			return b.Kind != conversation.TextBlock
		}); k >= 0 {
			return invalid("messages[%d].content[%d].type: images stand only in user messages", i, k)
		}
	case conversation.ImageBlock:
		r.Images++
		if r.Turns[i].Role != "user" {
			return invalid("%s.type: images stand only in user messages", at())
		}
		if !slices.Contains([]string{"", "auto", "low", "high", "original"}, b.Picture.Detail) {
			return invalid("%s.image_url.detail: must be one of auto, low, high, original", at())
		}
		if err := images.CheckURL(b.Picture.URL); err != nil {
			return invalid("%s.image_url.url: %v", at(), err)
		}
	}
	return nil
}

func (r *Request) checkTools() error {
	if len(r.Tools) > maxTools {
		return errTools()
	}
	names := map[string]bool{}
	for i := range r.Tools {
		path := fmt.Sprintf("tools[%d].function", r.findTool(i))
		switch t := &r.Tools[i]; {
		case !toolName.MatchString(t.Name):
			return invalid("%s.name: required, must match %s", path, toolName)
		case names[t.Name]:
			return invalid("%s.name: %q stands twice", path, t.Name)
		case t.Parameters != nil && jsontext.Value(t.Parameters).Kind() != '{':
			return invalid("%s.parameters: must be a JSON Schema object", path)
		}
		names[r.Tools[i].Name] = true
	}
	c := r.ToolChoice
	switch {
	case r.ParallelToolCalls != nil && len(r.Tools) == 0:
		return invalid("parallel_tool_calls: requires tools")
	case c.Mode != "" && len(r.Tools) == 0:
		return invalid("tool_choice: requires tools")
	case c.Mode == "function" && !names[c.Name]:
		return invalid("tool_choice.function.name: %q is not among the tools", c.Name)
	}
	return nil
}

// checkResults checks a rule that all providers have: each result answers one tool call of
// the model's turn before it, and all its tool calls are answered before the next other turn.
// Calls that share an id get different ones, and so do their results, in their order.
func (r *Request) checkResults() error {
	calls, results := map[string]int{}, map[string]int{} // of the last turn of the model, by id
	for i := range r.Turns {
		t := &r.Turns[i]
		if result := t.Result(); result != nil {
			if results[result.ID] == calls[result.ID] {
				return invalid("messages[%d].tool_call_id: %q answers no open tool call of the assistant message "+
					"before it", i, result.ID)
			}
			results[result.ID]++
			result.ID = numberID(result.ID, results[result.ID])
			continue
		}
		if id, ok := findOpen(calls, results); ok {
			return invalid("messages[%d]: tool call %q has no tool message", i, id)
		}
		if len(calls) > fewCalls { // to clear a large map costs as much as it ever held
			calls, results = map[string]int{}, map[string]int{}
		}
		clear(calls)
		clear(results)
		for j := range t.Blocks {
			if b := &t.Blocks[j]; b.Kind == conversation.CallBlock {
				calls[b.ID]++
				b.ID = numberID(b.ID, calls[b.ID])
			}
		}
	}
	if id, ok := findOpen(calls, results); ok {
		return invalid("messages: tool call %q has no tool message", id)
	}
	return nil
}

// fewCalls is how many calls a turn has at most in practice.
const fewCalls = 256

// findOpen returns the id of a call without a result.
func findOpen(calls, results map[string]int) (id string, ok bool) {
	for id, n := range calls {
		if results[id] < n {
			return id, true
		}
	}
	return "", false
}

// numberID returns the id of the n-th call of a turn that has it.
func numberID(id string, n int) string {
	if n == 1 {
		return id
	}
	return id + "_" + strconv.Itoa(n)
}

// FindBound returns the canonical member that a client may mean by an unknown one which looks like a bound on the cost;
// "" = none.
func FindBound(name string) string { return nearMiss(name) }
