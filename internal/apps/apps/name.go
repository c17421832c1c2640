package apps

import (
	"strings"
	"unicode"

	"github.com/purserhq/purser/internal/base/apierr"
)

// checkName checks the name of an app or of its developer. Users decide by it, beside marks of ours such as that of a
// verified domain: it can't look like one of those, like another name, or like nothing. The error is 400
// invalid_request and names member.
func checkName(member, text string) error {
	if err := CheckText(member, text, maxName); err != nil {
		return err
	}
	marks, base := 0, rune(0) // base is the last character that is no mark
	for _, c := range text {
		switch {
		case strings.ContainsRune(badges, c):
			return apierr.InvalidRequest.Errorf("%s: must not hold a check mark, a lock or a shield", member)
		case hidesBehind(base, c):
			return apierr.InvalidRequest.Errorf("%s: must not hold invisible characters, such as U+%04X behind %q",
				member, c, base)
		}
		if unicode.Is(unicode.Mn, c) {
			marks++
		} else {
			marks, base = 0, c
		}
		if marks > maxMarks || marks > maxAccents && unicode.In(base, alike...) {
			return apierr.InvalidRequest.Errorf("%s: must not pile up accents", member)
		}
	}
	// Marks and joiners do not part a word, or they would hide a second script in it.
	for word := range strings.FieldsFuncSeq(text, func(c rune) bool {
		return !unicode.IsLetter(c) && (unicode.IsSpace(c) || isVisible(c))
	}) {
		if countScripts(word) > 1 {
			return apierr.InvalidRequest.Errorf("%s: must not mix letters of several scripts in a word", member)
		}
	}
	return nil
}

// badges are what a name could pass for a mark of ours with.
const badges = "✓✔☑✅🗸🗹🔒🔐🔏🛡"

// How many marks a character can have.
const (
	maxAccents = 3 // of a letter that looks like another one, as in Vietnamese
	maxMarks   = 6 // as in Burmese
)

// alike are the scripts with letters that look like those of another one (Unicode TR 39 §5).
var alike = []*unicode.RangeTable{unicode.Latin, unicode.Greek, unicode.Cyrillic, unicode.Armenian, unicode.Cherokee,
	unicode.Coptic}

// isVisible reports whether a character alone shows anything.
func isVisible(c rune) bool {
	return c != '\u2800' && // a pattern of Braille without dots
		!unicode.IsSpace(c) && !unicode.In(c, unicode.Cf, unicode.M, unicode.Other_Default_Ignorable_Code_Point)
}

// hidesBehind reports whether a character is there and shows nothing behind another one. Joiners have a meaning in
// scripts such as Persian and between emoji, selectors behind emoji and Chinese characters, and a space of no width
// parts the words of scripts that are written without spaces.
func hidesBehind(base, c rune) bool {
	switch {
	case c == '\u200c', c == '\u200d':
		return !unicode.IsLetter(base) && !unicode.IsSymbol(base) && base != '\u200d' || unicode.In(base, alike...)
	case unicode.Is(unicode.Variation_Selector, c):
		return !unicode.IsSymbol(base) && !unicode.Is(unicode.Han, base)
	case c == '\u200b':
		return !unicode.In(base, unicode.Khmer, unicode.Thai, unicode.Lao, unicode.Myanmar)
	case c == '\u00ad':
		return true
	}
	return unicode.Is(unicode.Cf, c) && !unicode.Is(unicode.Prepended_Concatenation_Mark, c) ||
		unicode.Is(unicode.Other_Default_Ignorable_Code_Point, c)
}

// countScripts counts the scripts of a word among those with letters that look alike.
func countScripts(word string) (n int) {
	for _, script := range alike {
		if strings.ContainsFunc(word, func(c rune) bool { return unicode.Is(script, c) }) {
			n++
		}
	}
	return n
}

// FindAddress returns the first part of a text that reads like the address of a site or a mailbox, in lower case, or
// "": programs that show mail make links of such. The site own, if it is not "", is none.
func FindAddress(text, own string) string {
	for word := range strings.FieldsFuncSeq(strings.ToLower(text), func(c rune) bool {
		return unicode.IsSpace(c) || strings.ContainsRune(`"'“”‘’()[]{}<>|,;!?`, c)
	}) {
		word = strings.Trim(word, ".:")
		if strings.Contains(word, "@") || strings.Contains(word, "://") {
			return word
		}
		end := strings.IndexFunc(word, func(c rune) bool { // a port, a path, or what else follows a name of a host
			return c != '.' && c != '-' && !unicode.In(c, unicode.L, unicode.M, unicode.Nd)
		})
		host := word
		if end >= 0 {
			host = strings.TrimRight(word[:end], ".")
		}
		label := host[strings.LastIndexByte(host, '.')+1:]
		if isName := len([]rune(label)) >= 2 && !strings.ContainsFunc(label, func(c rune) bool {
			return !unicode.In(c, unicode.L, unicode.M)
		}); len(label) < len(host) && (isName || strings.HasPrefix(label, "xn--")) && host != own {
			return word
		}
	}
	return ""
}
