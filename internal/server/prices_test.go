package server

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/config"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/pages/operatorpages"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

const ownPrices = `date: 2026-11-01
models:
  - id: house-model
    provider: openai
    family: gpt-mini
    context_tokens: 1000
    max_output_tokens: 100
    vision: false
    tools: false
    forced_tool_choice: false
    temperature: free
    reasoning: false
    replacement: gpt-6-luna
    source: our contract, 2026-11-01
    prices:
      - {input: "1.00", cached: "1.00", output: "2.00"}
...
`

// TestBrokenPricesDoNotStopAStart breaks the file of prices while a node runs: the next start takes the last good ones
// from the database, and says so. A database that has never seen good ones refuses.
func TestBrokenPricesDoNotStopAStart(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		file := filepath.Join(t.TempDir(), "prices.yaml")
		write := func(text string) {
			t.Helper()
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var log bytes.Buffer
		start := func(url string) (*Server, error) {
			return Open(t.Context(), config.Config{
				Database:     url,
				Lease:        time.Minute,
				EnvelopeKeys: [][]byte{make([]byte, 32)},
				PricesFile:   file,
				Policy:       policy.Default,
			}, slog.New(slog.NewTextHandler(&log, nil)), false)
		}
		url := dbtest.URL(t, d.Engine)
		write("models: [")
		if s, err := start(url); !errors.Is(err, catalog.ErrFile) {
			t.Errorf("a first start with a wrong file: %v, %v", s, err)
		}
		write(ownPrices)
		s, err := start(url)
		if err != nil {
			t.Fatal(err)
		}
		version := s.catalog.Current().Version()
		recorder := &operatorpages.PriceRecorder{DB: s.DB, Catalog: s.catalog, Now: s.DB.Now}
		if err := recorder.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
		closeServer(t, s)
		write("models: [")
		if s, err = start(url); err != nil {
			t.Fatal(err)
		}
		if got := s.catalog.Current().Version(); got != version || !s.catalog.Broken() {
			t.Errorf("prices %s, broken %t; want %s", got, s.catalog.Broken(), version)
		}
		if !bytes.Contains(log.Bytes(), []byte("prices not reloaded")) {
			t.Errorf("the log says nothing: %s", log.String())
		}
		closeServer(t, s)
	})
}
