package exchange

import (
	"github.com/go-json-experiment/json/jsontext"
)

// EncodeData is one event without a name.
func EncodeData(v any) []byte { return append(append([]byte("data: "), Encode(v)...), "\n\n"...) }

// EncodeEvent is one event with its name.
func EncodeEvent(name string, v any) []byte {
	return append([]byte("event: "+name+"\n"), EncodeData(v)...)
}

// EncodeTyped is an object whose type stands first, as Anthropic writes it.
func EncodeTyped(kind string, members map[string]any) raw {
	head, rest := []byte(`{"type":"`+kind+`"`), Encode(members)
	if len(members) > 0 {
		head = append(head, ',')
	}
	return append(head, rest[1:]...)
}

// raw is a JSON value that is passed on as it is.
type raw = jsontext.Value
