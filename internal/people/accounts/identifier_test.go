package accounts

import (
	"bytes"
	"strings"
	"testing"
)

// TestSafetyIdentifiers: stable, different for each account and each deployment, and no id of ours.
func TestSafetyIdentifiers(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, fill := range []byte{1, 2} {
		ids, err := NewSafetyIdentifiers(bytes.Repeat([]byte{fill}, 32))
		if err != nil {
			t.Fatal(err)
		}
		again, err := NewSafetyIdentifiers(bytes.Repeat([]byte{fill}, 32))
		if err != nil {
			t.Fatal(err)
		}
		for _, accountID := range []string{"wac_1", "wac_2", "wac_10"} {
			s := ids.Identify(accountID)
			if seen[s] || s != again.Identify(accountID) || !IsSafetyIdentifier(s) || strings.Contains(s, accountID) {
				t.Errorf("%s is %q", accountID, s)
			}
			seen[s] = true
		}
	}
	for _, s := range []string{"", "wac_1", strings.Repeat("g", 64), strings.Repeat("A", 64), strings.Repeat("a", 63)} {
		if IsSafetyIdentifier(s) {
			t.Errorf("%q is one", s)
		}
	}
}
