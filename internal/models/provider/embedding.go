package provider

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// An Embedding is what a call for embeddings asks for: one vector for each input.
type Embedding struct {
	Inputs     []EmbeddingInput
	Dimensions int64 // numbers of each vector; always set
}

// An EmbeddingInput is a text, or the ids of its tokens in the model's own vocabulary.
type EmbeddingInput struct {
	Text   string
	IDs    []int64 // nil = Text is given
	Tokens int64   // of the text as o200k_base counts it; the number of ids
}

// HasIDs reports whether the inputs are token ids, whose number is the exact count.
func (e *Embedding) HasIDs() bool { return len(e.Inputs) > 0 && e.Inputs[0].IDs != nil }

// ErrVectors says that a provider's answer is not one vector of the right size for each input.
var ErrVectors = errors.New("the answer is not one vector for each input")

// EncodeEmbeddings returns the list of vectors in the canonical form: OpenAI's shape, each vector as the base64 of its
// numbers as little-endian float32. Without usage the list has no member usage.
func EncodeEmbeddings(r *Request, vectors [][]float32, u *Usage) ([]byte, error) {
	e := r.Embedding
	if len(vectors) != len(e.Inputs) {
		return nil, fmt.Errorf("%w: %d for %d inputs", ErrVectors, len(vectors), len(e.Inputs))
	}
	b := make([]byte, 0, 256+len(vectors)*(64+6*int(e.Dimensions)))
	b = append(b, `{"object":"list","data":[`...)
	raw := make([]byte, 0, 4*e.Dimensions)
	for i, v := range vectors {
		if int64(len(v)) != e.Dimensions {
			return nil, fmt.Errorf("%w: vector %d has %d numbers, not %d", ErrVectors, i, len(v), e.Dimensions)
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(append(b, `{"object":"embedding","index":`...), int64(i), 10)
		raw = raw[:0]
		for _, n := range v {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(n))
		}
		b = base64.StdEncoding.AppendEncode(append(b, `,"embedding":"`...), raw)
		b = append(b, `"}`...)
	}
	b = AppendQuote(append(b, `],"model":`...), r.Model)
	if u != nil {
		input := u.Input + u.Cached + u.CacheWrite
		b = fmt.Appendf(b, `,"usage":{"prompt_tokens":%d,"total_tokens":%d}`, input, input)
	}
	return append(b, '}'), nil
}

// AppendVector appends a vector as an array of the shortest decimals that read as the same float32.
func AppendVector(b []byte, v []float32) []byte {
	b = append(b, '[')
	for i, n := range v {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendFloat(b, float64(n), 'g', -1, 32)
	}
	return append(b, ']')
}

// ParseVector reads a vector that is an array of numbers or the base64 of little-endian float32. All its numbers are
// finite.
func ParseVector(raw []byte) ([]float32, error) {
	var v []float32
	if len(raw) > 0 && raw[0] == '"' {
		var data []byte
		if err := json.Unmarshal(raw, &data); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrVectors, err)
		}
		if len(data)%4 != 0 {
			return nil, fmt.Errorf("%w: %d bytes are no numbers", ErrVectors, len(data))
		}
		v = make([]float32, len(data)/4)
		for i := range v {
			v[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		}
	} else if err := json.Unmarshal(raw, &v); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrVectors, err)
	}
	for _, n := range v {
		if math.IsNaN(float64(n)) || math.IsInf(float64(n), 0) {
			return nil, fmt.Errorf("%w: a number is not finite", ErrVectors)
		}
	}
	return v, nil
}

// Normalize scales a vector to the length 1. A vector of length 0 stays as it is.
func Normalize(v []float32) {
	sum := 0.0
	for _, n := range v {
		sum += float64(n) * float64(n)
	}
	if sum == 0 {
		return
	}
	scale := 1 / math.Sqrt(sum)
	for i, n := range v {
		v[i] = float32(float64(n) * scale)
	}
}

// ParseEmbeddingUsage reads OpenAI's usage object of embeddings, which has no output. Like ParseUsage it returns nil
// if the object cannot be true.
func ParseEmbeddingUsage(raw []byte) *Usage {
	prompt, total := absent, absent
	readTotal := true
	ok := Members(raw, func(name, value []byte) bool {
		switch string(name) {
		case "prompt_tokens":
			return prompt.read(value)
		case "total_tokens":
			readTotal = total.read(value) && readTotal
		}
		return true
	})
	if !ok || prompt < 0 {
		return nil
	}
	return &Usage{Input: int64(prompt), SumDiffers: !readTotal || total >= 0 && total != prompt}
}
