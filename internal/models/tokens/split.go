package tokens

import (
	"unicode"
	"unicode/utf8"
)

// class is the set of character sets of o200k_base's regular expression that contain a character.
type class uint8

const (
	upper   class = 1 << iota // \p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}
	lower                     // \p{Ll}\p{Lm}\p{Lo}\p{M}
	letter                    // \p{L}
	number                    // \p{N}
	space                     // \s
	newline                   // \r\n
)

// classes has the classes of the first two planes of Unicode. The other planes have only letters and marks, which
// classify looks up.
var classes = func() (table [0x20000]class) {
	for _, set := range sets {
		for _, r := range set.table.R16 {
			for c := uint32(r.Lo); c <= uint32(r.Hi); c += uint32(r.Stride) {
				table[c] |= set.class
			}
		}
		for _, r := range set.table.R32 {
			for c := r.Lo; c <= r.Hi && c < uint32(len(table)); c += r.Stride {
				table[c] |= set.class
			}
		}
	}
	table['\r'] |= newline
	table['\n'] |= newline
	return table
}()

// sets are disjoint and contain all characters except symbols.
var sets = []struct {
	table *unicode.RangeTable
	class class
}{
	{unicode.Lu, upper | letter},
	{unicode.Lt, upper | letter},
	{unicode.Ll, lower | letter},
	{unicode.Lm, upper | lower | letter},
	{unicode.Lo, upper | lower | letter},
	{unicode.M, upper | lower},
	{unicode.N, number},
	{unicode.White_Space, space},
}

// classify returns the class of any character. It is slower than the table.
func classify(r rune) class {
	for _, set := range sets {
		if unicode.Is(set.table, r) {
			return set.class
		}
	}
	return 0
}

// classAt returns the class and the length of the character at i, or 0, 0 at the end.
func classAt(s string, i int) (class, int) {
	if i < len(s) && s[i] < utf8.RuneSelf {
		return classes[s[i]], 1
	}
	return classOfRune(s, i)
}

func classOfRune(s string, i int) (class, int) {
	if i >= len(s) {
		return 0, 0
	}
	r, size := utf8.DecodeRuneInString(s[i:])
	if int(r) < len(classes) {
		return classes[r], size
	}
	return classify(r), size
}

// pieceEnd returns the end of the piece of text that begins at start. A piece is the first match of this expression,
// alternative by alternative:
//
//	[^\r\n\p{L}\p{N}]?[upper]*[lower]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	[^\r\n\p{L}\p{N}]?[upper]+[lower]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	\p{N}{1,3}
//	 ?[^\s\p{L}\p{N}]+[\r\n/]*
//	\s*[\r\n]+
//	\s+(?!\S)
//	\s+
func pieceEnd(s string, start int) int {
	first, size := classAt(s, start)
	switch {
	case first&letter != 0:
		return wordEnd(s, start, true)
	case first&number != 0:
		return numberEnd(s, start)
	case first&upper != 0: // a combining mark: it may lead a word and is one itself
		if end := wordEnd(s, start+size, false); end != 0 {
			return end
		}
		return wordEnd(s, start, false)
	case first&newline == 0:
		if end := wordEnd(s, start+size, true); end != 0 {
			return end
		}
	}
	if first&space == 0 {
		return symbolsEnd(s, start)
	}
	if c, n := classAt(s, start+1); s[start] == ' ' && n != 0 && c&(space|letter|number) == 0 {
		return symbolsEnd(s, start+1)
	}
	return spacesEnd(s, start)
}

// wordEnd matches [upper]*[lower]+ at i and, if that fails and capitals is set, [upper]+, each with an optional
// contraction. It returns 0 if there is no match.
func wordEnd(s string, i int, capitals bool) int {
	end, p := 0, i // end: after the last character that can match [lower]+
	for {
		c, n := classAt(s, p)
		if c&upper == 0 {
			if c&lower != 0 {
				end = lowerEnd(s, p+n)
			}
			break
		}
		p += n
		if c&lower != 0 {
			end = p
		}
	}
	if end == 0 && capitals && p > i {
		end = p
	}
	if end < len(s) && end > 0 && s[end] == '\'' {
		return contractionEnd(s, end)
	}
	return end
}

// lowerEnd returns the end of the run of lower characters at i.
func lowerEnd(s string, i int) int {
	for {
		c, n := classAt(s, i)
		if c&lower == 0 {
			return i
		}
		i += n
	}
}

// contractionEnd returns the end of the contraction that begins with the apostrophe at i, or i if it is none. The
// expression also matches 'ſ. No token crosses that letter, so the count is the same without a rule for it.
func contractionEnd(s string, i int) int {
	rest := s[i+1:]
	if len(rest) == 0 {
		return i
	}
	switch rest[0] | 0x20 {
	case 's', 't', 'm', 'd':
		return i + 2
	}
	if len(rest) == 1 {
		return i
	}
	switch [2]byte{rest[0] | 0x20, rest[1] | 0x20} {
	case [2]byte{'r', 'e'}, [2]byte{'v', 'e'}, [2]byte{'l', 'l'}:
		return i + 3
	}
	return i
}

// numberEnd matches \p{N}{1,3} at i.
func numberEnd(s string, i int) int {
	for range 3 {
		c, n := classAt(s, i)
		if c&number == 0 {
			break
		}
		i += n
	}
	return i
}

// symbolsEnd matches [^\s\p{L}\p{N}]+[\r\n/]* at i.
func symbolsEnd(s string, i int) int {
	for {
		c, n := classAt(s, i)
		if n == 0 || c&(space|letter|number) != 0 {
			break
		}
		i += n
	}
	for i < len(s) && (s[i] == '\r' || s[i] == '\n' || s[i] == '/') {
		i++
	}
	return i
}

// spacesEnd matches the white space at i up to its last line break. Without a line break it matches all white space at
// the end of the text, and elsewhere all but the last character, which begins the next piece. A single character is
// matched.
func spacesEnd(s string, i int) int {
	lines, last, p := 0, i, i
	for {
		c, n := classAt(s, p)
		if c&space == 0 {
			break
		}
		last = p
		p += n
		if c&newline != 0 {
			lines = p
		}
	}
	switch {
	case lines > 0:
		return lines
	case p == len(s) || last == i:
		return p
	}
	return last
}
