package provider

import "bytes"

// AppendArguments appends the arguments of a tool call as a JSON object, for providers that take nothing else. What is
// none, because an output cap cut it off or the model got it wrong, becomes a member of one: always the same, so that
// the start of the next request is that of this one.
func AppendArguments(b []byte, arguments string) []byte {
	object := bytes.TrimSpace([]byte(arguments))
	switch {
	case len(object) == 0:
		return append(b, "{}"...)
	case Members(object, func(_, _ []byte) bool { return true }):
		return append(b, mendSurrogates(object)...)
	}
	return append(AppendQuote(append(b, `{"invalid_json":`...), arguments), '}')
}

// mendSurrogates replaces each half of a surrogate pair that stands alone in a JSON text by U+FFFD, in place. A strict
// parser refuses such a text.
func mendSurrogates(text []byte) []byte {
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		switch {
		case isHalf(text[i:], '8', 'b') && isHalf(text[i+6:], 'c', 'f'):
			i += 11
		case isHalf(text[i:], '8', 'f'):
			copy(text[i:], `\ufffd`)
			i += 5
		default:
			i++ // the escaped character
		}
	}
	return text
}

// isHalf reports whether text begins with an escape from \ud<from>00 to \ud<to>ff.
func isHalf(text []byte, from, to byte) bool {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' || text[2]|0x20 != 'd' {
		return false
	}
	digit := text[3]
	if digit >= 'A' {
		digit |= 0x20
	}
	return from <= digit && digit <= to
}
