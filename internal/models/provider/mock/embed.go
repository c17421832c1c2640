package mock

import (
	"context"
	"encoding/binary"
	"hash/fnv"
	"io"
	"math/rand/v2"

	"github.com/purserhq/purser/internal/models/provider"
)

// embed answers a call for embeddings.
func (p *Provider) embed(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	a := &answer{script: readScript(r), input: p.input(r)}
	if err := a.begin(ctx); err != nil {
		return nil, err
	}
	if a.cut >= 0 {
		return nil, makeCutError()
	}
	vectors := make([][]float32, len(r.Embedding.Inputs))
	for i := range vectors {
		vectors[i] = makeVector(&r.Embedding.Inputs[i], r.Embedding.Dimensions)
	}
	usage := provider.ParseUsage(a.makeUsageJSON())
	body, err := provider.EncodeEmbeddings(r, vectors, usage)
	if err != nil {
		return nil, makeFailure(err)
	}
	return &provider.Response{Body: body, Usage: usage}, nil
}

// makeVector returns the vector of an input: random numbers from its hash. A shorter vector is the start of the longer
// one, scaled.
func makeVector(in *provider.EmbeddingInput, dimensions int64) []float32 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, in.Text) // a hash takes everything
	for _, id := range in.IDs {
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(id)))
	}
	random := rand.New(rand.NewPCG(h.Sum64(), 0))
	v := make([]float32, dimensions)
	for i := range v {
		v[i] = float32(random.NormFloat64())
	}
	provider.Normalize(v)
	return v
}
