package operatorpages_test

import (
	"encoding/csv"
	"net/url"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/pages/operatorpages"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// The price list can be searched and downloaded, and compared with one that was used before.
func TestPrices(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("viewer")
		version := w.admin.Catalog.Current().Version()
		b.Get("/operator/prices").Want(t, 200, version, "No version is stored yet", "gpt-6-luna", "claude-")
		b.Get("/operator/prices/compare").Want(t, 200, "are the same", version+" (in force)")
		w.exec(`INSERT INTO price_lists (version, first_us, models, lines) VALUES ('older', 1, 1, $1)`,
			`[{"model":"gpt-6-luna","provider":"openai","list":"older","mc_per_million":{"input":1}}]`)
		recorder := &operatorpages.PriceRecorder{DB: d, Catalog: w.admin.Catalog, Now: w.Now}
		for range 2 {
			if err := recorder.Once(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		compare := "/operator/prices/compare?after=" + version + "&amp;before=older"
		b.Get("/operator/prices").Want(t, 200, ">In force<", `href="`+compare+`"`)
		b.Get("/operator/prices/compare").Want(t, 200, "$0.00000001", "Added", "gpt-6-luna", "%</span>")
		b.Get("/operator/prices/compare?before="+version+"&after=older").Want(t, 200, "Removed", "−")
		b.Get("/operator/prices/compare?before="+version).Want(t, 200, "are the same")
		b.Get("/operator/prices/compare?before=%3Cb%3E").Want(t, 404)

		for query, want := range map[string]string{
			"find=LUNA":                   "gpt-6-luna",
			"find=gpt-6-luna&state=now":   "gpt-6-luna",
			"provider=google&find=gemini": "gemini",
		} {
			b.Get("/operator/prices?"+query).Want(t, 200, want).Lacks(t, "claude-")
			text := b.Get("/operator/prices.csv?"+query).Want(t, 200, "input_mc_per_million", want).Body
			rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
			if err != nil || len(rows) < 2 || strings.Contains(text, "claude-") {
				t.Errorf("%s: %v %s", query, err, text)
			}
		}
		b.Get("/operator/prices?find="+url.QueryEscape(`"><b>`)).Want(t, 200, "No prices match").Lacks(t, `"><b>`)
	})
}
