package oauth

import (
	"log/slog"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/models/catalog"
)

// TestConsentTellsWhatIsKept says on the consent page that OpenAI keeps what is sent,
// where the operator lets it and the app can send it there (decision 031).
func TestConsentTellsWhatIsKept(t *testing.T) {
	t.Parallel()
	book, err := catalog.Open("", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	const kept = ". OpenAI keeps requests and responses for up to 30 days."
	for _, tt := range []struct {
		name, mode, model string
		kept              bool
		want              string
	}{
		{"kept", "live", "gpt-5.6-terra", true, "OpenAI" + kept},
		{"kept, among all providers", "live", "", true, "OpenAI, Anthropic, Google" + kept},
		{"not kept", "live", "gpt-5.6-terra", false, "OpenAI"},
		{"nothing is sent there", "mock", "gpt-5.6-terra", true, "None. In testing, answers are canned."},
	} {
		app := apps.App{ProviderMode: tt.mode}
		if tt.model != "" {
			app.AllowedModels = []string{tt.model}
		}
		h := &Handler{Catalog: book, Kept: tt.kept, Store: &Store{Now: time.Now}}
		if got := h.describeProviders(app); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
