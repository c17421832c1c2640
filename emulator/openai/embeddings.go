package openai

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"

	"github.com/go-json-experiment/json"

	"github.com/purserhq/purser/emulator/exchange"
	"github.com/purserhq/purser/emulator/script"
	"github.com/purserhq/purser/internal/models/tokens"
)

// embeddings is a request to POST /v1/embeddings (provider notes A.11).
type embeddings struct {
	Common
	api     *API
	request embeddingsRequest
	model   exchange.Model
	texts   []string // of the inputs; token ids as they were sent
}

type embeddingsRequest struct {
	Model          string `json:"model"`
	Input          raw    `json:"input"`
	EncodingFormat string `json:"encoding_format"`
	Dimensions     *int   `json:"dimensions"`
	User           string `json:"user"`
}

// The bounds of one request.
const (
	maxEmbeddingInputs = 2048
	maxEmbeddingTokens = 300_000
)

func (c *embeddings) ReadPrompt(_ *http.Request, body []byte) (*exchange.Prompt, *exchange.Refusal) {
	q := &c.request
	if f := decodeBody(body, q); f != nil {
		return nil, f
	}
	if q.Model == "" {
		return nil, BadParam("", "", "you must provide a model parameter")
	}
	m, ok := c.api.server.FindModel(exchange.OpenAI, q.Model)
	switch {
	case !ok:
		return nil, &exchange.Refusal{
			Status:  404,
			Code:    "model_not_found",
			Message: "The model `" + q.Model + "` does not exist or you do not have access to it.",
		}
	case m.Dimensions == 0:
		return nil, &exchange.Refusal{
			Status:  403,
			Message: "You are not allowed to generate embeddings from this model",
		}
	case q.EncodingFormat != "" && q.EncodingFormat != "float" && q.EncodingFormat != "base64":
		return nil, BadParam("invalid_value", "encoding_format", "Invalid value: '%s'.", q.EncodingFormat)
	case q.Dimensions != nil && (*q.Dimensions < 1 || *q.Dimensions > m.Dimensions):
		return nil, BadParam("", "dimensions", "Invalid value for 'dimensions' = %d. Must be less than or equal to %d.",
			*q.Dimensions, m.Dimensions)
	}
	c.model = m
	p := &exchange.Prompt{Model: m}
	if f := c.readInputs(p); f != nil {
		return nil, f
	}
	if n := p.Input.Text + p.Input.Images; n > maxEmbeddingTokens {
		return nil, BadParam("max_tokens_per_request", "", "Requested %d tokens, max %d tokens per request", n,
			maxEmbeddingTokens)
	}
	return p, nil
}

// readInputs reads the inputs: texts, or token ids, whose number is the exact count.
func (c *embeddings) readInputs(p *exchange.Prompt) *exchange.Refusal {
	list := []raw{c.request.Input}
	var ids []int
	if c.request.Input.Kind() == '[' && json.Unmarshal(c.request.Input, &ids) != nil {
		if json.Unmarshal(c.request.Input, &list) != nil {
			return BadParam("", "", "'$.input' is invalid. Please check the API reference.")
		}
	}
	if len(list) == 0 || len(list) > maxEmbeddingInputs {
		return BadParam("", "", "'$.input' is invalid. Please check the API reference.")
	}
	for _, one := range list {
		var text string
		n := 0
		switch {
		case json.Unmarshal(one, &text) == nil && text != "":
			n = tokens.Count(text)
			p.Input.AddTexts(text)
			p.Text += text + "\n"
		case json.Unmarshal(one, &ids) == nil && len(ids) > 0:
			n, text = len(ids), string(one)
			p.Input.Images += n // counts that are reported as they are
		default:
			return BadParam("", "", "'$.input' is invalid. Please check the API reference.")
		}
		if n > c.model.Context {
			return BadParam("", "",
				"This model's maximum context length is %d tokens, however you requested %d tokens "+
					"(%d in your prompt; 0 for the completion). Please reduce your prompt; or completion length.",
				c.model.Context, n, n)
		}
		c.texts = append(c.texts, text)
	}
	return nil
}

type embeddingObject struct {
	Object    string `json:"object"`
	Index     int    `json:"index"`
	Embedding any    `json:"embedding"`
}

func (c *embeddings) EncodeAnswer(a *exchange.Answer, s *script.Script) []byte {
	n := c.model.Dimensions
	if c.request.Dimensions != nil {
		n = *c.request.Dimensions
	}
	list := make([]embeddingObject, len(c.texts))
	for i, text := range c.texts {
		vector := exchange.SampleVector(text, c.model.Dimensions, n)
		scaleVector(vector)
		list[i] = embeddingObject{Object: "embedding", Index: i, Embedding: vector}
		if c.request.EncodingFormat == "base64" {
			var bytes []byte
			for _, x := range vector {
				bytes = binary.LittleEndian.AppendUint32(bytes, math.Float32bits(x))
			}
			list[i].Embedding = base64.StdEncoding.EncodeToString(bytes)
		}
	}
	usage := raw(fmt.Sprintf(`{"prompt_tokens":%d,"total_tokens":%d}`, a.Usage.Input, a.Usage.Input))
	switch {
	case s.NoUsage:
		usage = nil
	case s.UsageRaw != "":
		usage = raw(s.UsageRaw)
	}
	return exchange.Encode(struct {
		Object string            `json:"object"`
		Data   []embeddingObject `json:"data"`
		Model  string            `json:"model"`
		Usage  raw               `json:"usage,omitzero"`
	}{"list", list, c.model.ID, usage})
}

// scaleVector gives a vector that was cut off the length 1 again, as OpenAI does.
func scaleVector(vector []float32) {
	sum := 0.0
	for _, x := range vector {
		sum += float64(x) * float64(x)
	}
	for i := range vector {
		vector[i] = float32(float64(vector[i]) / math.Sqrt(sum))
	}
}

// EncodeEvents returns nothing: no request for embeddings is streamed.
func (*embeddings) EncodeEvents(*exchange.Answer, *script.Script) [][]byte { return nil }

// EncodeErrorEvent returns nothing.
func (*embeddings) EncodeErrorEvent(*exchange.Refusal, *script.Script) []byte { return nil }
