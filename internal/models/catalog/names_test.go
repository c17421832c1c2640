package catalog

import (
	"slices"
	"testing"
	"time"
)

// TestProviderNames checks that every provider of the price list has a name that people read, and is in Providers.
func TestProviderNames(t *testing.T) {
	t.Parallel()
	book, err := LoadBuiltin()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range book.Offered(time.Now()) {
		if !slices.Contains(Providers, m.Provider) || providerNames[m.Provider] == "" {
			t.Errorf("%s: provider %q has no name", m.ID, m.Provider)
		}
	}
	for id, want := range map[string]string{"openai": "OpenAI", "another": "Another", "": ""} {
		if got := ProviderName(id); got != want {
			t.Errorf("%q is %q, should be %q", id, got, want)
		}
	}
}
