package apps

import (
	"strings"
	"testing"
)

// Names that users decide by are visible, in one script a word, and without what could pass for our own marks.
func TestNames(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{
		"Reader <b>":                      true,
		"Cal.com":                         true,
		"日本語 Reader":                      true,
		"Читатель Notes":                  true, // each word has one script
		"नमस्ते":                          true,
		"می\u200cخواهم":                   true, // Persian needs the joiner
		"👩\u200d💻 Coder":                  true,
		"Tiếng Việt":                      true,
		"Cafe\u0301 µ-ops":                true,
		"\u3164":                          false, // a filler of Hangul
		"\u2800":                          false,
		"\u115f\u1160":                    false,
		"\ufe0f":                          false,
		"\u034f":                          false,
		"\u0301":                          false,
		"Pur\u200bser":                    false,
		"\u0420\u200durser":               false, // a Cyrillic Р, and a joiner that parts no word
		"\u0420\ufe0furser":               false,
		"\u0420\u0301urser":               false,
		"Pur\ufe0fser":                    false,
		"လျှို့ဝှက်":                      true,
		"ខ្មែរ\u200bខ្មែរ":                true,
		"❤\ufe0f Reader":                  true,
		"辻\U000e0100":                     true,
		"Pur\u200dser":                    false,
		"Pur\u00adser":                    false,
		"\ufeffPurser":                    false,
		"Purser\U000e0041":                false,
		"P\u0443rser":                     false, // a Cyrillic у
		"\u0391pple":                      false, // a Greek alpha
		"A" + strings.Repeat("\u0300", 4): false,
		"Bank ✓":                          false,
		"🔒 Bank":                          false,
	} {
		if err := checkName("name", name); (err == nil) != ok {
			t.Errorf("%+q: %v", name, err)
		}
	}
}

// What programs that show mail would make a link of.
func TestFindAddress(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Confirm your card at purser-billing.example": "purser-billing.example",
		"See (WWW.Example.com)!":                      "www.example.com",
		"go to https://10.0.0.1/x":                    "https://10.0.0.1/x",
		"write to help@example":                       "help@example",
		"банк.рф":                                     "банк.рф",
		"example.com/pay":                             "example.com/pay",
		"A. B. Example & Co. B.V.":                    "",
		"Reader 2.0":                                  "",
		"evil.com:8080":                               "evil.com:8080",
		"evil.com#x":                                  "evil.com#x",
		"evil.com…":                                   "evil.com…",
		"evil.com&a":                                  "evil.com&a",
		"evil.xn--p1ai":                               "evil.xn--p1ai",
		"own.example":                                 "",
		"own.example evil.example":                    "evil.example",
		"own.example.evil.example":                    "own.example.evil.example",
		"Ready... or not":                             "",
		"TCP/IP and/or more":                          "",
	} {
		if got := FindAddress(text, "own.example"); got != want {
			t.Errorf("%q holds %q, want %q", text, got, want)
		}
	}
}
