package provider

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestMembersGivesValuesAsTheyStand(t *testing.T) {
	t.Parallel()
	text := ` {"a" : [1, {"b":"}"}] ,"\u0062":"x\"y","c":-1.5e+3,"a":null, "":{}} `
	got := [][2]string{}
	if !Members([]byte(text), func(name, value []byte) bool {
		got = append(got, [2]string{string(name), string(value)})
		return true
	}) {
		t.Fatal("not an object")
	}
	want := [][2]string{{"a", `[1, {"b":"}"}]`}, {"b", `"x\"y"`}, {"c", "-1.5e+3"}, {"a", "null"}, {"", "{}"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestElementsGivesValuesAsTheyStand(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		` [1, {"a":[2]} ,"x]"] `: {"1", `{"a":[2]}`, `"x]"`}, `[]`: nil, ` [ [ ] ] `: {"[ ]"},
	} {
		var got []string
		if !Elements([]byte(text), func(value []byte) bool {
			got = append(got, string(value))
			return true
		}) {
			t.Errorf("%s is no array", text)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", text, d)
		}
	}
	for _, text := range []string{``, `{}`, `[1`, `[1,]`, `[1] x`, "[\"\xff\"]", `null`} {
		if Elements([]byte(text), func([]byte) bool { return true }) {
			t.Errorf("%s is an array", text)
		}
	}
	if Elements([]byte(`[1,2]`), func(v []byte) bool { return string(v) != "1" }) {
		t.Error("no is no")
	}
}

// A walk takes what lies deep in one pass, skips what nobody takes, and is as
// strict as Members about all of it.
func TestWalk(t *testing.T) {
	t.Parallel()
	walk := func(text string) (got []string, ok bool) {
		w := NewWalk([]byte(text))
		ok = w.Members(func(name []byte) bool {
			switch {
			case w.Null():
				got = append(got, string(name)+" is null")
				return true
			case string(name) == "no":
				return false
			case string(name) == "list":
				return w.Elements(func() bool {
					return w.Members(func(name []byte) bool {
						if string(name) == "text" {
							got = append(got, string(w.Value()))
						}
						return true
					})
				})
			}
			return true
		}) && w.End()
		return got, ok
	}
	got, ok := walk(` {"other":{"list":[{"text":0}]}, "list" : [ {"text":"a]}"}, {"x":[1,{}],"text":{"b":2}} ,{}],"gone":null, "rest":[[]]} `)
	if d := cmp.Diff([]string{`"a]}"`, `{"b":2}`, "gone is null"}, got); d != "" || !ok {
		t.Error(ok, d)
	}
	for _, text := range []string{
		``, `[]`, `null`, `{"list":[{"text":}]}`, `{"list":[{"text":tru}]}`, `{"list":[{"x":01}]}`, `{"list":[{} {}]}`,
		`{"list":[{},]}`, `{"list":[1]}`, `{"list":{}}`, `{"list":[{}}`,
		`{"list":[{"text":1]}`, `{"gone":nul}`, `{"gone":}`, `{"a":1,}`, `{"a":1}}`, `{"a":1`, `{"a"`, `{"a":`, `{1:2}`,
		`{"no":1}`, "{\"list\":[{\"x\":\"\xff\"}]}",
	} {
		if got, ok := walk(text); ok {
			t.Errorf("%s is taken as %q", text, got)
		}
	}
}

// FuzzMembers: what the walk accepts is what the standard library calls a valid
// object, and its members decode to the same values.
func FuzzMembers(f *testing.F) {
	for _, s := range []string{
		sampleChunk, sampleUsage, `{}`, `{"a":01}`, `{"a":1.}`, `{"a":"\ud800"}`, `{"a":"\x"}`, `{"a":tru}`, `{"a":1,}`,
		`[]`, "{\"a\":\"\xff\"}", "{\"a\":\"\n\"}",
		`{"a":-}`, `{"a":1e}`, `{"a" 1}`, `{a:1}`, `{"a":1}x`,
		strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		got := map[string]string{}
		ok := Members(p, func(name, value []byte) bool {
			got[string(name)] = string(value)
			return true
		})
		trimmed := strings.TrimLeft(string(p), " \t\r\n")
		if want := json.Valid(p) && utf8.Valid(p) && strings.HasPrefix(trimmed, "{"); ok != want {
			t.Fatalf("Members(%q) = %v, the standard library says %v", p, ok, want)
		}
		if !ok || strings.Contains(string(p), `\u`) { // half surrogates have no name
			return
		}
		want := map[string]json.RawMessage{}
		if err := json.Unmarshal(p, &want); err != nil {
			t.Fatal(err)
		}
		for name, value := range want {
			if got[name] != string(value) {
				t.Errorf("member %q is %q, want %q", name, got[name], value)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%d members, want %d", len(got), len(want))
		}
	})
}
