package tokens

import (
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write o200k_base.bin from the library's vocabulary")

// TestVocabularyIsTheLibrarys holds the file that is built in to the library's
// vocabulary, and writes it anew: go test ./internal/models/tokens -run Vocabulary -update.
func TestVocabularyIsTheLibrarys(t *testing.T) {
	t.Parallel()
	var lengths, text []byte
	for rank := uint(0); ; rank++ {
		token, err := library.Decode([]uint{rank})
		if err != nil { // the vocabulary has no gaps: this is its end
			break
		}
		if len(token) == 0 || len(token) > 255 {
			t.Fatalf("the token %d has %d bytes", rank, len(token))
		}
		lengths, text = append(lengths, byte(len(token))), append(text, token...)
	}
	if *update {
		if err := os.WriteFile("o200k_base.bin", append(lengths, text...), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if len(lengths) != size || packed != string(lengths)+string(text) {
		t.Errorf("o200k_base.bin is not the library's vocabulary of %d tokens: write it with -update", len(lengths))
	}
}
