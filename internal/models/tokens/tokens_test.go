package tokens

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"
)

// alphabets are what texts are made of: each line is picked from as a whole.
var alphabets = []string{
	"abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789", "٠١٢٣٤٥٦٧٨٩²³½Ⅷ㊿", " ",
	" \t\u00a0\u2003\u3000\u0085\u1680", "\r\n", "\n",
	"'", "'\u2019", "sStTmMdD", "rReEvVlL", "ſ", ".,;:!?-_/\\|()[]{}<>@#$%^&*+=~`\"", "/",
	"\u0301\u0308\u20d0\ufe0f\u0e31\u064b\U000e0100", "\u200d\u200c\u200b",
	"äöüßñçéèêåøæœžšč", "ÄÖÜÑÇÉÈÅØÆŽŠ", "ǅǈǋᾈ", "ʰʲˢᵃⁿ", "ªº", "абвгдежзийклмн", "АБВГДЕЖЗИЙ", "αβγδεζηθ", "ΑΒΓΔΕ",
	"אבגדהוזחט", "ابتثجحخدذرزسشصض",
	"कखगघङचछजझञािीु्ं", "กขคงจฉชซ่้๊", "一二三四五六七八九十人大小中国日本語", "ひらがなカタカナー", "한국어안녕하세요", "😀😂🤣👍🏽👩‍👩‍👧‍👦🇩🇪❤️", "𝒜𝓑𝟘𝟙𐐀𐐨𠀀𠜎",
	"\x00\x01\x1b\x7f", "\u202e\ufeff\u00ad",
}

// words are pieces of real text and code, contractions in both cases among them.
var words = strings.Split("the|The|THE| of| and|don't|DON'T|we'll|WE'LL|I'm|you've|YOU'RE|it's|IT'S|he'd|x'ſ|x'ſ名x'ſabcX'ſABC|l'été|O'Brien|'tis|Ångström|naïve|e\u0301clair|iPhone|HTTPServer|"+
	"getElementById|snake_case_name|kebab-case|{\"key\": [1, 2.5e10, null]}|\\u0041|\\n|func main() {\n\tfmt.Println(\"hi\")\n}\n|<div class=\"a\">|</div>|https://example.com/a/b?c=d&e=%20f|"+
	"user@example.com|1234567890|3.14159|2026-11-21T06:16:00Z|0xDEADBEEF|    return x;|\r\n\r\n|\n\n\n|//|/* … */|===|--->|$12.34|№5|10€|Straße|Привет, мир|здравствуйте|Ελληνικά|שלום עולם|"+
	"مرحبا بالعالم|नमस्ते दुनिया|สวัสดีชาวโลก|你好,世界|こんにちは世界|안녕하세요 세계|🙂|👨‍💻|antidisestablishmentarianism|Donaudampfschifffahrtsgesellschaft|aaaaaaaaaaaaaaaa|AAAAAAAA|"+
	"dGhpcyBpcyBiYXNlNjQgdGV4dA==|<|endoftext|>|<\u0000>", "|")

// randomText mixes runs of alphabets and words.
func randomText(r *rand.Rand, runs int) string {
	var b strings.Builder
	for range runs {
		if r.IntN(3) == 0 {
			b.WriteString(words[r.IntN(len(words))])
			continue
		}
		chars := []rune(alphabets[r.IntN(len(alphabets))])
		for range 1 + r.IntN(1+r.IntN(12)) {
			b.WriteRune(chars[r.IntN(len(chars))])
		}
	}
	return b.String()
}

// same compares with the library and with the reference.
func same(t *testing.T, text string) {
	t.Helper()
	if got, want := Count(text), reference(text); got != want {
		t.Errorf("Count(%q) = %d, the reference says %d", text, got, want)
	}
	sameAsLibrary(t, text)
}

func sameAsLibrary(t *testing.T, text string) {
	t.Helper()
	want, err := library.Count(text)
	if err != nil {
		t.Fatal(err)
	}
	if got := Count(text); got != want && !libraryBugs.MatchString(text) {
		_, pieces, _ := library.Encode(text)
		t.Errorf("Count(%q) = %d, the library says %d: %q", text, got, want, pieces)
	}
}

func TestCountsAreTheLibrarys(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 3_000 {
		same(t, randomText(r, 1+i%40))
		if t.Failed() {
			return
		}
	}
}

// Every pair and triple of alphabets in every order meets at least once.
func TestEveryNeighbourhood(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	pick := func(a string) string { c := []rune(a); return string(c[r.IntN(len(c))]) }
	for _, a := range alphabets {
		for _, b := range alphabets {
			for _, c := range alphabets {
				sameAsLibrary(t, pick(a)+pick(b)+pick(c)+"x"+pick(a)+pick(b)+pick(b)+pick(c)+"y")
			}
		}
	}
}

