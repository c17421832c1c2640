package exchange

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
)

// SampleVector returns the first n numbers of an embedding of a text, which is of length 1 with all its numbers. It is
// the same for the same text.
func SampleVector(text string, all, n int) []float32 {
	vector, sum := make([]float64, all), 0.0
	var block [sha256.Size]byte
	for i := range vector {
		if i%8 == 0 {
			block = sha256.Sum256(append([]byte{byte(i), byte(i >> 8)}, text...))
		}
		vector[i] = float64(int32(binary.BigEndian.Uint32(block[i%8*4:]))) / math.MaxInt32
		sum += vector[i] * vector[i]
	}
	short := make([]float32, n)
	for i := range short {
		short[i] = float32(vector[i] / math.Sqrt(sum))
	}
	return short
}
