package dev

import (
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/config"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// U10: an app that goes live in development reaches the emulator: each provider has a key and an address on this
// machine. A provider that the developer configured stays as it is.
func TestLiveAppsReachTheEmulator(t *testing.T) {
	t.Parallel()
	given := config.Provider{Keys: []string{"sk-of-the-developer"}, BaseURL: "http://127.0.0.1:9/v1"}
	for _, c := range []struct {
		providers string
		given     bool // the developer's key is used
	}{{"mock", true}, {"emulator", false}} {
		o := Options{
			Data:      t.TempDir(),
			Listen:    "127.0.0.1:0",
			Empty:     true,
			Database:  dbtest.URL(t, db.SQLite),
			Providers: c.providers,
			Environ: []string{"PURSER_PROVIDERS_OPENAI_KEY=sk-of-the-developer",
				"PURSER_PROVIDERS_OPENAI_BASE_URL=http://127.0.0.1:9/v1"},
			Lease: 5 * time.Minute,
		}
		l, err := listenLoopback()
		if err != nil {
			t.Fatal(err)
		}
		log := slog.New(slog.DiscardHandler)
		c2, err := configure(o, l.Addr(), time.Now, log)
		if err != nil {
			t.Fatal(err)
		}
		s, err := open(t.Context(), o, c2, log)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"openai", "anthropic", "google"} {
			p := s.Config.Providers[name]
			if len(p.Keys) == 0 || !strings.HasPrefix(p.BaseURL, "http://127.0.0.1:") {
				t.Errorf("%s: %s is reached at %q", c.providers, name, p.BaseURL)
			}
		}
		if got := reflect.DeepEqual(s.Config.Providers["openai"], given); got != c.given {
			t.Errorf("%s: the developer's key is used: %t", c.providers, got)
		}
		if err := s.DB.Close(); err != nil {
			t.Error(err)
		}
		_ = l.Close()
	}
}
