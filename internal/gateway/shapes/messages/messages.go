// Package messages is the shape of Anthropic's Messages API (provider notes B): it reads the body of
// POST /anthropic/v1/messages, and writes the response, streamed or whole, as Anthropic's clients read it. Every model
// of the catalog can answer. It does not share code with provider/anthropic, which is the other direction.
package messages

import (
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/gateway/shapes"
)

// A Call is a parsed request.
type Call struct {
	request plan.Request
	places  []shapes.Place // of its turns
	tools   []string       // the path of each canonical tool in the body

	fromThinking bool // the reasoning effort comes from thinking, not from output_config
}

// Request returns the canonical request.
func (c *Call) Request() *plan.Request { return &c.request }

// NewWriter returns a writer of one answer.
func (c *Call) NewWriter(h shapes.Head) shapes.Writer {
	return &writer{head: h, reasons: c.request.WantReasoning}
}

// Parse reads the body of POST /anthropic/v1/messages. Its errors name the member and the rule.
func Parse(data []byte) (shapes.Call, error) { return parse(data, true) }

// ParseCount reads the body of POST /anthropic/v1/messages/count_tokens, which has no max_tokens.
func ParseCount(data []byte) (shapes.Call, error) { return parse(data, false) }

func parse(data []byte, capped bool) (*Call, error) {
	var b body
	if err := web.DecodeSaid(data, &b); err != nil {
		return nil, err
	}
	if b.MaxTokens == nil && capped {
		return nil, plan.Invalid("max_tokens: required")
	}
	c := &Call{}
	c.request.IncludeUsage = true
	r := reader{body: &b, call: c, out: &c.request, calls: map[string]int{}}
	for _, step := range []func() error{
		r.readUnknown, r.readThread, r.readRefused, r.readScalars, r.readThinking, r.readOutput, r.readSystem,
		r.readMessages, r.readTools, r.readChoice, r.readCacheControl,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	if err := c.request.Check(); err != nil {
		return nil, shapes.RenameMember(err, c.MemberName)
	}
	return c, nil
}
