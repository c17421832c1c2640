package main

import (
	"bytes"
	"fmt"
)

// A shape is a way in which clients of other APIs call. A cell of its name streams the responses of the cell stream
// through it; the floor, which has no shapes, is called as in that cell.
type shape struct {
	path  string
	delta string // marks each piece of text
	end   string // begins the last event, which has the charge
	body  func(c *client) []byte
}

// shapes are the shapes by their cells. drop-in is the one that the others are compared with.
var shapes = map[string]shape{
	"drop-in": {
		path:  "/v1/chat/completions",
		delta: `"delta":{"content":`,
		end:   `"svc_final":`,
		body: func(c *client) []byte {
			return fmt.Appendf(nil, `{"model":%q,"stream_options":{"include_usage":true},%s`, models[c.Cell],
				c.newPrompt()[1:])
		},
	},
	"responses": {
		path:  "/openai/v1/responses",
		delta: "event: response.output_text.delta\n",
		end:   "event: response.completed\n",
		body: func(c *client) []byte {
			b := bytes.Replace(c.newPrompt(), []byte(`"messages":`), []byte(`"input":`), 1)
			b = bytes.Replace(b, []byte(`"max_tokens":`), []byte(`"max_output_tokens":`), 1)
			return fmt.Appendf(nil, `{"model":%q,%s`, models[c.Cell], b[1:])
		},
	},
	"messages": {
		path:  "/anthropic/v1/messages",
		delta: "event: content_block_delta\n",
		end:   "event: message_delta\n",
		body: func(c *client) []byte {
			return fmt.Appendf(nil, `{"model":%q,%s`, models[c.Cell], c.newPrompt()[1:])
		},
	},
}

// checkShape checks a stream in the client's shape.
func (c *client) checkShape(s shape) error {
	a := c.answer
	last := bytes.LastIndex(a, []byte(s.end))
	n := bytes.Count(a, []byte(s.delta))
	switch {
	case last < 0, n < len(pieces), !bytes.HasSuffix(a, []byte("\n\n")):
		return fmt.Errorf("%w: %d of %d pieces, ends with %.80q", errTruncated, n, len(pieces), a[max(0, len(a)-80):])
	case n > len(pieces), !bytes.Contains(a[last:], []byte(`"user_charge_mc":`)):
		return fmt.Errorf("%w: %d of %d pieces, ends with %.600q", errWrong, n, len(pieces), a[max(0, len(a)-600):])
	}
	return nil
}
