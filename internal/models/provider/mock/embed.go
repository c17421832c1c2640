package mock

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"

	"github.com/purserhq/purser/internal/models/provider"
)

// numbersPerWord is how many numbers of embeddings an answer may have for each word that a text may have: both cost
// about the same to make and to store.
const numbersPerWord = 256

// Check refuses a request whose answer would have too many numbers. The call makes them as a whole, so it is checked
// before it is held.
func (p *Provider) Check(r *provider.Request) error {
	e := r.Embedding
	if e == nil {
		return nil
	}
	if fits := numbersPerWord * int64(p.maxWords) / e.Dimensions; int64(len(e.Inputs)) > fits {
		return &provider.Error{
			Kind:   provider.Rejected,
			Status: http.StatusBadRequest,
			Message: fmt.Sprintf("input: in mock mode at most %d inputs of %d numbers each; send fewer inputs at a "+
				"time, or set dimensions", fits, e.Dimensions),
		}
	}
	return nil
}

// embed answers a call for embeddings.
func (p *Provider) embed(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	if err := p.Check(r); err != nil {
		return nil, err
	}
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
