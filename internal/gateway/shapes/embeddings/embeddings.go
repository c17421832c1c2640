// Package embeddings is the shape of OpenAI's Embeddings (POST /openai/v1/embeddings). Its
// canonical response is OpenAI's list with vectors in base64; the client gets them as base64 or as
// decimals. It is never streamed.
package embeddings

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/gateway/shapes"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/tokens"
)

// Bounds of a request. The first two are OpenAI's.
const (
	maxInputs = 2048
	maxTokens = 300_000 // of all inputs, by our count
	maxBody   = 8 << 20 // bytes
)

// body is the body of OpenAI's Embeddings. Other members are dropped, and the response names them (decision 012).
type body struct {
	Model          *string        `json:"model"`
	Input          jsontext.Value `json:"input"`
	Dimensions     *int64         `json:"dimensions"`
	EncodingFormat *string        `json:"encoding_format"`
	APIBase        jsontext.Value `json:"api_base"`
	BaseURL        jsontext.Value `json:"base_url"`
	APIKey         jsontext.Value `json:"api_key"`
	Unknown        jsontext.Value `json:",unknown"`
}

type call struct {
	request *plan.Request
	base64  bool // the client reads vectors as base64
}

// Parse reads a body strictly. Its errors name the member and the rule.
func Parse(data []byte) (shapes.Call, error) {
	if len(data) > maxBody {
		return nil, invalid("body: at most %d bytes", maxBody)
	}
	var b body
	if err := web.DecodeSaid(data, &b); err != nil {
		return nil, err
	}
	c := &call{request: &plan.Request{IncludeUsage: true}}
	if err := readUnknown(&b, c.request); err != nil {
		return nil, err
	}
	if b.Model == nil || *b.Model == "" {
		return nil, invalid("model: required on this route")
	}
	c.request.BodyModel = *b.Model
	if f := b.EncodingFormat; f != nil {
		if !slices.Contains([]string{"float", "base64"}, *f) {
			return nil, invalid("encoding_format: must be float or base64")
		}
		c.base64 = *f == "base64"
	}
	e := &provider.Embedding{}
	if b.Dimensions != nil {
		if *b.Dimensions < 1 {
			return nil, invalid("dimensions: must be at least 1")
		}
		e.Dimensions = *b.Dimensions
	}
	if err := readInput(b.Input, e); err != nil {
		return nil, err
	}
	c.request.Embedding = e
	return c, nil
}

func invalid(format string, args ...any) error { return apierr.InvalidRequest.Errorf(format, args...) }

// readUnknown refuses members that name another host or key, and lists the unknown ones.
func readUnknown(b *body, r *plan.Request) error {
	for name, value := range map[string]jsontext.Value{
		"api_base": b.APIBase,
		"base_url": b.BaseURL,
		"api_key":  b.APIKey,
	} {
		if len(value) > 0 && string(value) != "null" {
			return invalid("%s: not offered here, because it would change the route of the call; leave it out", name)
		}
	}
	provider.Members(b.Unknown, func(name, value []byte) bool {
		if string(value) != "null" {
			r.Ignore(string(name))
		}
		return true
	})
	return nil
}

const inputRule = "must be a string, or an array of strings, of token ids or of arrays of token ids, and not empty"

// readInput reads the member input in its four forms, and counts each input.
func readInput(raw jsontext.Value, e *provider.Embedding) error {
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return invalid("input: required; %s", inputRule)
	case raw.Kind() == '"':
		return readTexts([]jsontext.Value{raw}, e)
	case raw.Kind() != '[':
		return invalid("input: %s", inputRule)
	}
	first := jsontext.Kind(0)
	provider.Elements(raw, func(value []byte) bool {
		first = jsontext.Value(value).Kind()
		return false
	})
	if first == '0' { // one input: an array of token ids
		return readIDs([]jsontext.Value{raw}, e)
	}
	var items []jsontext.Value
	if err := web.DecodeSaid(raw, &items); err != nil || len(items) > maxInputs {
		return invalid("input: at most %d inputs", maxInputs) // they are valid JSON, so too many is all that can be
	}
	if len(items) == 0 {
		return invalid("input: %s", inputRule)
	}
	if first == '"' {
		return readTexts(items, e)
	}
	return readIDs(items, e)
}

