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
	w := NewWalk(p)
	return w.Members(func(name []byte) bool {
		value := w.Value()
		return value != nil && f(name, value)
	}) && w.End()
}

// Elements is Members for an array: it calls f with each element as it stands.
func Elements(p []byte, f func(value []byte) bool) bool {
	w := NewWalk(p)
	return w.Elements(func() bool {
		value := w.Value()
		return value != nil && f(value)
	}) && w.End()
}

// A Walk reads JSON from front to back, once, however deep what is looked for
// lies. (Members on a value that Members gave reads that again.) Who is called at
// a value takes it by one of the methods, or leaves it to be skipped.
type Walk struct {
	p []byte
	i int // where the next value begins, or -1: it is not valid
}

// NewWalk begins a walk through p.
func NewWalk(p []byte) Walk {
	if !utf8.Valid(p) {
		return Walk{p, -1}
	}
	return Walk{p, skipSpace(p, 0)}
}

// End reports whether everything was valid, and nothing is left.
func (w *Walk) End() bool { return w.i >= 0 && skipSpace(w.p, w.i) == len(w.p) }

// Null reports whether the next value is null, or none.
func (w *Walk) Null() bool { return w.next() == 'n' || w.next() == 0 }

// next is the first byte of the next value; 0 where there is none.
func (w *Walk) next() byte {
	if w.i < 0 || w.i >= len(w.p) {
		return 0
	}
	return w.p[w.i]
}

// Value takes a value as it stands; nil if it is not valid.
func (w *Walk) Value() []byte {
	from := w.i
	if from < 0 {
		return nil
	}
	if w.i = skipValue(w.p, from, 1); w.i < 0 {
		return nil
	}
	return w.p[from:w.i]
}

// Members takes an object, and calls f at each value with its name. It reports
// whether that is valid, and f never said no.
func (w *Walk) Members(f func(name []byte) bool) bool {
	if w.next() != '{' {
		return w.fail()
	}
	for more := w.enter('}'); more; more = w.leave('}') {
		if w.next() != '"' {
			return w.fail()
		}
		from := w.i
		i := skipString(w.p, from)
		if i < 0 {
			return w.fail()
		}
		name := plainName(w.p[from:i])
		if i = skipSpace(w.p, i); i >= len(w.p) || w.p[i] != ':' {
			return w.fail()
		}
		w.i = skipSpace(w.p, i+1)
		if i = w.i; !f(name) {
			return w.fail()
		}
		if w.i == i {
			w.i = skipValue(w.p, i, 1)
		}
	}
	return w.i >= 0
}

// Elements is Members for an array.
func (w *Walk) Elements(f func() bool) bool {
	if w.next() != '[' {
		return w.fail()
	}
	for more := w.enter(']'); more; more = w.leave(']') {
		i := w.i
		if !f() {
			return w.fail()
		}
		if w.i == i {
			w.i = skipValue(w.p, i, 1)
		}
	}
	return w.i >= 0
}

func (w *Walk) fail() bool {
	w.i = -1
	return false
}

// enter goes to the first value, or behind the end if there is none.
func (w *Walk) enter(end byte) (more bool) {
	w.i = skipSpace(w.p, w.i+1)
	if w.next() == end {
		w.i++
		return false
	}
	return true
}

// leave goes from behind a value to the next one, or behind the end.
func (w *Walk) leave(end byte) (more bool) {
	if w.i < 0 {
		return false
	}
	w.i = skipSpace(w.p, w.i)
	switch w.next() {
	case end:
		w.i++
		return false
	case ',':
		w.i = skipSpace(w.p, w.i+1)
		return true
	}
	return w.fail()
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
		return skipObject(p, i, depth+1)
	case '[':
		return skipArray(p, i, depth+1)
	case 't':
		return skipWord(p, i, "true")
	case 'f':
		return skipWord(p, i, "false")
	case 'n':
		return skipWord(p, i, "null")
	}
	return skipNumber(p, i)
}

func skipObject(p []byte, i, depth int) int {
	if i = skipSpace(p, i+1); i < len(p) && p[i] == '}' {
		return i + 1
	}
	for {
		if i >= len(p) || p[i] != '"' {
			return -1
		}
		if i = skipString(p, i); i < 0 {
			return -1
		}
		if i = skipSpace(p, i); i >= len(p) || p[i] != ':' {
			return -1
		}
		if i = skipValue(p, skipSpace(p, i+1), depth); i < 0 {
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

func skipArray(p []byte, i, depth int) int {
	if i = skipSpace(p, i+1); i < len(p) && p[i] == ']' {
		return i + 1
	}
	for {
		if i = skipValue(p, i, depth); i < 0 {
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
