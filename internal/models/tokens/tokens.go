// Package tokens counts the tokens of a text and of a whole request before the
// call, so that the hold covers it (contract §2, holds 3), and again when a provider
// reports no usage (contract §3, stream settlement).
//
// It counts with OpenAI's encoding o200k_base: a hand-written splitter (split.go) and byte-pair merging over a table of
// ranks (bpe.go), which is built from the vocabulary of github.com/tiktoken-go/tokenizer
// (vocab.go). That library is ten times slower and has two faults in its splitter; only the tests
// use it, to compare the counts. Other families of models are estimated from the same count (request.go).
package tokens

import "unicode/utf8"

// ExactBytes is the longest text that is counted exactly. A longer text is estimated at three bytes per token, so that
// megabytes of text cost no time.
const ExactBytes = 200_000

// Count returns how many o200k_base tokens text has. Texts above ExactBytes are
// estimated. Each byte that is not UTF-8 counts as the character U+FFFD. The
// names of special tokens count as ordinary text.
func Count(text string) int {
	if len(text) > ExactBytes {
		return (len(text) + 2) / 3
	}
	if !utf8.ValidString(text) {
		text = string([]rune(text))
	}
	v := o200k()
	n := 0
	for start := 0; start < len(text); {
		end := pieceEnd(text, start)
		n += v.count(text[start:end])
		start = end
	}
	return n
}

// Load builds the vocabulary, which takes some tens of milliseconds. Without it the first count does.
func Load() { o200k() }
