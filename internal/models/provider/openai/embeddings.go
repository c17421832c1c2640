package openai

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

// embeddingsPath is the path of Embeddings (provider notes A.11).
const embeddingsPath = "/embeddings"

// embed runs a call for embeddings. It asks for base64, which is a quarter of the size of decimals and exact.
func (c *Client) embed(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	x, err := c.Post(ctx, embeddingsPath, encodeEmbeddings(r), r.ID)
	if err != nil {
		return nil, err
	}
	defer x.End(false)
	body, err := x.ReadAll()
	if err != nil {
		return nil, upstream.NewFailure(x.StatusCode, err)
	}
	answer, err := c.readEmbeddings(r, body)
	var refusal *provider.Error
	if err != nil && !errors.As(err, &refusal) {
		return nil, upstream.NewFailure(x.StatusCode, err)
	}
	return answer, err
}

// encodeEmbeddings writes the body of a call for embeddings.
func encodeEmbeddings(r *provider.Request) []byte {
	b := provider.AppendQuote([]byte(`{"model":`), r.Model)
	b = append(b, `,"input":[`...)
	for i := range r.Embedding.Inputs {
		b = appendInput(appendComma(b, i), &r.Embedding.Inputs[i])
	}
	b = append(b, `],"encoding_format":"base64"`...)
	if n := r.Embedding.Dimensions; n != r.Facts.Dimensions { // older models do not know the member
		b = strconv.AppendInt(append(b, `,"dimensions":`...), n, 10)
	}
	if r.EndUser != "" {
		b = provider.AppendQuote(append(b, `,"user":`...), r.EndUser)
	}
	return append(b, '}')
}

func appendInput(b []byte, in *provider.EmbeddingInput) []byte {
	if in.IDs == nil {
		return provider.AppendQuote(b, in.Text)
	}
	b = append(b, '[')
	for i, id := range in.IDs {
		b = strconv.AppendInt(appendComma(b, i), id, 10)
	}
	return append(b, ']')
}

// readEmbeddings reads a list of embeddings, each in its place.
func (c *Client) readEmbeddings(r *provider.Request, body []byte) (*provider.Response, error) {
	var data, usage, failure []byte
	ok := provider.Members(body, func(name, value []byte) bool {
		switch string(name) {
		case "data":
			data = value
		case "usage":
			usage = value
		case "error":
			failure = value
		}
		return true
	})
	switch {
	case !ok:
		return nil, fmt.Errorf("the answer is no JSON object: %s", upstream.Describe(body))
	case failure != nil && string(failure) != "null":
		return nil, c.makeInBandError(failure, false)
	}
	vectors := make([][]float32, len(r.Embedding.Inputs))
	var err error
	n := 0
	if !provider.Elements(data, func(item []byte) bool {
		err = readEmbedding(item, n, vectors)
		n++
		return err == nil
	}) || n != len(vectors) {
		return nil, errors.Join(fmt.Errorf("%w: %d items", provider.ErrVectors, n), err)
	}
	u := provider.ParseEmbeddingUsage(usage)
	out, err := provider.EncodeEmbeddings(r, vectors, u)
	if err != nil {
		return nil, err
	}
	return &provider.Response{Body: out, Usage: u}, nil
}

// readEmbedding reads the n-th item of a list into its place, which its index names.
func readEmbedding(item []byte, n int, vectors [][]float32) error {
	var vector []byte
	index := n
	ok := provider.Members(item, func(name, value []byte) bool {
		var err error
		switch string(name) {
		case "embedding":
			vector = value
		case "index":
			index, err = strconv.Atoi(string(value))
		}
		return err == nil
	})
	if !ok || index < 0 || index >= len(vectors) || vectors[index] != nil {
		return fmt.Errorf("%w: item %d is not that of one input", provider.ErrVectors, n)
	}
	v, err := provider.ParseVector(vector)
	vectors[index] = v
	return err
}
