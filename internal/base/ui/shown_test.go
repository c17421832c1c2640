package ui

import (
	"net/url"
	"testing"
)

// TestTypedFields: what still is as the page showed it was not typed, whatever line breaks and spaces a browser sends.
func TestTypedFields(t *testing.T) {
	t.Parallel()
	shown := ShownFields([]Field{
		{ID: "name", Value: "App"},
		{ID: "lines", Kind: "area", Value: "a\nb"},
		{ID: "choice", Kind: "select", Options: []Option{{ID: "x"}, {ID: "y", Chosen: true}}},
		{ID: "first", Kind: "select", Options: []Option{{ID: "x"}, {ID: "y"}}},
		{ID: "empty"},
	}, Option{ID: "box.a", Chosen: true}, Option{ID: "box.b"})
	form := url.Values{"shown": {string(shown)}, "name": {"App "}, "lines": {"a\r\nb\r\n"}, "choice": {"y"},
		"first": {"x"}, "empty": {""}, "box.a": {"on"}, "other": {"1"}}
	if typed := TypedFields(form); typed.Encode() != "other=1" {
		t.Errorf("typed %s", typed.Encode())
	}
	form.Set("name", "")
	form.Set("choice", "x")
	form.Set("lines", "a\nc")
	form.Set("empty", "0")
	if typed := TypedFields(form); typed.Encode() != "choice=x&empty=0&lines=a%0Ac&name=&other=1" {
		t.Errorf("typed %s", typed.Encode())
	}
	for _, c := range []struct {
		box       string
		now, want bool
	}{{"box.a", true, true}, {"box.a", false, false}, {"box.b", true, true}, {"box.b", false, false}} {
		if got := Ticked(form, c.box, c.now); got != c.want {
			t.Errorf("%s, now %v: %v", c.box, c.now, got)
		}
	}
	form.Del("box.a")
	form.Set("box.b", "on")
	if Ticked(form, "box.a", true) || !Ticked(form, "box.b", false) {
		t.Error("what was ticked and unticked does not count")
	}
	for _, without := range []url.Values{
		{"name": {"App"}, "box.a": {"on"}},
		{"shown": {"%"}, "name": {"App"}, "box.a": {"on"}},
	} {
		if typed := TypedFields(without); typed.Get("name") != "App" || !Ticked(without, "box.a", false) ||
			Ticked(without, "box.b", true) {
			t.Errorf("%v: %v", without, typed)
		}
	}
}