// Every character of Unicode stands in the class that the library's expression
// gives it: alone, behind a letter and before one.
func TestEveryCharacter(t *testing.T) {
	t.Parallel()
	for c := rune(0); c <= unicode.MaxRune; c++ {
		if c > 0x3ffff && c < 0xe0000 || c > 0xe0fff || unicode.Is(unicode.Lo, c) && c%37 != 0 {
			continue // unassigned, private, or one of 100,000 ideographs
		}
		sameAsLibrary(t, fmt.Sprintf("a%cB%c%c", c, c, c))
	}
}

func TestLongWords(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{scanBytes - 1, scanBytes, scanBytes + 1, 127, 128, 129, 1000, 20_000} {
		for _, unit := range []string{"a", "ab", "xyzzy", "antidis", "ñ", "字", "=-", "\u0301", "\U0001F600", " ", "\n",
			"\t "} {
			sameAsLibrary(t, strings.Repeat(unit, n/len(unit)+1))
		}
		random := make([]byte, n)
		for i := range random {
			random[i] = 'a' + byte(r.IntN(26))
		}
		sameAsLibrary(t, string(random))
	}
}

// Bytes that are no UTF-8 count as U+FFFD, one each.
func TestInvalidUTF8(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"\xff", "a\xffb", "\xe4\xb8", "\xe4\xb8x", "\xed\xa0\x80", "\xf0\x9f\x98 \xc0\xaf",
		" \x80\x80\x80", "é\xc3"} {
		same(t, text)
		if got, want := Count(text), Count(string([]rune(text))); got != want {
			t.Errorf("Count(%q) = %d, with U+FFFD %d", text, got, want)
		}
	}
}

func TestWhereTheLibraryIsWrong(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"\x7f": 1, "a\x7fb": 3, "\n \n": 1, "x\n  \ny": 3} {
		if got := Count(text); got != want {
			t.Errorf("Count(%q) = %d, want %d", text, got, want)
		}
	}
}

func TestAboveExactBytes(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[int]int{ExactBytes + 1: 66_667, 300_000: 100_000, 300_001: 100_001} {
		if got := Count(strings.Repeat("a", bytes)); got != want {
			t.Errorf("%d bytes count as %d tokens, want %d", bytes, got, want)
		}
	}
}

func TestCountDoesNotAllocate(t *testing.T) {
	text := prose(2048) + strings.Repeat(" antidisestablishmentarianism", 20) + "日本語 '\u0301 Ünïcödé"
	Count(text)
	if n := testing.AllocsPerRun(100, func() { Count(text) }); n != 0 {
		t.Errorf("%v allocations a count", n)
	}
}

func FuzzCount(f *testing.F) {
	for _, w := range words {
		f.Add(w)
	}
	r := rand.New(rand.NewPCG(7, 8))
	for range 100 {
		f.Add(randomText(r, 20))
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 500 { // the reference is quadratic
			return
		}
		same(t, text)
	})
}

func prose(bytes int) string {
	const text = "Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files, to deal " +
		"in the Software without restriction, including without limitation the rights to use, copy, modify, merge, publish, distribute, sublicense. " +
		"It wasn't long before the gatekeeper's daughter, whom nobody had seen since 1987, walked through the courtyard carrying a lamp. "
	return strings.Repeat(text, bytes/len(text)+1)[:bytes]
}

func jsonText(bytes int) string {
	const text = `{"type":"function","function":{"name":"get_current_weather","description":"Get the current weather in a given location","parameters":` +
		`{"type":"object","properties":{"location":{"type":"string","description":"The city and state, e.g. Lisbon"},"unit":{"type":"string","enum":["celsius","fahrenheit"]}},"required":["location"]}}},` + "\n  "
	return strings.Repeat(text, bytes/len(text)+1)[:bytes]
}

func BenchmarkCount(b *testing.B) {
	texts := map[string]string{
		"prose2KiB":    prose(2048),
		"json2KiB":     jsonText(2048),
		"cjk2KiB":      strings.Repeat("日本語の文章を数える。한국어 문장 ", 48),
		"oneword200kB": strings.Repeat("xq", ExactBytes/2),
	}
	for _, name := range []string{"prose2KiB", "json2KiB", "cjk2KiB", "oneword200kB"} {
		text := texts[name]
		b.Run("ours/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				Count(text)
			}
		})
		b.Run("library/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				library.Count(text)
			}
		})
	}
}
