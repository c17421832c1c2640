package provider

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// AppendQuote appends s as a JSON string with only the necessary escapes. Invalid UTF-8 becomes U+FFFD.
func AppendQuote(dst []byte, s string) []byte {
	if !utf8.ValidString(s) {
		dst, _ = jsontext.AppendQuote(dst, s) // the error only reports the replacement
		return dst
	}
	dst = append(dst, '"')
	for rest := []byte(s); ; { // the compiler does not copy, because nothing writes to it
		i := plainLen(rest)
		dst = append(dst, rest[:i]...)
		if i == len(rest) {
			return append(dst, '"')
		}
		switch c := rest[i]; c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		default:
			dst = append(dst, '\\', 'u', '0', '0', "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15])
		}
		rest = rest[i+1:]
	}
}

// CompactObject returns a JSON object without white space, "{}" if it is absent. Numbers keep their digits.
func CompactObject(object []byte) string {
	if object == nil {
		return "{}"
	}
	v := jsontext.Value(bytes.Clone(object))
	if v.Compact() != nil { // nested too deep; the app can still read it
		return string(object)
	}
	return string(v)
}

// plainLen returns the number of bytes before the first one that a JSON string must escape: a quote, a backslash or a
// control character. It compares eight bytes at a time (SWAR).
func plainLen(s []byte) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(s); i += 8 {
		w := binary.LittleEndian.Uint64(s[i:])
		quote, back := w^('"'*ones), w^('\\'*ones)
		// The lowest high bit that is set marks the first such byte.
		if hit := ((w-0x20*ones)&^w | (quote-ones)&^quote | (back-ones)&^back) & highs; hit != 0 {
			return i + bits.TrailingZeros64(hit)/8
		}
	}
	for ; i < len(s) && s[i] >= 0x20 && s[i] != '"' && s[i] != '\\'; i++ {
	}
	return i
}
