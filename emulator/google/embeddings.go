package google

import (
	"net/http"

	"github.com/purserhq/purser/emulator/exchange"
	"github.com/purserhq/purser/emulator/script"
	"github.com/purserhq/purser/internal/models/tokens"
)

// embed is a request to batchEmbedContents (provider notes C.10).
type embed struct {
	generate
	texts      []string
	dimensions []int
}

type embedRequest struct {
	Requests []struct {
		Model   string `json:"model"`
		Content struct {
			Role  string `json:"role"`
			Parts []struct {
				Text string `json:"text"`
			} `json:"parts"`
		} `json:"content"`
		TaskType             string `json:"taskType"`
		Title                string `json:"title"`
		OutputDimensionality *int   `json:"outputDimensionality"`
	} `json:"requests"`
}

const maxBatch = 100

func (c *embed) ReadPrompt(_ *http.Request, body []byte) (*exchange.Prompt, *exchange.Refusal) {
	m, ok := c.api.server.FindModel(exchange.Google, c.name)
	if !ok || m.Dimensions == 0 {
		return nil, notFound(c.name, "batchEmbedContents")
	}
	var q embedRequest
	if f := decodeBody(body, &q); f != nil {
		return nil, f
	}
	switch {
	case len(q.Requests) == 0:
		return nil, badRequest("* BatchEmbedContentsRequest.requests: requests must not be empty\n")
	case len(q.Requests) > maxBatch:
		return nil, badRequest("* BatchEmbedContentsRequest.requests: at most %d requests can be in one batch\n",
			maxBatch)
	}
	c.model = m
	p := &exchange.Prompt{Model: m}
	for i, one := range q.Requests {
		text := ""
		for _, part := range one.Content.Parts {
			text += part.Text
		}
		n := m.Dimensions
		if one.OutputDimensionality != nil {
			n = *one.OutputDimensionality
		}
		switch {
		case one.Model != "models/"+c.name:
			return nil, badRequest("* BatchEmbedContentsRequest.requests[%d].model: model must match the batch's\n", i)
		case text == "":
			return nil, badRequest("* BatchEmbedContentsRequest.requests[%d].content: content is empty\n", i)
		case n < 1 || n > m.Dimensions:
			return nil, badRequest("* BatchEmbedContentsRequest.requests[%d].output_dimensionality: out of range\n", i)
		}
		p.Text += text + "\n"
		p.Input.Text += min(tokens.Count(text), m.Context) // a longer text is cut off without a word
		c.texts, c.dimensions = append(c.texts, text), append(c.dimensions, n)
	}
	return p, nil
}

func notFound(model, method string) *exchange.Refusal {
	return &exchange.Refusal{
		Status: 404,
		Message: "models/" + model + " is not found for API version v1beta, or is not supported for " + method +
			". Call ModelService.ListModels to see the list of available models and their supported methods.",
	}
}

type contentEmbedding struct {
	Values []float32 `json:"values"`
}

// EncodeAnswer returns vectors that are cut off and not scaled again, and usage only if the script says what.
func (c *embed) EncodeAnswer(a *exchange.Answer, s *script.Script) []byte {
	list := make([]contentEmbedding, len(c.texts))
	for i, text := range c.texts {
		list[i].Values = exchange.SampleVector(text, c.model.Dimensions, c.dimensions[i])
	}
	var usage raw
	switch {
	case s.UsageRaw != "":
		usage = raw(s.UsageRaw)
	case s.Usage != nil:
		usage = exchange.Encode(map[string]int{"promptTokenCount": a.Usage.Input, "totalTokenCount": a.Usage.Input})
	}
	return exchange.Encode(struct {
		Embeddings    []contentEmbedding `json:"embeddings"`
		UsageMetadata raw                `json:"usageMetadata,omitzero"`
	}{list, usage})
}
