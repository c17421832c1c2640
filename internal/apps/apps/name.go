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
	marks, before := 0, rune(0)
	for _, c := range text {
		switch {
		case strings.ContainsRune(badges, c):
			return apierr.InvalidRequest.Errorf("%s: must not hold a check mark, a lock or a shield", member)
		case hidesBetween(before, c):
			return apierr.InvalidRequest.Errorf("%s: must not hold invisible characters", member)
		}
		if marks++; !unicode.Is(unicode.Mn, c) {
			marks = 0
		}
		if marks > maxMarks {
			return apierr.InvalidRequest.Errorf("%s: must not pile up accents", member)
		}
		before = c
	}
	for word := range strings.FieldsFuncSeq(text, func(c rune) bool { return !unicode.IsLetter(c) }) {
		if countScripts(word) > 1 {
			return apierr.InvalidRequest.Errorf("%s: must not mix letters of several scripts in a word", member)
		}
	}
	return nil
}

// badges are what a name could pass for a mark of ours with.
const badges = "✓✔☑✅🗸🗹🔒🔐🔏🛡"

// maxMarks is how many accents a letter can have, as in Vietnamese and Hebrew.
const maxMarks = 3

// isVisible reports whether a character alone shows anything.
func isVisible(c rune) bool {
	return c != '\u2800' && // a pattern of Braille without dots
		!unicode.IsSpace(c) && !unicode.In(c, unicode.Cf, unicode.M, unicode.Other_Default_Ignorable_Code_Point)
}

// hidesBetween reports whether a character after another one is there and shows nothing. Joiners have a meaning in
// other scripts than Latin, and between emoji.
func hidesBetween(before, c rune) bool {
	switch c {
	case '\u200c', '\u200d':
		return unicode.Is(unicode.Latin, before)
	case '\u00ad':
		return true
	}
	return unicode.Is(unicode.Cf, c) && !unicode.Is(unicode.Prepended_Concatenation_Mark, c) ||
		unicode.Is(unicode.Other_Default_Ignorable_Code_Point, c)
}

// countScripts counts the scripts of a word among those with letters that look alike (Unicode TR 39 §5).
func countScripts(word string) (n int) {
	for _, script := range []*unicode.RangeTable{unicode.Latin, unicode.Greek, unicode.Cyrillic, unicode.Armenian,
		unicode.Cherokee, unicode.Coptic} {
		if strings.ContainsFunc(word, func(c rune) bool { return unicode.Is(script, c) }) {
			n++
		}
	}
	return n
}

// FindAddress returns the first part of a text that reads like the address of a site or a mailbox, in lower case, or
// "": programs that show mail make links of such.
func FindAddress(text string) string {
	for word := range strings.FieldsFuncSeq(strings.ToLower(text), func(c rune) bool {
		return unicode.IsSpace(c) || strings.ContainsRune(`"'“”‘’()[]{}<>|,;!?`, c)
	}) {
		word = strings.Trim(word, ".:")
		host, _, _ := strings.Cut(word, "/")
		label := host[strings.LastIndexByte(host, '.')+1:]
		if strings.Contains(word, "@") || strings.Contains(word, "://") || len(label) < len(host) &&
			len([]rune(label)) >= 2 && !strings.ContainsFunc(label, func(c rune) bool { return !unicode.IsLetter(c) }) {
			return word
		}
	}
	return ""
}
