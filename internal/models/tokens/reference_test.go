package tokens

import (
	"regexp"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer/codec"
)

var library = codec.NewO200kBase()

// The library's generated matcher departs from its own expression in two cases:
// it has no alternative for U+007F and drops it, and it breaks white space
// between line breaks, "\n \n", in two. There the reference alone decides.
var libraryBugs = regexp.MustCompile(`\x7f|[\r\n][\t\v\f \x{85}\p{Z}]+[\r\n]`)

// expression is o200k_base's, in Go's dialect: \s is spelled out, and the
// look-ahead of \s+(?!\S)|\s+ is left to reference, by way of the group.
var expression = func() *regexp.Regexp {
	const spaces, contraction = `\t-\r \x{85}\p{Z}`, `(?i:'s|'t|'re|'ve|'m|'ll|'d)?`
	return regexp.MustCompile(`^(?:` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+` + contraction +
		`|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*` + contraction +
		`|\p{N}{1,3}` +
		`| ?[^` + spaces + `\p{L}\p{N}]+[\r\n/]*` +
		`|[` + spaces + `]*[\r\n]+` +
		`|([` + spaces + `]+))`)
}()

// reference counts tokens the slow and obvious way.
func reference(text string) int {
	text = string([]rune(text))
	n := 0
	for len(text) > 0 {
		m := expression.FindStringSubmatchIndex(text)
		end := m[1]
		if _, size := utf8.DecodeLastRuneInString(text[:end]); m[2] >= 0 && end < len(text) && end > size {
			end -= size
		}
		n += referenceMerge(text[:end])
		text = text[end:]
	}
	return n
}

var ranks = func() map[string]int {
	ranks := make(map[string]int)
	for rank := uint(0); ; rank++ {
		token, err := library.Decode([]uint{rank})
		if err != nil {
			return ranks
		}
		ranks[token] = int(rank)
	}
}()

func referenceMerge(piece string) int {
	if _, ok := ranks[piece]; ok {
		return 1
	}
	var parts []string
	for i := range len(piece) {
		parts = append(parts, piece[i:i+1])
	}
	for {
		lowest, at := len(ranks), -1
		for i := range len(parts) - 1 {
			if rank, ok := ranks[parts[i]+parts[i+1]]; ok && rank < lowest {
				lowest, at = rank, i
			}
		}
		if at < 0 {
			return len(parts)
		}
		parts[at] += parts[at+1]
		parts = append(parts[:at+1], parts[at+2:]...)
	}
}
