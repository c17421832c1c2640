package e2e

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/chromedp/chromedp"

	"github.com/purserhq/purser/internal/testkit"
)

// visits are the paths of the pages that axe looked at.
var visits sync.Map

// visit notes that axe looks at the page which is shown, unless that is an error.
func (b *tab) visit() {
	b.t.Helper()
	if run(b, chromedp.Evaluate[int64](
		`performance.getEntriesByType("navigation")[0]?.responseStatus ?? 0`)) == http.StatusOK {
		visits.Store(b.at().Path, true)
	}
}

// unseen are the addresses that a browser opens and axe need not see.
var unseen = []string{
	"/activity.csv",                        // a file
	"/statements/{file}",                   // a file
	"/developer/statements/{file}",         // a file
	"/top-ups/{id}/invoice",                // leads to Stripe
	"/checkpoint",                          // a file of the public log
	"/tile/{path...}",                      // files of the public log
	"/activity/{id}/proof.json",            // a file
	"/activity/history.json",               // a file
	"/connections/{id}/live",               // a part of the connection's page, for its script
	"/dashboard/running",                   // a part of the overview, for its script
	"/developer/apps/{id}/live",            // a part of the app's page, for its script
	"/developer/apps/{id}/voice/{session}", // JSON, for the script of the voice page
	"/components/v1/purser.js",             // a script, for pages of apps
	"/docs",                                // leads to the first guide
	"/favicon.ico",                         // a picture
	"/developer/apps/{id}/analytics.csv",   // a file
	"/developer/apps/{id}/requests.csv",    // a file
	"/developer/apps/{id}/webhooks/{endpoint}/deliveries.csv",              // a file
	"/developer/apps/{id}/webhooks/{endpoint}/deliveries/{delivery}/state", // a part of the list, for its script
	"/operator/log.csv",          // a file
	"/operator/prices.csv",       // a file
	"/robots.txt",                // a file
	"/sign-in/provider/callback", // leads on, or shows an error: in TestProvider
}

// unvisited is an error that names the pages which the server mounts and axe saw
// on none of the pictures, once all tests of the long run have run.
func unvisited() error {
	if !testkit.IsLong() || flag.Lookup("test.run").Value.String() != "" ||
		flag.Lookup("test.skip").Value.String() != "" || flag.Lookup("test.list").Value.String() != "" {
		return nil
	}
	source, err := os.ReadFile("../internal/server/mounts_test.go")
	if err != nil {
		return err
	}
	list, _, _ := strings.Cut(string(source), "// Pages are")
	mux, left := http.NewServeMux(), map[string]bool{}
	for _, m := range regexp.MustCompile(`"(GET (/[^"]*))"`).FindAllStringSubmatch(list, -1) {
		mux.HandleFunc(m[1], http.NotFound)
		left[m[2]] = !slices.Contains(unseen, m[2])
	}
	visits.Range(func(path, _ any) bool {
		r, err := http.NewRequest("GET", path.(string), nil)
		if err == nil {
			_, pattern := mux.Handler(r)
			left[strings.TrimPrefix(pattern, "GET ")] = false
		}
		return true
	})
	var missing []string
	for route, is := range left {
		if is {
			missing = append(missing, route)
		}
	}
	if len(left) < 50 || len(missing) > 0 {
		slices.Sort(missing)
		return fmt.Errorf(
			"of %d pages of the server, axe has not looked at %q: visit them with look, or say in unseen why not",
			len(left), missing)
	}
	return nil
}
