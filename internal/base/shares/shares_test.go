package shares

import (
	"errors"
	"testing"
)

// TestUse: a key alone takes 8/9 of a bound, in steps of any size; the rest is for a key that comes later. What was
// counted beyond the bound refuses new ones. In the end nothing is remembered.
func TestUse(t *testing.T) {
	t.Parallel()
	for _, step := range []int64{1, 10, 30} {
		const bound = 900
		var u Use
		for u.Take("first", step, bound) == nil {
		}
		if u.all > 801 || u.all < 800-step {
			t.Errorf("steps of %d: one alone has %d of %d", step, u.all, bound)
		}
		if err := u.Take("first", step, bound); !errors.Is(err, ErrShare) {
			t.Errorf("steps of %d: %v", step, err)
		}
		if err := u.Take("second", step, bound); err != nil {
			t.Errorf("steps of %d: a second one: %v", step, err)
		}
		if err := u.Check("second", bound, bound); !errors.Is(err, ErrFull) {
			t.Errorf("more than is free: %v", err)
		}
		u.Add("first", bound)
		if err := u.Take("third", 1, bound); !errors.Is(err, ErrFull) {
			t.Errorf("beyond the bound: %v", err)
		}
		u.Add("first", -u.byKey["first"])
		u.Add("second", -step)
		if u.All() != 0 || u.Keys() != 0 {
			t.Errorf("remembered: %+v", u)
		}
	}
	var u Use
	if u.Take("one", 5, 0) != nil || u.Take("", 5, 10) != nil {
		t.Error("refused without a bound, or without a key")
	}
}

// TestParts: one part of a key alone takes half of what the key may use, three that want more take a quarter each, and
// what other keys use leaves less.
func TestParts(t *testing.T) {
	t.Parallel()
	const bound = 900
	var u, parts Use
	take := func(part string, n int64) bool {
		if u.CheckPart("key", &parts, part, n, bound) != nil || u.Take("key", n, bound) != nil {
			return false
		}
		parts.Add(part, n)
		return true
	}
	for take("one", 1) {
	}
	if n := parts.byKey["one"]; n < 395 || n > 401 {
		t.Errorf("one alone has %d of 800", n)
	}
	for range 300 { // each ends as often as it begins
		for _, part := range []string{"one", "two", "three"} {
			if parts.byKey[part] > 0 {
				parts.Add(part, -1)
				u.Add("key", -1)
			}
			for take(part, 1) {
			}
		}
	}
	for part, n := range parts.byKey {
		if n < 190 || n > 260 {
			t.Errorf("%s has %d of 800", part, n)
		}
	}
	if u.Check("other", 90, bound) != nil {
		t.Error("no room for another key")
	}
	if u.CheckPart("key", &parts, "", bound, bound) != nil || u.CheckPart("key", &parts, "one", bound, 0) != nil {
		t.Error("refused without a name, or without a bound")
	}
}
