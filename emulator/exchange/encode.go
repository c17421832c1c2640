package exchange

import (
	"github.com/go-json-experiment/json/jsontext"
)

// EncodeData returns one event without a name.
func EncodeData(v any) []byte { return append(append([]byte("data: "), Encode(v)...), "\n\n"...) }

// EncodeEvent returns one event with a name.
func EncodeEvent(name string, v any) []byte {
	return append([]byte("event: "+name+"\n"), EncodeData(v)...)
}

// EncodeTyped returns an object whose first member is its type, as Anthropic writes it.
func EncodeTyped(kind string, members map[string]any) raw {
	head, rest := []byte(`{"type":"`+kind+`"`), Encode(members)
	if len(members) > 0 {
		head = append(head, ',')
	}
	return append(head, rest[1:]...)
}

// raw is a JSON value that is passed on as it is.
type raw = jsontext.Value
