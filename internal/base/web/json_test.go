package web_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/web"
)

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type body struct {
	Name     string                        `json:"name"`
	Amount   int64                         `json:"amount_mc"`
	Count    *uint                         `json:"count"`
	Rate     float64                       `json:"rate"`
	On       bool                          `json:"on"`
	Messages []message                     `json:"messages"`
	Labels   map[string]string             `json:"labels"`
	Raw      json.RawMessage               `json:"raw"`
	Limit    web.Field[int64]              `json:"limit"`
	Models   web.Field[[]string]           `json:"models"`
	Nested   map[string]web.Field[message] `json:"nested"`
}

func TestDecodeIsStrictAndNamesTheMember(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return `{"raw":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}` }
	for _, c := range []struct{ in, message string }{
		{`{"name":"a","amount_mc":5,"raw":{"x":[1.5]},"messages":[{"role":"user"}]}`, ""},
		{" \n{}\t ", ""},
		{`{"amount_mc":9223372036854775807}`, ""},
		{`{"name":"\\u0000 is no NUL, \"quoted\" neither"}`, ""},
		{`{"count":null,"name":null}`, ""},
		{deep(64), ""},

		{deep(65), "body: must be nested at most 64 levels deep"},
		{`{"nam":"a"}`, "nam: is not a member that this request takes"},
		{`{"Name":"a"}`, "Name: is not a member that this request takes"},
		{`{"messages":[{"role":"user"},{"rôle":1}]}`,
			`messages[1]["r\u00f4le"]: is not a member that this request takes`},
		{`{"name":"a","name":"b"}`, "name: must come once"},
		{`{"name":"a","n\u0061me":"b"}`, "name: must come once"},
		{`{"raw":{"x":{"y":1,"y":2}}}`, "raw.x.y: must come once"},
		{`{"unknown":{"y":1,"y":2}}`, "unknown: is not a member that this request takes"},
		{`{"amount_mc":1.0}`, "amount_mc: must be an integer"},
		{`{"amount_mc":1e3}`, "amount_mc: must be an integer"},
		{`{"amount_mc":"5"}`, "amount_mc: must be an integer"},
		{`{"amount_mc":true}`, "amount_mc: must be an integer"},
		{`{"amount_mc":9223372036854775808}`, "amount_mc: is out of range"},
		{`{"count":-1}`, "count: must be an integer, 0 or more"},
		{`{"name":5}`, "name: must be a string"},
		{`{"on":"yes"}`, "on: must be true or false"},
		{`{"rate":"1"}`, "rate: must be a number"},
		{`{"rate":1e999}`, "rate: is out of range"},
		{`{"messages":{}}`, "messages: must be an array"},
		{`{"messages":[{"role":"user"},{"role":7}]}`, "messages[1].role: must be a string"},
		{`{"messages":["x"]}`, "messages[0]: must be an object"},
		{`{"labels":[]}`, "labels: must be an object"},
		{`{"labels":{"a b":1}}`, `labels["a b"]: must be a string`},
		{`{"limit":"x"}`, "limit: must be an integer"},
		{`{"models":[1]}`, "models[0]: must be a string"},
		{`{"nested":{"k":{"role":1}}}`, "nested.k.role: must be a string"},
		{`{"nested":{"k":{"x":1}}}`, "nested.k.x: is not a member that this request takes"},
		{`{"name":"\u0000"}`, "name: must not hold the character NUL"},
		{`{"name":"\\\u0000"}`, "name: must not hold the character NUL"},
		{`{"raw":[1,{"x":"\"\u0000"}]}`, "raw[1].x: must not hold the character NUL"},
		{`{"\u0000":1}`, `["\x00"]: must not hold the character NUL`},
		{`[]`, "body: must be a JSON object"},
		{`null`, "body: must be a JSON object"},
		{``, "body: must be a JSON object"},
		{"\xef\xbb\xbf{}", "body: must be a JSON object"},
		{`{"name":"a"`, "body: must be JSON, it ends too early after byte 11"},
		{`{} {}`, "body: must be JSON: invalid character '{' after top-level value after byte 3"},
		{`{"name":'a'}`, "body: must be JSON: invalid character '\\'' at start of value after byte 8"},
		{"{\"name\":\"\xff\"}", "body: must be JSON: invalid UTF-8 after byte 9"},
		{"{\"name\":\"\x00\"}",
			"body: must be JSON: invalid character '\\x00' in string (expecting non-control character) after byte 9"},
		{`{"name":"\ud800"}`, "body: must be JSON: invalid surrogate pair `\\ud800\"}` in string after byte 9"},
		{`{"rate":NaN}`, "body: must be JSON: invalid character 'N' at start of value after byte 8"},
		{`{"amount_mc":01}`,
			"body: must be JSON: invalid character '1' after object value (expecting ',' or '}') after byte 14"},
	} {
		var dst body
		err := web.Decode([]byte(c.in), &dst)
		if c.message == "" {
			if err != nil {
				t.Errorf("%s: %v", c.in, err)
			}
			continue
		}
		if e, ok := err.(*apierr.Error); !ok || e.Code != apierr.InvalidRequest || e.Message != c.message {
			t.Errorf("%s:\n got %v\nwant invalid_request: %s", c.in, err, c.message)
		}
	}
}

func TestUnknownMembersMayBeDropped(t *testing.T) {
	t.Parallel()
	var dst body
	if err := web.DecodeSaid([]byte(`{"x":1,"name":"a","messages":[{"y":2}]}`), &dst); err != nil || dst.Name != "a" {
		t.Errorf("%+v %v", dst, err)
	}
	err := web.DecodeSaid([]byte(`{"x":{"y":1,"y":2}}`), &dst)
	wantRefusal(t, err, "x.y: must come once")
}

