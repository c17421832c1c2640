package id

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestOrder shows that identifiers sort by time, and that Floor cuts between them.
func TestOrder(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var list []string
	for i := range 1000 {
		list = append(list, New(Ledger, now.Add(time.Duration(i)*time.Millisecond)))
	}
	if !slices.IsSorted(list) || len(slices.Compact(slices.Clone(list))) != 1000 {
		t.Error("identifiers do not rise with time")
	}
	floor := Floor(Ledger, now.Add(500*time.Millisecond))
	if list[499] >= floor || list[500] < floor {
		t.Errorf("%s does not stand between %s and %s", floor, list[499], list[500])
	}
	if got := ReplacePrefix(list[0], Ledger, Request); !strings.HasPrefix(got, Request) ||
		ReplacePrefix(got, Request, Ledger) != list[0] {
		t.Errorf("%s became %s", list[0], got)
	}
}

func TestSecret(t *testing.T) {
	t.Parallel()
	a, b := NewSecret(), NewSecret()
	if a == b || len(a) != 43 ||
		strings.Trim(a, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
		t.Errorf("%s, %s", a, b)
	}
	if first, again := Hash(a), Hash(a); first != again || first == Hash(b) || strings.Contains(first, a) {
		t.Error("hashes do not tell secrets apart")
	}
}

func TestParseUUID(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{
		"3f2504e0-4f89-41d3-9a0c-0305e82c3301":          true,
		"3F2504E0-4F89-41D3-9A0C-0305E82C3301":          true,
		"00000000-0000-0000-0000-000000000000":          true,
		"":                                              false,
		"3f2504e04f8941d39a0c0305e82c3301":              false,
		"3f2504e0-4f89-41d3-9a0c-0305e82c330":           false,
		"3f2504e0-4f89-41d3-9a0c-0305e82c330g":          false,
		"{3f2504e0-4f89-41d3-9a0c-0305e82c3301}":        false,
		"3f2504e0_4f89_41d3_9a0c_0305e82c3301":          false,
		"3f2504e04-f89-41d3-9a0c-0305e82c3301":          false,
		"urn:uuid:3f2504e0-4f89-41d3-9a0c-0305e82c3301": false,
	} {
		got, ok := ParseUUID(s)
		if ok != want || ok && got != strings.ToLower(s) || !ok && got != "" {
			t.Errorf("%q: %q, %v", s, got, ok)
		}
	}
	if _, ok := ParseUUID(NewUUID()); !ok {
		t.Error("a UUID of ours is refused")
	}
}
