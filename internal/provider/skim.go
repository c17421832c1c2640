package provider

import (
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// maxDepth bounds the nesting of JSON that is walked, as in encoding/json.
const maxDepth = 10_000

// Members walks a JSON object once, without building anything, and calls f with
// each member's name and its value as it stands. It reports whether p is an
// object in valid JSON and UTF-8, and f never said no. It is here because a
// relay looks at every chunk: it takes a quarter of the time that encoding/json
// needs for the check alone.
func Members(p []byte, f func(name, value []byte) bool) bool {
	if !utf8.Valid(p) {
		return false
	}
	i := skipSpace(p, 0)
	if i == len(p) || p[i] != '{' {
		return false
	}
	i = skipObject(p, i, 1, f)
	return i >= 0 && skipSpace(p, i) == len(p)
}

// Elements is Members for an array: it calls f with each element as it stands.
func Elements(p []byte, f func(value []byte) bool) bool {
	if !utf8.Valid(p) {
		return false
	}
	i := skipSpace(p, 0)
	if i == len(p) || p[i] != '[' {
		return false
	}
	i = skipArray(p, i, 1, f)
	return i >= 0 && skipSpace(p, i) == len(p)
}

// The functions below take the offset where something begins and return the
// offset behind it, or -1 if it is not valid.

func skipSpace(p []byte, i int) int {
	for i < len(p) && (p[i] == ' ' || p[i] == '\n' || p[i] == '\t' || p[i] == '\r') {
		i++
	}
	return i
}

func skipValue(p []byte, i, depth int) int {
	if i >= len(p) || depth > maxDepth {
		return -1
	}
	switch p[i] {
	case '"':
		return skipString(p, i)
	case '{':
		return skipObject(p, i, depth+1, nil)
	case '[':
		return skipArray(p, i, depth+1, nil)
	case 't':
		return skipWord(p, i, "true")
	case 'f':
		return skipWord(p, i, "false")
	case 'n':
		return skipWord(p, i, "null")
	}
	return skipNumber(p, i)
}

func skipObject(p []byte, i, depth int, f func(name, value []byte) bool) int {
	if i = skipSpace(p, i+1); i < len(p) && p[i] == '}' {
		return i + 1
	}
	for {
		if i >= len(p) || p[i] != '"' {
			return -1
		}
		name := i
		if i = skipString(p, i); i < 0 {
			return -1
		}
		nameEnd := i
		if i = skipSpace(p, i); i >= len(p) || p[i] != ':' {
			return -1
		}
		value := skipSpace(p, i+1)
		if i = skipValue(p, value, depth); i < 0 {
			return -1
		}
		if f != nil && !f(plainName(p[name:nameEnd]), p[value:i]) {
			return -1
		}
		if i = skipSpace(p, i); i >= len(p) {
			return -1
		}
		switch p[i] {
		case '}':
			return i + 1
		case ',':
			i = skipSpace(p, i+1)
		default:
			return -1
		}
	}
}

func skipArray(p []byte, i, depth int, f func(value []byte) bool) int {
	if i = skipSpace(p, i+1); i < len(p) && p[i] == ']' {
		return i + 1
	}
	for {
		value := i
		if i = skipValue(p, i, depth); i < 0 || f != nil && !f(p[value:i]) {
			return -1
		}
		if i = skipSpace(p, i); i >= len(p) {
			return -1
		}
		switch p[i] {
		case ']':
			return i + 1
		case ',':
			i = skipSpace(p, i+1)
		default:
			return -1
		}
	}
}

func skipString(p []byte, i int) int {
	for i++; ; i++ {
		i += plainLen(p[i:])
		switch {
		case i == len(p):
			return -1
		case p[i] == '"':
			return i + 1
		case p[i] != '\\' || i+1 == len(p):
			return -1
		}
		i++
		switch p[i] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		case 'u':
			for range 4 {
				if i++; i >= len(p) || !isHex(p[i]) {
					return -1
				}
			}
		default:
			return -1
		}
	}
}

func isHex(c byte) bool {
	return isDigit(c) || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func skipWord(p []byte, i int, word string) int {
	if len(p)-i < len(word) || string(p[i:i+len(word)]) != word {
		return -1
	}
	return i + len(word)
}

func skipNumber(p []byte, i int) int {
	if i < len(p) && p[i] == '-' {
		i++
	}
	if i < len(p) && p[i] == '0' {
		i++
	} else if i = skipDigits(p, i); i < 0 {
		return -1
	}
	if i < len(p) && p[i] == '.' {
		if i = skipDigits(p, i+1); i < 0 {
			return -1
		}
	}
	if i < len(p) && (p[i] == 'e' || p[i] == 'E') {
		if i++; i < len(p) && (p[i] == '+' || p[i] == '-') {
			i++
		}
		i = skipDigits(p, i)
	}
	return i
}

func skipDigits(p []byte, i int) int {
	start := i
	for i < len(p) && isDigit(p[i]) {
		i++
	}
	if i == start {
		return -1
	}
	return i
}

// plainName takes the quotes off a valid string, and its escapes if it has any.
func plainName(quoted []byte) []byte {
	name := quoted[1 : len(quoted)-1]
	for _, c := range name {
		if c == '\\' {
			plain, err := jsontext.AppendUnquote(nil, quoted)
			if err != nil { // half a surrogate pair: no name that we look for
				return name
			}
			return plain
		}
	}
	return name
}