func readTexts(items []jsontext.Value, e *provider.Embedding) error {
	total := int64(0)
	e.Inputs = make([]provider.EmbeddingInput, len(items))
	for i, raw := range items {
		in := &e.Inputs[i]
		if raw.Kind() != '"' || json.Unmarshal(raw, &in.Text) != nil || in.Text == "" {
			return invalid("%s: must be a string that is not empty", inputPath(i, len(items)))
		}
		in.Tokens = int64(tokens.Count(in.Text))
		if total += in.Tokens; total > maxTokens { // at once, so that counting takes a bounded time
			return tooManyTokens()
		}
	}
	return nil
}

func readIDs(items []jsontext.Value, e *provider.Embedding) error {
	total := int64(0)
	e.Inputs = make([]provider.EmbeddingInput, len(items))
	for i, raw := range items {
		in := &e.Inputs[i]
		hasNull := slices.Contains(raw, 'n') // which would be read as 0
		// one more than its commas, unless it is no array of numbers, which is refused
		in.Tokens = int64(bytes.Count(raw, []byte{','})) + 1
		if total += in.Tokens; total > maxTokens { // before it is decoded
			return tooManyTokens()
		}
		if raw.Kind() != '[' || hasNull || json.Unmarshal(raw, &in.IDs) != nil || len(in.IDs) == 0 ||
			slices.Min(in.IDs) < 0 {
			return invalid("%s: must be an array of token ids, whole numbers from 0, that is not empty",
				inputPath(i, len(items)))
		}
	}
	return nil
}

func tooManyTokens() error {
	return invalid("input: at most %d tokens in all, by our count; send fewer inputs at a time", maxTokens)
}

// inputPath names an input in an error.
func inputPath(i, of int) string {
	if of == 1 {
		return "input"
	}
	return fmt.Sprintf("input[%d]", i)
}

// Request returns the canonical request.
func (c *call) Request() *plan.Request { return c.request }

// MemberName returns the same name: the checks behind this shape name its own members.
func (c *call) MemberName(canonical string) string { return canonical }

// NewStream returns nil: embeddings are never streamed.
func (c *call) NewWriter(shapes.Head) shapes.Writer { return nil }

// Format is none: answers are not streamed, and have no deltas.
func (c *call) Format() shapes.Format { return nil }

// Body translates the canonical list. The bill is its last member.
func (c *call) Body(canonical []byte) []byte {
	var data, model, usage, svc []byte
	ok := provider.Members(canonical, func(name, value []byte) bool {
		switch string(name) {
		case "data":
			data = value
		case "model":
			model = value
		case "usage":
			usage = value
		case "svc":
			svc = value
		}
		return true
	})
	u := provider.ParseEmbeddingUsage(usage) // of the provider, or of the ledger row if that is an estimate
	if !ok || u == nil || svc == nil {
		return canonical // cannot happen: an adapter has written the list
	}
	b := append(make([]byte, 0, 2*len(canonical)), `{"object":"list","data":`...)
	if c.base64 {
		b = append(b, data...)
	} else {
		b = appendDecimals(b, data)
	}
	b = append(append(b, `,"model":`...), model...)
	b = fmt.Appendf(b, `,"usage":{"prompt_tokens":%d,"total_tokens":%d},"svc":`, u.Input, u.Input)
	return append(append(b, svc...), '}', '\n')
}

// appendDecimals appends a canonical list of embeddings with vectors as arrays of numbers.
func appendDecimals(b, data []byte) []byte {
	b = append(b, '[')
	n := 0
	provider.Elements(data, func(item []byte) bool {
		if n > 0 {
			b = append(b, ',')
		}
		provider.Members(item, func(name, value []byte) bool {
			if string(name) == "embedding" {
				v, err := provider.ParseVector(value)
				b = provider.AppendVector(fmt.Appendf(b, `{"object":"embedding","index":%d,"embedding":`, n), v)
				return err == nil
			}
			return true
		})
		b = append(b, '}')
		n++
		return true
	})
	return append(b, ']')
}
