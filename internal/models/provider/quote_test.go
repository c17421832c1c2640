package provider

import (
	"encoding/json"
	"strings"
	"testing"
)

// FuzzAppendQuote: the standard library reads back what was written.
func FuzzAppendQuote(f *testing.F) {
	for _, s := range []string{"", "plain", "eight by", "a\"b\\c\nd\re\tf\x00g\x1fh\x7f", "日本 🧾 \u2028", "\xff broken",
		strings.Repeat("x", 100) + "\"", "\x80\x01", "\"\"\"\"\"\"\"\"#]!"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		quoted := AppendQuote([]byte("x"), s)
		var got string
		if err := json.Unmarshal(quoted[1:], &got); err != nil {
			t.Fatalf("%q: %v", quoted, err)
		}
		if got != string([]rune(s)) {
			t.Errorf("%q is read back as %q", s, got)
		}
	})
}
