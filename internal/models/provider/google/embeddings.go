package google

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

// maxBatch bounds the inputs of one call (provider notes C.10).
const maxBatch = 100

const embedMethod = ":batchEmbedContents"

// embed runs a call for embeddings.
func (c *Client) embed(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	x, err := c.post(ctx, r, embedMethod)
	if err != nil {
		return nil, err
	}
	defer x.End(false)
	body, err := x.ReadAll()
	if err != nil {
		return nil, upstream.NewFailure(x.StatusCode, err)
	}
	vectors, usage, err := readVectors(body, len(r.Embedding.Inputs))
	var out []byte
	if err == nil {
		if r.Embedding.Dimensions < r.Facts.Dimensions { // Google cuts a vector off and does not scale it
			for _, v := range vectors {
				provider.Normalize(v)
			}
		}
		out, err = provider.EncodeEmbeddings(r, vectors, usage)
	}
	switch {
	case errors.Is(err, errNoAnswer):
		return nil, c.makeBodyError(x.Header, body)
	case err != nil:
		return nil, upstream.NewFailure(x.StatusCode, err)
	}
	return &provider.Response{Body: out, Usage: usage}, nil
}

// encodeEmbeddings writes the body of a call for embeddings. Google reads texts only.
func encodeEmbeddings(r *provider.Request) ([]byte, error) {
	e := r.Embedding
	switch {
	case e.HasIDs():
		return nil, makeRejection("input: %s reads text; token ids are those of OpenAI's models", r.Model)
	case len(e.Inputs) > maxBatch:
		return nil, makeRejection("input: %s takes at most %d inputs in one request", r.Model, maxBatch)
	}
	b := append(make([]byte, 0, 4096), `{"requests":[`...)
	for i := range e.Inputs {
		if i > 0 {
			b = append(b, ',')
		}
		b = provider.AppendQuote(append(b, `{"model":`...), "models/"+r.Model)
		b = provider.AppendQuote(append(b, `,"content":{"parts":[{"text":`...), e.Inputs[i].Text)
		b = append(b, `}]}`...)
		if e.Dimensions != r.Facts.Dimensions {
			b = strconv.AppendInt(append(b, `,"outputDimensionality":`...), e.Dimensions, 10)
		}
		b = append(b, '}')
	}
	return append(b, `]}`...), nil
}

// errNoAnswer says that a body is not a list of vectors, but perhaps an error.
var errNoAnswer = errors.New("that is no list of vectors")

// readVectors reads a BatchEmbedContentsResponse. The vectors stand in the order of the inputs, of which there are n.
func readVectors(body []byte, n int) (vectors [][]float32, u *provider.Usage, err error) {
	var list, metadata []byte
	if !readMembers(body, func(name, value []byte) bool {
		switch string(name) {
		case "embeddings":
			list = value
		case "usageMetadata":
			metadata = value
		}
		return true
	}) || list == nil {
		return nil, nil, errNoAnswer
	}
	vectors = make([][]float32, 0, n)
	ok := provider.Elements(list, func(item []byte) bool {
		var v []float32
		ok := readMembers(item, func(name, value []byte) bool {
			if string(name) == "values" {
				v, err = provider.ParseVector(value)
			}
			return err == nil
		})
		vectors = append(vectors, v)
		return ok
	})
	if !ok {
		return nil, nil, errors.Join(fmt.Errorf("%w: %d items", provider.ErrVectors, len(vectors)), err)
	}
	var count counts
	count.add(metadata)
	return vectors, count.makeUsage(), nil
}