// TestWhatIsSaidMayHoldNUL: a model may have said it. The other bounds hold behind it.
func TestWhatIsSaidMayHoldNUL(t *testing.T) {
	t.Parallel()
	var dst body
	if err := web.DecodeSaid([]byte(`{"name":"a\u0000\"b"}`), &dst); err != nil || dst.Name != "a\x00\"b" {
		t.Errorf("%q %v", dst.Name, err)
	}
	deep := `{"name":"\u0000","raw":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`
	wantRefusal(t, web.DecodeSaid([]byte(deep), &dst), "body: must be nested at most 64 levels deep")
}

// A name that a client chose comes back short, whatever it is.
func TestMessagesStayShort(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<16)
	for _, in := range []string{`{"` + long + `":1}`,
		`{"raw":` + strings.Repeat(`{"`+long[:64]+`":`, 60) + `"\u0000"` + strings.Repeat("}", 61)} {
		err := web.Decode([]byte(in), &body{})
		if err == nil || len(err.Error()) > 400 {
			t.Errorf("%.500s", err)
		}
	}
}

func TestFieldTellsAbsentNullAndValueApart(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]web.Field[int64]{
		`{}`:             {},
		`{"limit":null}`: {Set: true, Null: true},
		`{"limit":0}`:    {Set: true},
		`{"limit":7}`:    {Set: true, Value: 7},
	} {
		dst := body{}
		if err := web.Decode([]byte(in), &dst); err != nil || dst.Limit != want {
			t.Errorf("%s: %+v %v, want %+v", in, dst.Limit, err, want)
		}
	}
}

// A body of tiny values takes a small multiple of its bytes, and so does one of member names, which the parser has to
// remember. It is no parallel test, as it counts all that the process allocates.
func TestManyValuesTakeLittleMemory(t *testing.T) {
	const size = 8 << 20
	fill := func(head, item, tail string) []byte {
		return []byte(head + strings.Repeat(item+",", size/(len(item)+1)) + item + tail)
	}
	names := &strings.Builder{}
	for i := 0; names.Len() < size; i++ {
		fmt.Fprintf(names, `"%x":0,`, i)
	}
	for name, in := range map[string][]byte{
		"objects":   fill(`{"messages":[`, `{}`, `]}`),
		"null":      fill(`{"messages":[`, `null`, `]}`),
		"strings":   fill(`{"models":[`, `""`, `]}`),
		"in map":    []byte(`{"nested":{` + names.String() + `"":null}}`),
		"names":     []byte(`{"raw":{` + names.String() + `"":0}}`),
		"two names": []byte(`{"raw":{"x":{` + names.String()[:size/2] + `"":0}, "y":{` + names.String() + `"":0}}}`),
		"unknown":   []byte(`{"unknown":{` + names.String() + `"":0}}`),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := web.DecodeSaid(in, &body{})
		runtime.ReadMemStats(&after)
		if e, ok := err.(*apierr.Error); !ok || e.Code != apierr.InvalidRequest {
			t.Errorf("%s: %v", name, err)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > 8*size {
			t.Errorf("%s: a body of %d bytes takes %d", name, len(in), got)
		}
	}
	var dst body
	many := []byte(`{"messages":[` + strings.Repeat(`{"role":"user","content":"x"},`, 8192) + `{}]}`)
	if err := web.Decode(many, &dst); err != nil || len(dst.Messages) != 8193 {
		t.Error(len(dst.Messages), err)
	}
	raw := []byte(`{"raw":[` + strings.Repeat(`{"x":1},`, 1<<20) + `{}]}`) // stays text, and is no many values
	if err := web.Decode(raw, &dst); err != nil {
		t.Error(err)
	}
}

// FuzzDecode: no panic; what is accepted is JSON to encoding/json too, within
// the depth; strict accepts nothing that lenient refuses, and no NUL.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{`{}`, `{"name":"\u0000"}`, `{"messages":[{"role":"user"}]}`, `{"limit":null}`,
		`{"raw":[[[]]]}`, `{"a":`, `"\\`, `{"name":"\\\u0000"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var strict, lenient body
		strictErr := web.Decode(in, &strict)
		lenientErr := web.DecodeSaid(in, &lenient)
		if strictErr == nil && lenientErr != nil {
			t.Errorf("only strict accepts %q: %v", in, lenientErr)
		}
		if lenientErr != nil {
			if e, ok := lenientErr.(*apierr.Error); !ok || e.Code != apierr.InvalidRequest || e.Message == "" {
				t.Errorf("%q: %v", in, lenientErr)
			}
			return
		}
		var v any
		if err := json.Unmarshal(in, &v); err != nil {
			t.Fatalf("%q is accepted, and no JSON: %v", in, err)
		}
		if depth(v) > 64 || strictErr == nil && hasNUL(v) {
			t.Errorf("%q is accepted", in)
		}
	})
}

func depth(v any) int {
	d := 0
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			d = max(d, depth(e))
		}
		return d + 1
	case map[string]any:
		for _, e := range v {
			d = max(d, depth(e))
		}
		return d + 1
	}
	return 0
}

func hasNUL(v any) bool {
	switch v := v.(type) {
	case string:
		return strings.Contains(v, "\x00")
	case []any:
		for _, e := range v {
			if hasNUL(e) {
				return true
			}
		}
	case map[string]any:
		for k, e := range v {
			if hasNUL(k) || hasNUL(e) {
				return true
			}
		}
	}
	return false
}

func BenchmarkDecode2KiB(b *testing.B) {
	in := []byte(`{"messages":[{"role":"user","content":"` + strings.Repeat(`The quick \"brown\" fox.\n`, 80) + `"}]}`)
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		var dst body
		if err := web.DecodeSaid(in, &dst); err != nil {
			b.Fatal(err)
		}
	}
}
