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
	if got := Swap(list[0], Ledger, Request); !strings.HasPrefix(got, Request) || Swap(got, Request, Ledger) != list[0] {
		t.Errorf("%s became %s", list[0], got)
	}
}

func TestSecret(t *testing.T) {
	t.Parallel()
	a, b := Secret(), Secret()
	if a == b || len(a) != 43 || strings.Trim(a, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
		t.Errorf("%s, %s", a, b)
	}
	if first, again := Hash(a), Hash(a); first != again || first == Hash(b) || strings.Contains(first, a) {
		t.Error("hashes do not tell secrets apart")
	}
}
