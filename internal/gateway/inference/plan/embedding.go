package plan

import "fmt"

// maxNumbers bounds the numbers of all vectors of a response: 32 MB in base64.
const maxNumbers = 6_000_000

// setEmbedding completes what a call for embeddings asks for by its model, and refuses what the model cannot do.
func (p *Plan) setEmbedding() error {
	m, e := &p.Model, *p.Request.Embedding
	if e.Dimensions == 0 {
		e.Dimensions = m.MaxDimensions
	}
	if e.Dimensions < m.MinDimensions || e.Dimensions > m.MaxDimensions {
		return invalid("dimensions: %s makes embeddings of %d to %d numbers", m.ID, m.MinDimensions, m.MaxDimensions)
	}
	if fits := maxNumbers / e.Dimensions; int64(len(e.Inputs)) > fits {
		return invalid("input: at most %d inputs of %d numbers each, so that the answer is not too large", fits,
			e.Dimensions)
	}
	for i := range e.Inputs {
		if n := e.Inputs[i].Tokens; n > m.ContextTokens {
			return invalid("%s: has %d tokens by our count; %s reads at most %d of each input",
				inputPath(i, len(e.Inputs)), n,
				m.ID, m.ContextTokens)
		}
	}
	p.Request.Embedding = &e
	return nil
}

// inputPath names an input in an error.
func inputPath(i, of int) string {
	if of == 1 {
		return "input"
	}
	return fmt.Sprintf("input[%d]", i)
}

// InputBound returns the most input tokens that the provider can have read: a model's context, or that of each input.
func (p *Plan) InputBound() int64 {
	if e := p.Request.Embedding; e != nil {
		return p.Model.ContextTokens * int64(len(e.Inputs))
	}
	return p.Model.ContextTokens
}

// CountIsExact reports whether the input tokens are known and not estimated: the request has them as ids.
func (p *Plan) CountIsExact() bool { return p.Request.Embedding != nil && p.Request.Embedding.HasIDs() }
