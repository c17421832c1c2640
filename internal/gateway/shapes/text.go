package shapes

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/models/provider"
)

// Escape returns a text as a raw JSON string without the quotes.
func Escape(text string) []byte {
	quoted := provider.AppendQuote(nil, text)
	return quoted[1 : len(quoted)-1]
}

// Unescape returns the text of a raw JSON string without its quotes; nil if it is none.
func Unescape(raw []byte) []byte {
	quoted := append(append(append(make([]byte, 0, len(raw)+2), '"'), raw...), '"')
	plain, err := jsontext.AppendUnquote(nil, quoted)
	if err != nil {
		return nil
	}
	return plain
}

// IsObject reports whether text is one JSON object.
func IsObject(text []byte) bool {
	return provider.Members(bytes.TrimSpace(text), func(_, _ []byte) bool { return true })
}
